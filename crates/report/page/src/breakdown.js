// Where the latency of a run goes: for each device a bar of its activities, which add up to the latency.
import { chart, colour, ink, legend, tips } from "./chart.js";
import { html, svg } from "./dom.js";
import * as format from "./format.js";

const ACTIVITIES = {
  computing: "computing",
  handling: "handling operands and results",
  transfer: "transfer from another device",
  waiting: "waiting for another device",
  gap: "gap before a stage",
  done: "done, others go on",
};
const [ROW, BAR] = [40, 20];

export function breakdown(columns, words) {
  const names = Object.keys(ACTIVITIES), parts = columns.device.map((device, at) => ({
    device: words[device], activity: columns.activity[at], peer: columns.peer[at] === null ? "" : words[columns.peer[at]], time: columns.time_us[at] }));
  const devices = [...new Set(parts.map(part => part.device))];
  const { holder, drawing } = chart("Where the latency goes on each device", (drawing, width) => {
    const scale = (width - 2) / columns.latency_us;
    devices.forEach((device, row) => {
      const top = row * ROW + 14;
      drawing.append(svg("text", { class: "title", x: 1, y: top - 4 }, device));
      let left = 1;
      parts.forEach((part, at) => {
        if (part.device !== device) return;
        const wide = part.time * scale, fill = names.indexOf(part.activity);
        drawing.append(svg("rect", { class: "bar", "data-at": at, x: left, y: top, width: Math.max(0.5, wide - 0.5), height: BAR, fill: colour(fill) }));
        if (wide > 44) drawing.append(svg("text", { class: ink(fill), x: left + 4, y: top + 14 }, format.share(part.time / columns.latency_us)));
        left += wide;
      });
    });
    return devices.length * ROW + 4;
  });
  tips(drawing, at => {
    const { device, activity, peer, time } = parts[at];
    return [`${device}: ${ACTIVITIES[activity]}`, peer, `${format.time(time)}, ${format.share(time / columns.latency_us)} of ${format.time(columns.latency_us)}`];
  });
  const used = names.filter(name => parts.some(part => part.activity === name));
  return html("div", { class: "breakdown" }, html("h3", {}, "Where the latency goes"), legend(used.map(name => [colour(names.indexOf(name)), ACTIVITIES[name]])), holder,
    html("p", { class: "faint" }, `Of a latency of ${format.time(columns.latency_us)}, the mean of ${format.plural(columns.n, "run")} between the quartiles.`));
}
