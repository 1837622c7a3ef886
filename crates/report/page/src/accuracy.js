// Predicted against measured times of one run, each operator and transfer a point, and the error.
import { scaleLog } from "d3-scale";
import { axes, chart, colour, legend, mark, tips } from "./chart.js";
import { breakdown } from "./breakdown.js";
import { grid, html, svg } from "./dom.js";
import * as format from "./format.js";

const LISTED = 8;

export function accuracy(run, words) {
  const points = [];
  const add = (columns, shape, what) => columns.predicted_us.forEach((predicted, at) => {
    const measured = columns.measured_us[at];
    if (predicted > 0 && measured > 0) points.push({ predicted, measured, shape, what, name: words[columns.name[at]], place: words[columns.place[at]] });
  });
  add(run.groups, 0, "operator");
  add(run.transfers, 2, "transfer");
  const { latency } = run;
  const summary = [
    ["latency", format.time(run.predicted_latency_us), format.time(latency.median_us), run.interval_us === null ? format.signedShare(latency.median_us / run.predicted_latency_us - 1) : "with queueing", `median of ${format.plural(latency.n, "run")}, ± ${format.time(latency.mad_us)}, min ${format.time(latency.min_us)}, p95 ${format.time(latency.p95_us)}`],
    run.interval_us !== null && ["between results", format.time(run.predicted_interval_us), format.time(run.interval_us), format.signedShare(run.interval_us / run.predicted_interval_us - 1), ""],
  ].filter(Boolean);
  const errors = [["operators", run.groups], ["transfers", run.transfers]].filter(([, columns]) => columns.error.n).map(([name, { error, ...columns }]) => [
    `${error.n} ${name}`, format.share(error.median), format.share(error.worst),
    `${words[columns.name[error.worst_at]]} (${words[columns.place[error.worst_at]]}): ${format.time(columns.predicted_us[error.worst_at])} predicted, ${format.time(columns.measured_us[error.worst_at])} measured`,
    format.signedShare(error.ratio - 1),
  ]);
  return [
    grid(["", "predicted", "measured", "off", ""], summary, [1, 2, 3]),
    grid(["", "median error", "worst", "which", "all together"], errors, [1, 2, 4]),
    points.length > 0 && scatter(points),
    run.breakdown && breakdown(run.breakdown, words),
    points.length > 0 && html("details", {}, html("summary", {}, "What costs most of the difference"),
      grid(["", "where", "predicted", "measured", "difference"], [...points].sort((a, b) => Math.abs(b.measured - b.predicted) - Math.abs(a.measured - a.predicted)).slice(0, LISTED).map(point => [
        point.name, point.place, format.time(point.predicted), format.time(point.measured), `${point.measured >= point.predicted ? "+" : "−"}${format.time(Math.abs(point.measured - point.predicted))}`]), [2, 3, 4])),
    html("p", { class: "faint" }, `Error: |measured − predicted| / predicted; measured times are medians over the runs.${run.clock_uncertainty_us > 0 ? ` Clocks of different servers agree to ± ${format.time(run.clock_uncertainty_us)}.` : ""}${run.outputs ? ` Outputs against one device: ${run.outputs}.` : ""}`),
  ];
}

function scatter(points) {
  const all = points.flatMap(point => [point.predicted, point.measured]), domain = [Math.min(...all) * 0.7, Math.max(...all) * 1.4];
  const { holder, drawing } = chart("Measured against predicted times", (drawing, width) => {
    const size = Math.min(width, 560), frame = { left: 66, top: 24, right: size - 10, bottom: Math.max(220, size - 130) };
    const x = scaleLog(domain, [frame.left, frame.right]), y = scaleLog(domain, [frame.bottom, frame.top]);
    axes(drawing, frame, x, y, ["predicted", "measured"], [format.time, format.time]);
    const [low, high] = domain, line = (factor, name) => {
      const [from, to] = [Math.max(low, low / factor), Math.min(high, high / factor)];
      return svg("line", { class: name, x1: x(from), y1: y(from * factor), x2: x(to), y2: y(to * factor) });
    };
    drawing.append(line(1, "same"), line(1.25, "quarter"), line(1 / 1.25, "quarter"));
    points.forEach((point, at) => drawing.append(svg("path", { "data-at": at, class: "dot", d: mark(point.shape, points.length > 600 ? 18 : 38),
      transform: `translate(${x(point.predicted).toFixed(1)} ${y(point.measured).toFixed(1)})`, fill: colour(point.shape ? 1 : 0) })));
    return frame.bottom + 42;
  });
  tips(drawing, at => {
    const point = points[at];
    return [point.name, point.place, `predicted ${format.time(point.predicted)}, measured ${format.time(point.measured)} (${format.signedShare(point.measured / point.predicted - 1)})`];
  });
  return html("div", {}, legend([[colour(0), "operator", 0], [colour(1), "transfer", 2], [line(), "as predicted; dashed: 25 % more or less"]]), holder);
}

const line = () => svg("svg", { width: 18, height: 10, "aria-hidden": "true" }, svg("line", { class: "same", x1: 0, x2: 18, y1: 5, y2: 5 }));
