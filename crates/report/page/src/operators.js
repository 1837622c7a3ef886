// Operators by time: a treemap and a table, of a profile or of a plan.
import { broken, choice, html } from "./dom.js";
import * as format from "./format.js";
import { MODES, measuredEvents, planModel } from "./plans.js";
import { sortedTable } from "./table.js";
import { timeByKind } from "./treemap.js";

const UNITS = { fused: "fused groups", op: "operators" };

// What a table is of, as short as tells it apart from the others: paths are too long for narrow screens.
export function tableName(data, table) {
  const last = ({ subject }) => subject.split(/[\\/]/).filter(Boolean).pop() ?? subject;
  const isUnique = data.tables.every(other => other.subject === table.subject || last(other) !== last(table));
  const hasBoth = data.tables.some(other => other.subject === table.subject && other.granularity !== table.granularity);
  return `profile ${isUnique ? last(table) : table.subject}${hasBoth ? `, ${UNITS[table.granularity]}` : ""}`;
}

// What can be shown: each a name, and the times that it has.
function sources(data) {
  const profiles = data.tables.map(table => ({ name: tableName(data, table), table }));
  return [...profiles, ...data.plans.map(plan => ({ name: `plan ${plan.name}`, plan }))];
}

// `choose(plan, code)` shows a group of a plan in the chart over time.
export function operators(data, choose) {
  const all = sources(data), place = html("div"), chosen = { source: 0 };
  const show = () => place.replaceChildren(...(all[chosen.source].table ? ofProfile(data, all[chosen.source].table) : ofPlan(data, all[chosen.source].plan, choose)).filter(Boolean));
  show();
  return [choice("show", all.map(source => source.name), 0, index => {
    chosen.source = index;
    show();
  }), place];
}

function ofProfile(data, table) {
  const rows = table.id.map((id, at) => ({ id, at, name: data.words[table.name[at]], layer: data.words[table.layer[at]],
    shapes: data.words[table.shapes[at]], colour: data.class_of[table.name[at]], flops: table.flops[at], bytes: table.bytes[at] }));
  const time = (row, device) => table.devices[device].time_us[row.at];
  const place = html("div");
  const show = device => {
    const items = rows.map(row => ({ name: row.name, colour: row.colour, time: time(row, device) ?? 0, label: `#${row.id} ${row.name}` }));
    const total = items.reduce((sum, item) => sum + item.time, 0), of = table.devices[device];
    const measured = of.time_us.filter(time => time !== null).length;
    const columns = [
      { name: "#", value: row => row.id, isNumber: true, title: "Number in the model" },
      { name: "operators", value: row => row.name, text: row => broken(row.name), isLong: true },
      ...table.devices.map((other, index) => ({ name: other.name, value: row => time(row, index), text: row => format.time(time(row, index)), isNumber: true, title: `Median time on ${other.name}, measured ${MODES[other.mode]}` })),
      { name: "share", value: row => time(row, device), text: row => format.share((time(row, device) ?? 0) / (total || 1)), isNumber: true, title: `Of the time on ${of.name}` },
      { name: "class", value: row => data.classes[row.colour] },
      { name: "layer", value: row => row.layer, text: row => broken(format.shortened(row.layer, 60)), isLong: true, isHidden: rows.every(row => !row.layer) },
      { name: "FLOPs", value: row => row.flops, text: row => format.count(row.flops), isNumber: true },
      { name: "bytes", value: row => row.bytes, text: row => format.bytes(row.bytes), isNumber: true, title: "Operands, parameters and results" },
      { name: "± MAD", value: row => of.mad[row.at], text: row => format.share(of.mad[row.at] === null ? null : of.mad[row.at] / 1000), isNumber: true, title: "Median absolute deviation, as a share of the median" },
      { name: "p95", value: row => of.p95[row.at], text: row => of.p95[row.at] === null ? "–" : format.signedShare(of.p95[row.at] / 1000), isNumber: true, title: "How far the 95th percentile is above the median" },
      { name: "rate", value: row => row.flops && time(row, device) ? row.flops / time(row, device) : null, text: row => row.flops && time(row, device) ? format.flopRate(row.flops / time(row, device)) : "–", isNumber: true },
      { name: "workspace", value: row => of.workspace_bytes[row.at], text: row => format.bytes(of.workspace_bytes[row.at]), isNumber: true },
    ].filter(column => !column.isHidden);
    const sorted = sortedTable(columns, rows, row => `#${row.id} ${row.name} ${row.layer} ${row.shapes} ${data.classes[row.colour]}`, columns.findIndex(column => column.name === of.name));
    const absent = measured < rows.length ? ` ${format.plural(rows.length - measured, "other has", "others have")} no time on this device.` : "";
    const shards = table.shards ? ` ${format.plural(table.shards, "row")} of shards are not shown.` : "";
    place.replaceChildren(
      html("p", {}, `${of.name}: ${format.time(total)} for ${format.plural(measured, UNITS[table.granularity].slice(0, -1))}, each measured ${MODES[of.mode]}.${absent}${shards}`),
      ...timeByKind(data, items, sorted.filter), sorted.element);
  };
  show(0);
  return [choice("device", table.devices.map(device => device.name), 0, show), place];
}

function ofPlan(data, plan, choose) {
  const model = planModel(data, plan), measured = measuredEvents(model.run);
  const rows = Array.from({ length: model.groupCount }, (_, index) => model.event(index));
  const device = row => plan.devices[row.device].name, found = row => measured.get(row.code)?.time ?? null;
  const off = row => found(row) === null || !row.time ? null : found(row) / row.time - 1;
  const columns = [
    { name: "#", value: row => row.id, isNumber: true, title: "Number in the model; a click shows it in the plan", text: row => html("button", {
      type: "button", class: "link", onclick: () => choose(data.plans.indexOf(plan), row.code) }, row.id === null ? "show" : `#${row.id}`) },
    { name: "operators", value: row => row.name, text: row => broken(row.name), isLong: true },
    { name: "part", value: row => row.part, isHidden: rows.every(row => !row.part) },
    { name: "class", value: row => data.classes[row.colour] },
    { name: "device", value: device },
    { name: "start", value: row => row.start, text: row => format.time(row.start), isNumber: true },
    { name: "predicted", value: row => row.time, text: row => `${row.isEstimated ? "≈ " : ""}${format.time(row.time)}`, isNumber: true },
    { name: "measured", value: found, text: row => format.time(found(row)), isNumber: true, isHidden: !model.run },
    { name: "off", value: off, text: row => format.signedShare(off(row)), isNumber: true, isHidden: !model.run },
    { name: "critical", value: row => row.isCritical ? "yes" : "no" },
    { name: "workspace", value: row => row.workspace, text: row => format.bytes(row.workspace), isNumber: true },
  ].filter(column => !column.isHidden);
  const sorted = sortedTable(columns, rows, row => `#${row.id} ${row.name} ${row.part} ${row.layer} ${device(row)} ${data.classes[row.colour]}`, columns.findIndex(column => column.name === "predicted"));
  const items = rows.map(row => ({ name: row.name.replace(/\[[^\]]*\]/g, ""), colour: row.colour, time: row.time, label: `${model.label(row.code)} on ${device(row)}` }));
  return [html("p", {}, `Predicted times of all devices together.${rows.some(row => row.isEstimated) ? " ≈ marks estimates." : ""}`), ...timeByKind(data, items, sorted.filter), sorted.element];
}
