// A plan over time: a lane for each device and link, predicted above measured. Wheel, drag, buttons and keys zoom and move;
// a click or the arrow keys choose an operator.
import { axisTop } from "d3-axis";
import { scaleLinear } from "d3-scale";
import { select } from "d3-selection";
import { zoom, zoomIdentity } from "d3-zoom";
import { colour, chart, hideTip, ink, legend, showTip } from "./chart.js";
import { details } from "./details.js";
import { choice, html, svg } from "./dom.js";
import * as format from "./format.js";
import { isTransfer, measuredEvents, planModel } from "./plans.js";

const PREDICTED = 24, MEASURED = 16, NAME = 17, GAP = 8, AXIS = 24, LETTER = 6.6;

let inChart = () => {};
// Chooses an event in the chart that is shown, and brings that into sight.
export const chooseInChart = code => inChart(code);

// A row of a lane while it is drawn: what is too narrow for a bar of its own is kept until its pixel is full.
class Row {
  constructor(top, height, isMeasured) {
    Object.assign(this, { top, height, isMeasured, pixel: -9, narrow: [] });
  }
}

// The lanes of a plan: `{ name, note, codes }`, those of devices first.
function lanes(model) {
  const { plan, devices } = model;
  const of = devices.map((device, index) => ({ name: device.name, key: `d${index}`, codes: [], busy: device.busy_us }));
  for (let index = 0; index < model.groupCount; index++) of[plan.groups.device[index]].codes.push(index);
  const links = new Map();
  for (let index = 0; index < model.transferCount; index++) {
    const [from, to] = [devices[plan.transfers.from[index]], devices[plan.transfers.to[index]]];
    const isWithin = from.server === to.server;
    const name = isWithin ? `${from.name} → ${to.name}` : `${from.server} → ${to.server}`;
    if (!links.has(name)) links.set(name, { name, key: `l${links.size}`, codes: [], busy: 0 });
    links.get(name).codes.push(-1 - index);
    links.get(name).busy += plan.transfers.time_us[index];
  }
  for (const lane of of) lane.note = `${format.plural(lane.codes.length, "operator")}, busy ${format.time(lane.busy)} (${format.share(lane.busy / plan.latency_us)})`;
  for (const lane of links.values()) lane.note = `${format.plural(lane.codes.length, "transfer")}, ${format.time(lane.busy)}`;
  return [...of.filter(lane => lane.codes.length), ...links.values()];
}

