// Memory of each device over the time of one input against its limit; without the model, what the plan says of the peaks.
import { scaleLinear } from "d3-scale";
import { area, curveStepAfter } from "d3-shape";
import { bisector } from "d3-array";
import { axes, binaryTicks, chart, hideTip, legend, showTip } from "./chart.js";
import { grid, html, svg } from "./dom.js";
import * as format from "./format.js";

// A limit so far above the peak would flatten the curve: it is said in words.
const FAR = 3;

export function memory(data, plan) {
  const run = data.runs.find(run => data.plans[run.plan] === plan);
  const measured = name => run?.memory.find(({ device }) => device === name);
  const used = plan.devices.map((device, index) => ({ ...device, index })).filter(device => device.groups);
  const curves = plan.memory?.map(curve => one(data, plan, curve, measured(plan.devices[curve.device].name)));
  return [
    curves ?? html("p", { class: "notice" }, `Memory over time is not here: ${plan.without_model}. The plan's own figures follow.`),
    !curves && used.map(device => bar(device, measured(device.name))),
    grid(["device", "parameters", "peak load", "arena", "largest workspace", "limit", ...(run ? ["measured peak", "while loading"] : [])], used.map(device => [
      device.name, ...[device.parameter_bytes, device.load_bytes, device.arena_bytes, device.workspace_bytes].map(format.bytes),
      device.limit_bytes === null ? "none" : format.bytes(device.limit_bytes),
      ...(run ? [format.bytes(measured(device.name)?.peak_bytes), format.bytes(measured(device.name)?.loading_bytes)] : []),
    ]), [1, 2, 3, 4, 5, 6, 7]),
    html("p", { class: "faint" }, "Load: parameters, live tensors and workspace at one instant. Arena: what is reserved for tensors and workspace, gaps included; the limit holds for parameters and arena."),
  ];
}

// The curve of one device.
function one(data, plan, curve, measured) {
  const device = plan.devices[curve.device], limit = device.limit_bytes;
  const near = limit !== null && limit <= FAR * curve.peak_bytes;
  // Next to many parameters, tensors would be a line: then the axis begins at the parameters.
  const base = curve.peak_bytes - device.parameter_bytes < curve.peak_bytes / 4 ? device.parameter_bytes : 0;
  const highest = Math.max(curve.peak_bytes, near ? limit : 0, measured?.peak_bytes ?? 0), most = highest + (highest - base) * 0.06 || 1;
  const ends = [...curve.time_us, plan.latency_us], values = [...curve.bytes, curve.bytes[curve.bytes.length - 1] ?? 0];
  const { holder, drawing } = chart(`Memory of ${device.name} over time`, (drawing, width) => {
    const frame = { left: 66, top: 22, right: width - 26, bottom: 146 };
    const x = scaleLinear([0, Math.max(plan.latency_us, 1e-3)], [frame.left, frame.right]), y = scaleLinear([base, most], [frame.bottom, frame.top]);
    const whole = binaryTicks(base, most);
    // Where parameters are so large that all labels would be the same, they say what comes on top.
    const isSame = base > 0 && new Set(whole.map(format.bytes)).size < whole.length;
    const ticks = isSame ? binaryTicks(0, most - base).map(above => base + above) : whole;
    const label = isSame ? bytes => bytes > base ? `+ ${format.bytes(bytes - base)}` : format.bytes(base) : format.bytes;
    axes(drawing, frame, x, Object.assign(y.copy(), { ticks: () => ticks }), ["", ""], [format.time, label]);
    const shape = area().curve(curveStepAfter).x(at => x(ends[at])).y0(y(device.parameter_bytes)).y1(at => y(values[at]));
    const line = (bytes, name) => svg("line", { class: name, x1: frame.left, x2: frame.right, y1: y(bytes), y2: y(bytes) });
    drawing.append(
      svg("rect", { class: "parameters", x: frame.left, y: y(device.parameter_bytes), width: frame.right - frame.left, height: frame.bottom - y(device.parameter_bytes) }),
      svg("path", { class: "live", d: shape(ends.keys()) }),
      near ? line(limit, "limit") : "", measured ? line(measured.peak_bytes, "measured-peak") : "",
      svg("circle", { class: "peak", cx: x(curve.peak_at_us), cy: y(curve.peak_bytes), r: 4 }));
    drawing.onpointermove = event => {
      const time = x.invert(event.clientX - drawing.getBoundingClientRect().left);
      if (time < 0 || time > plan.latency_us) return hideTip();
      const at = Math.max(0, bisector(time => time).right(ends, time) - 1);
      showTip(event, `${device.name} at ${format.time(time)}`, `${format.bytes(values[at])}, ${format.bytes(device.parameter_bytes)} of it parameters`);
    };
    drawing.onpointerleave = hideTip;
    return 172;
  });
  drawing.setAttribute("class", "chart memory");
  const group = curve.peak_group === null ? "" : ` while ${data.words[plan.groups.name[curve.peak_group]]} runs`;
  const limited = limit === null ? "no limit" : near ? `limit ${format.bytes(limit)}` : `limit ${format.bytes(limit)}, far above: the peak takes ${format.share(curve.peak_bytes / limit)} of it`;
  return html("figure", {},
    html("figcaption", {}, html("strong", {}, device.name), `: peak ${format.bytes(curve.peak_bytes)} at ${format.time(curve.peak_at_us)}${group}; ${limited}${base ? `. The axis begins at the parameters, ${format.bytes(base)}` : ""}`),
    legend([!base && ["var(--c6)", "parameters"], ["var(--c5)", "tensors and workspace"], near && [line("limit"), "limit"], measured && [line("measured-peak"), "measured peak"]].filter(Boolean)),
    holder,
    curve.largest.length > 0 && html("details", {}, html("summary", {}, "What is live at the peak"),
      grid(["tensor or workspace", "bytes"], curve.largest.map(([name, bytes]) => [name, format.bytes(bytes)]), [1])));
}

const line = name => svg("svg", { width: 18, height: 10, "aria-hidden": "true" }, svg("line", { class: name, x1: 0, x2: 18, y1: 5, y2: 5 }));

// Parameters and arena of a device against its limit.
function bar(device, measured) {
  const total = device.parameter_bytes + device.arena_bytes, most = Math.max(total, device.limit_bytes ?? 0, measured?.peak_bytes ?? 0, 1);
  const { holder } = chart(`Memory of ${device.name}`, (drawing, width) => {
    const x = scaleLinear([0, most], [0, width - 4]);
    drawing.append(
      svg("rect", { class: "track", x: 0, y: 2, width: width - 2, height: 16 }),
      svg("rect", { fill: "var(--c6)", x: 0, y: 2, width: x(device.parameter_bytes), height: 16 }),
      svg("rect", { fill: "var(--c5)", x: x(device.parameter_bytes), y: 2, width: Math.max(0.5, x(device.arena_bytes)), height: 16 }));
    if (device.limit_bytes !== null) drawing.append(svg("line", { class: "limit", x1: x(device.limit_bytes), x2: x(device.limit_bytes), y1: 0, y2: 20 }));
    if (measured) drawing.append(svg("line", { class: "measured-peak", x1: x(measured.peak_bytes), x2: x(measured.peak_bytes), y1: 0, y2: 20 }));
    return 22;
  });
  return html("figure", {}, html("figcaption", {}, html("strong", {}, device.name), `: parameters and arena ${format.bytes(total)} of ${device.limit_bytes === null ? "no limit" : format.bytes(device.limit_bytes)}`), holder);
}
