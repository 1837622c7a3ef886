// FLOPs per byte against the rate that each operator reached, under the highest rates that any reached on the device.
import { scaleLog } from "d3-scale";
import { axes, chart, colour, legend, mark, tips } from "./chart.js";
import { choice, html, svg } from "./dom.js";
import * as format from "./format.js";
import { tableName } from "./operators.js";

const COLOURS = [0, 1, 2, 3, 4, 5, 6];

export function roofline(data) {
  const place = html("div");
  const show = index => place.replaceChildren(...ofTable(data, data.tables[index]));
  show(0);
  return [choice("show", data.tables.map(table => tableName(data, table)), 0, show), place];
}

function ofTable(data, table) {
  const points = [], partial = new Set(table.partial);
  table.devices.forEach((device, index) => table.id.forEach((id, at) => {
    const time = device.time_us[at], flops = table.flops[at];
    if (time !== null && time >= data.least_time_us && flops > 0 && table.bytes[at] > 0 && !partial.has(at)) {
      points.push({ index, id, name: data.words[table.name[at]], x: flops / table.bytes[at], y: flops / time, time });
    }
  }));
  if (!points.length) return [html("p", { class: "faint" }, `No operator has FLOPs and a time of ${format.time(data.least_time_us)} or more.`)];
  const range = (key, low, high) => [Math.min(...points.map(point => point[key])) * low, Math.max(...points.map(point => point[key])) * high];
  const roofs = table.devices.map((device, index) => ({ ...device.roof, index, name: device.name })).filter(roof => roof.flops_per_us);
  const { holder, drawing } = chart("Roofline: rate against FLOPs per byte", (drawing, width) => {
    const frame = { left: 86, top: 26, right: width - 10, bottom: width < 500 ? 300 : 380 };
    const x = scaleLog(range("x", 0.6, 1.8), [frame.left, frame.right]), y = scaleLog(range("y", 0.6, 2), [frame.bottom, frame.top]);
    axes(drawing, frame, x, y, ["FLOPs per byte", "rate reached"], [format.count, format.flopRate]);
    const [low, high] = x.domain(), inside = value => Math.min(Math.max(value, y.domain()[0]), y.domain()[1]);
    for (const roof of roofs) {
      // Below the ridge the bandwidth binds, above it the arithmetic.
      const ridge = roof.flops_per_us / roof.bytes_per_us, start = Math.max(low, y.domain()[0] / roof.bytes_per_us);
      const stops = [start, Math.min(Math.max(ridge, start), high), high];
      const at = intensity => `${x(intensity)} ${y(inside(Math.min(roof.flops_per_us, intensity * roof.bytes_per_us)))}`;
      drawing.append(svg("path", { class: "roof", d: `M${stops.map(at).join("L")}`, stroke: colour(COLOURS[roof.index % 7]) }));
    }
    points.forEach((point, at) => drawing.append(svg("path", { "data-at": at, class: "dot", d: mark(point.index, points.length > 600 ? 18 : 34),
      transform: `translate(${x(point.x).toFixed(1)} ${y(point.y).toFixed(1)})`, fill: colour(COLOURS[point.index % 7]) })));
    return frame.bottom + 42;
  });
  tips(drawing, at => {
    const point = points[at];
    return [`#${point.id} ${point.name}`, `${table.devices[point.index].name}: ${format.time(point.time)}`, `${format.count(point.x)} FLOPs per byte, ${format.flopRate(point.y)}`];
  });
  const reached = roof => `${roof.name}: ${format.flopRate(roof.flops_per_us)} reached by #${table.id[roof.flops_at]} ${format.shortened(data.words[table.name[roof.flops_at]], 40)}, ${format.byteRate(roof.bytes_per_us)} by #${table.id[roof.bytes_at]} ${format.shortened(data.words[table.name[roof.bytes_at]], 40)}`;
  const missing = table.id.length * table.devices.length - points.length;
  return [holder, legend(roofs.map(roof => [colour(COLOURS[roof.index % 7]), reached(roof), roof.index])),
    html("p", { class: "faint" }, `The roof of each device is the highest rate that an operator of this profile reached, not a theoretical one. Bytes are operands, parameters and results, each once.${missing ? ` Not drawn: ${missing} times of operators without FLOPs, that read a part of an operand only (take, slices), of less than ${format.time(data.least_time_us)}, or not measured.` : ""}`)];
}
