// The plans of a front: latency and time between results against the memory of the fullest device.
import { scaleLinear } from "d3-scale";
import { axes, binaryTicks, chart, mark, tips } from "./chart.js";
import { grid, html, svg } from "./dom.js";
import * as format from "./format.js";

export function front(data, front) {
  const points = front.latency_us.map((latency, at) => ({
    latency, interval: front.interval_us[at], peak: front.peak_bytes[at], devices: front.devices[at], splits: front.splits[at], at,
  }));
  const plans = data.plans.map(plan => ({ name: plan.name, latency: plan.latency_us, interval: plan.interval_us,
    peak: Math.max(...plan.devices.filter(device => device.groups).map(device => device.parameter_bytes + device.arena_bytes), 0) }));
  // Plans of another model would only stretch the axes.
  const near = plan => points.some(point => Math.max(point.latency / plan.latency, plan.latency / point.latency) < 4);
  const shown = plans.filter(near);
  const words = at => at < points.length
    ? [`row ${+at + 1}`, `latency ${format.time(points[at].latency)}, between results ${format.time(points[at].interval)}`, `${format.bytes(points[at].peak)} on the fullest of ${format.plural(points[at].devices, "device")}`]
    : [shown[at - points.length].name];
  return [
    html("div", { class: "two" }, scatter("latency", "latency", points, shown, words), scatter("interval", "time between results", points, shown, words)),
    grid(["row", "latency", "between results", "throughput", "fullest device", "devices", "operators split"], points.map(point => [
      String(point.at + 1), format.time(point.latency), format.time(point.interval), `${format.count(1e6 / point.interval)}/s`, format.bytes(point.peak), String(point.devices), String(point.splits),
    ]), [0, 1, 2, 3, 4, 5, 6]),
    html("p", { class: "faint" }, `No plan of the front is better than another in latency, time between results and memory at once.${shown.length ? " Diamonds are the plans on this page." : ""}`),
  ];
}

function scatter(key, title, points, plans, words) {
  const all = [...points, ...plans];
  const padded = of => {
    const values = all.map(of), low = Math.min(...values), high = Math.max(...values), pad = (high - low || high || 1) * 0.12;
    return [Math.max(0, low - pad), high + pad];
  };
  const { holder, drawing } = chart(`Front: memory against ${title}`, (drawing, width) => {
    const frame = { left: 70, top: 24, right: width - 12, bottom: 230 };
    const x = scaleLinear(padded(point => point[key]), [frame.left, frame.right]), y = scaleLinear(padded(point => point.peak), [frame.bottom, frame.top]);
    const ticks = binaryTicks(...y.domain());
    axes(drawing, frame, x, Object.assign(y.copy(), { ticks: () => ticks }), [title, "memory of the fullest device"], [format.time, format.bytes]);
    all.forEach((point, at) => drawing.append(svg("path", { "data-at": at, class: "dot", d: mark(at < points.length ? 0 : 3, at < points.length ? 70 : 130),
      transform: `translate(${x(point[key])} ${y(point.peak)})`, fill: at < points.length ? "var(--c0)" : "var(--c1)" })));
    // Numbers of rows, where they do not overprint one another.
    const taken = [];
    for (const point of points) {
      const [left, top] = [x(point[key]) + 7, y(point.peak) - 5];
      if (taken.some(([otherLeft, otherTop]) => Math.abs(otherLeft - left) < 16 && Math.abs(otherTop - top) < 12)) continue;
      taken.push([left, top]);
      drawing.append(svg("text", { x: left, y: top }, String(point.at + 1)));
    }
    return 272;
  });
  tips(drawing, words);
  return html("figure", {}, holder);
}