export function gantt(data, plan) {
  const runs = data.runs.filter(run => data.plans[run.plan] === plan);
  let run = runs.find(run => run.has_starts) ?? runs[0];
  const model = planModel(data, plan), all = lanes(model);
  let measured = measuredEvents(run), chosen = null, transform = zoomIdentity, width = 0, frame = 0;
  for (const lane of all) lane.codes.sort((a, b) => model.event(a).start - model.event(b).start);
  const laneOf = new Map(all.flatMap(lane => lane.codes.map(code => [code, lane])));
  const panel = html("div", { class: "details", "aria-live": "polite" }, html("p", { class: "faint" }, "Choose an operator or a transfer in the chart: by a click, or with the arrow keys once the chart has the focus."));
  const plot = svg("g"), axis = svg("g", { class: "axis" });

  const end = () => Math.max(plan.latency_us, 1e-3, ...(run?.has_starts ? [...measured.values()].map(({ start, time }) => start === null ? 0 : start + time) : []));
  let whole = end();
  const scale = () => transform.rescaleX(scaleLinear([0, whole], [0, width]));

  const drawing = chart("Plan over time", (drawing, now) => {
    // The same time stays in sight when the width changes.
    const kept = width ? zoomIdentity.translate(transform.x * now / width, 0).scale(transform.k) : transform;
    width = now;
    let y = AXIS;
    for (const lane of all) {
      lane.top = y + NAME;
      y = lane.top + PREDICTED + (run?.has_starts ? MEASURED + 2 : 0) + GAP;
    }
    drawing.append(axis, plot);
    zooming.translateExtent([[0, 0], [width, y]]).extent([[0, 0], [width, y]]);
    select(drawing).call(zooming).on("dblclick.zoom", null).call(zooming.transform, kept);
    render();
    return y;
  });
  const area = drawing.drawing;
  area.setAttribute("tabindex", "0");
  area.setAttribute("role", "application");
  area.classList.add("gantt");

  const zooming = zoom().scaleExtent([1, 2000]).filter(event => {
    // With everything in sight, the wheel scrolls the page.
    if (event.type === "wheel") return event.deltaY < 0 || transform.k > 1;
    return !event.button;
  }).on("zoom", event => {
    transform = event.transform;
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(render);
  });
  const by = (method, ...values) => select(area).call(zooming[method], ...values);

  function render() {
    if (!width) return; // Not in the page yet.
    const x = scale(), [from, to] = x.domain(), shapes = [];
    axis.replaceChildren();
    select(axis).attr("transform", `translate(0 ${AXIS - 2})`).call(axisTop(x).tickValues(x.ticks(Math.max(2, width / 90)).filter(tick => x(tick) > 22 && x(tick) < width - 26)).tickFormat(format.round(format.time)).tickSize(-4));
    for (const lane of all) {
      shapes.push(svg("text", { class: "lane", x: 2, y: lane.top - 4 }, lane.name, svg("tspan", { class: "faint", dx: 8 }, width < 500 ? "" : lane.note)));
      shapes.push(svg("rect", { class: "track", x: 0, y: lane.top, width, height: PREDICTED }));
      if (run?.has_starts) shapes.push(svg("rect", { class: "track", x: 0, y: lane.top + PREDICTED + 2, width, height: MEASURED }));
      const rows = [new Row(lane.top, PREDICTED, false), new Row(lane.top + PREDICTED + 2, MEASURED, true)];
      for (const code of lane.codes) {
        const of = model.event(code), found = measured.get(code);
        place(rows[0], shapes, x, from, to, of, of.start, of.time);
        if (run?.has_starts && found && found.start !== null) place(rows[1], shapes, x, from, to, of, found.start, found.time);
      }
      for (const row of rows) flush(row, shapes);
    }
    plot.replaceChildren(...shapes);
  }

  // Operators that are narrower than a pixel share one, in the colour of the class that takes most of it.
  function place(row, shapes, x, from, to, of, start, time) {
    if (start + time < from || start > to) return;
    const left = x(start), right = x(start + time);
    if (right - left >= 1.5 || of.code === chosen) {
      flush(row, shapes);
      return bar(row, shapes, of, left, right);
    }
    if (Math.floor(left) !== row.pixel) flush(row, shapes);
    row.pixel = Math.floor(left);
    row.narrow.push({ of, time });
  }

  function flush(row, shapes) {
    if (!row.narrow.length) return;
    const sums = new Map();
    for (const { of, time } of row.narrow) sums.set(of.colour, (sums.get(of.colour) ?? 0) + time);
    const [most] = [...sums].reduce((a, b) => b[1] > a[1] ? b : a);
    const longest = row.narrow.filter(({ of }) => of.colour === most).reduce((a, b) => b.time > a.time ? b : a);
    const isCritical = row.narrow.some(({ of }) => of.isCritical);
    bar(row, shapes, { ...longest.of, isCritical }, row.pixel, row.pixel + 1);
    row.narrow = [];
  }

  function bar({ top, height, isMeasured }, shapes, of, left, right) {
    const row = isMeasured ? "measured" : "predicted";
    const [begin, until] = [Math.max(-2, left), Math.min(width + 2, right)], space = until - begin;
    const classes = ["bar", isTransfer(of.code) && "transfer", isMeasured && "measured", of.code === chosen && "chosen", of.isEstimated && "estimated"];
    shapes.push(svg("rect", {
      class: classes.filter(Boolean).join(" "), x: begin, y: top, width: Math.max(space - (space > 3 ? 0.6 : 0), 0.8), height, "data-event": of.code,
      "data-row": row, fill: isTransfer(of.code) ? "var(--link)" : colour(of.colour),
    }));
    if (of.overhead > 0 && !isMeasured) {
      const waiting = (right - left) * of.overhead / of.time;
      shapes.push(svg("rect", { class: "waiting", x: Math.max(begin, right - waiting), y: top + 1, width: Math.max(0, Math.min(waiting, until - begin) - 1), height: height - 2 }));
    }
    if (of.isCritical && !isMeasured) shapes.push(svg("rect", { class: "critical", x: begin, y: top + height - 3, width: Math.max(space - 0.6, 0.8), height: 3 }));
    const text = of.name.replace(/nn\./g, "");
    if (space > 30 && height > 12) shapes.push(svg("text", { class: isTransfer(of.code) ? "bar-name" : ink(of.colour), x: Math.max(begin, 0) + 3, y: top + height / 2 + 3.5 }, format.shortened(text, Math.floor((space - 6) / LETTER))));
  }

  function choose(code) {
    chosen = code;
    panel.replaceChildren(details(data, model, measured, code, choose));
    const of = model.event(code), x = scale(), middle = x(of.start + of.time / 2);
    if (width && (middle < 0 || middle > width)) by("translateTo", scaleLinear([0, whole], [0, width])(of.start + of.time / 2), 0);
    render();
  }

  function step(key) {
    const lane = laneOf.get(chosen) ?? all[0], at = lane.codes.indexOf(chosen);
    if (at < 0) return choose(lane.codes[0]);
    if (key === "ArrowLeft" || key === "ArrowRight") return choose(lane.codes[Math.min(lane.codes.length - 1, Math.max(0, at + (key === "ArrowRight" ? 1 : -1)))]);
    const other = all[Math.min(all.length - 1, Math.max(0, all.indexOf(lane) + (key === "ArrowDown" ? 1 : -1)))];
    const when = model.event(chosen).start, near = code => Math.abs(model.event(code).start - when);
    choose(other.codes.reduce((a, b) => near(b) < near(a) ? b : a));
  }

  area.addEventListener("click", event => {
    const over = event.target.closest("[data-event]");
    if (over) choose(+over.dataset.event);
  });
  area.addEventListener("pointermove", event => {
    const over = event.target.closest?.("[data-event]");
    if (!over || event.buttons) return hideTip();
    const code = +over.dataset.event, of = model.event(code), found = measured.get(code);
    showTip(event, model.label(code), `predicted ${format.time(of.time)}${of.isEstimated ? " (an estimate)" : ""}`, found && `measured ${format.time(found.time)}`);
  });
  area.addEventListener("pointerleave", hideTip);
  const reset = () => by("transform", zoomIdentity);
  const keys = { "+": () => by("scaleBy", 1.6), "=": () => by("scaleBy", 1.6), "-": () => by("scaleBy", 1 / 1.6), 0: reset, Escape: reset,
    Home: () => by("translateTo", 0, 0), End: () => by("translateTo", width, 0) };
  area.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isArrow = event.key.startsWith("Arrow");
    if (!isArrow && !(event.key in keys)) return;
    event.preventDefault();
    if (isArrow && event.shiftKey) by("translateBy", (event.key === "ArrowLeft" ? 1 : -1) * width / 6 / transform.k, 0);
    else if (isArrow) step(event.key);
    else keys[event.key]();
  });

  inChart = code => {
    choose(code);
    drawing.holder.scrollIntoView({ block: "center" });
  };
  const button = (label, title, onclick) => html("button", { type: "button", title, "aria-label": title, onclick }, label);
  const move = direction => by("translateBy", direction * width / 4 / transform.k, 0);
  const tools = html("div", { class: "tools" },
    button("+", "Zoom in", keys["+"]), button("−", "Zoom out", keys["-"]), button("◀", "Earlier", () => move(1)),
    button("▶", "Later", () => move(-1)), button("All", "Everything in sight", reset),
    choice("run", runs.map(run => run.name), runs.indexOf(run), index => {
      run = runs[index];
      measured = measuredEvents(run);
      whole = end();
      drawing.redraw();
    }),
    html("span", { class: "faint hint" }, "wheel or + − zoom, drag or shift + arrows move, arrows choose"));
  const classes = [...new Set(plan.groups.name.map(name => data.class_of[name]))].sort();
  const entries = classes.map(index => [colour(index), data.classes[index]]);
  if (model.transferCount) entries.push(["var(--link)", "transfer"]);
  if (plan.transfers.overhead_us.some(overhead => overhead > 0)) entries.push([html("span", { class: "waiting-sample" }), "waiting after the last byte"]);
  entries.push([html("span", { class: "critical-sample" }), "on the critical chain"]);
  if (plan.groups.estimated.length) entries.push([html("span", { class: "estimated-sample" }), "time is an estimate"]);
  const note = !runs.length ? "Measured times are not here: give the results of a run as well (edgecut run plan.json --output results.json)."
    : runs.every(run => !run.has_starts) ? "The results have no start times, so that only predicted ones are drawn; measured durations are in the details."
      : "Of each lane the upper row is predicted, the lower one measured.";
  return [tools, legend(entries), drawing.holder, html("p", { class: "faint" }, note), panel];
}
