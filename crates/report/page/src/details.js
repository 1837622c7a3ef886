// What one group or transfer of a plan is, and why it lies where it lies.
import { grid, html } from "./dom.js";
import * as format from "./format.js";
import { MODES, isTransfer, profiledTimes } from "./plans.js";

export function details(data, model, measured, code, choose) {
  const of = model.event(code), found = measured.get(code);
  const link = code => html("button", { type: "button", class: "link", onclick: () => choose(code) }, model.label(code));
  const facts = isTransfer(code) ? transferFacts(model, of) : groupFacts(model, of);
  const rows = [...facts,
    ["predicted", `${format.time(of.start)} to ${format.time(of.start + of.time)}: ${format.time(of.time)}`],
    found && ["measured", measuredText(of, found)],
    ["begins", of.after === null
      ? (of.start === 0 ? "with the input" : "after a pause that the plan does not explain")
      : ["when ", link(of.after), isTransfer(of.after) ? " has arrived" : " ends"]],
    of.reads?.length && ["reads", of.reads.map((code, at) => [at ? ", " : "", link(code)])],
    ["critical", of.isCritical
      ? "yes: it is on a chain without gaps from the input to the result"
      : "no: it could end later without delaying the result by as much"],
  ];
  return html("div", { class: "details-body" },
    html("h4", {}, model.label(code)),
    html("dl", {}, rows.filter(Boolean).map(([term, text]) => [html("dt", {}, term), html("dd", {}, text)])),
    !isTransfer(code) && placement(data, model, of));
}

function measuredText(of, { time, start }) {
  // What a transfer waits for after its last byte is no part of what is measured of it.
  const predicted = of.time - (of.overhead ?? 0), off = predicted > 0 ? ` (${format.signedShare(time / predicted - 1)})` : "";
  return `${format.time(time)}${off}${start === null ? "" : `, from ${format.time(start)} on`}`;
}

const groupFacts = ({ devices }, of) => [
  ["device", devices[of.device].name],
  ["time from", of.isEstimated ? "an estimate: this very operator was not measured on the device" : "a measurement on the device"],
  of.layer && ["layer", of.layer],
  ["workspace", format.bytes(of.workspace)],
];

const transferFacts = ({ devices }, of) => [
  ["from", devices[of.from].name], ["to", devices[of.to].name],
  ["size", format.bytes(of.bytes) + (of.sent === null ? "" : `, sent as ${format.bytes(of.sent)}`)],
  of.time > 0 && ["rate", format.byteRate((of.sent ?? of.bytes) / of.time)],
  of.overhead > 0 && ["of that, waiting", `${format.time(of.overhead)} after the last byte`],
];

// The operator's time on every device, and what was decided beforehand.
function placement(data, model, of) {
  const times = profiledTimes(data, model.plan, of), isHere = ({ planned }) => planned === of.device;
  const timed = times.filter(({ time }) => time !== null);
  // Times of operators alone and in context are different things: only those of one mode are compared.
  const mine = timed.find(other => isHere(other) && other.mode === "isolated") ?? timed.find(isHere);
  const fastest = mode => timed.filter(other => other.mode === mode).reduce((a, b) => !a || b.time < a.time ? b : a, null);
  const reasons = [];
  for (const rule of of.rules) reasons.push(`The rule “${rule}” names it.`);
  if (of.part) reasons.push(`It is part ${of.part} of an operator that is split; times below are of the whole operator.`);
  if (mine) {
    // Of the plan's devices, as they compute there: others could not be chosen.
    const rivals = timed.filter(other => other.mode === mine.mode && other.planned !== null);
    const best = rivals.reduce((a, b) => b.time < a.time ? b : a, mine);
    reasons.push(isHere(best)
      ? `No device of the plan is faster at it${rivals.some(other => !isHere(other)) ? "" : " (only this one was profiled)"}.`
      : `${best.device} is faster at it ${MODES[mine.mode]} (${format.time(best.time)} against ${format.time(mine.time)}); what it reads and who reads it, the device's other work and its memory decide against it.`);
  }
  const producers = of.reads?.filter(code => !isTransfer(code)).length, arrivals = of.reads?.filter(isTransfer).length;
  if (of.reads?.length) {
    reasons.push(arrivals ? `It waits for ${format.plural(arrivals, "transfer")}${producers ? ` and reads ${format.plural(producers, "result")} of this device` : ""}.`
      : "All that it reads is made on this device: nothing is sent for it.");
  }
  if (of.reads === undefined || of.reads === null) reasons.push("What it reads is known only with the model.");
  const left = device => device?.limit_bytes == null ? "–" : format.bytes(Math.max(0, device.limit_bytes - device.parameter_bytes - device.arena_bytes));
  const row = other => [
    isHere(other) ? html("strong", {}, `${other.device} (here)`) : other.device, MODES[other.mode],
    other.time !== null ? format.time(other.time) : other.isUnable ? "cannot compute it" : "not profiled",
    other.time === null || !fastest(other.mode)?.time ? "–" : other.time === fastest(other.mode).time ? "the fastest" : format.signedShare(other.time / fastest(other.mode).time - 1),
    left(model.plan.devices[other.planned])];
  return [html("p", {}, reasons.join(" ")),
    times.length > 0 && grid(["device", "measured", "as profiled", "against the fastest", "memory left below the limit"], times.map(row), [2, 3, 4]),
    times.length === 0 && html("p", { class: "faint" }, "No profile of this model among the subjects has this operator: its time on other devices is not known.")];
}
