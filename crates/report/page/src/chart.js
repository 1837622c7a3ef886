// What all charts share: an SVG that is drawn again when its width changes, axes, a legend, a tooltip.
import { axisBottom, axisLeft } from "d3-axis";
import { scaleLinear } from "d3-scale";
import { select } from "d3-selection";
import { symbol, symbolCircle, symbolDiamond, symbolSquare, symbolTriangle, symbolCross, symbolStar, symbolWye } from "d3-shape";
import { html, svg } from "./dom.js";
import { round } from "./format.js";

export const SYMBOLS = [symbolCircle, symbolSquare, symbolTriangle, symbolDiamond, symbolCross, symbolStar, symbolWye];
export const mark = (index, size) => symbol(SYMBOLS[index % SYMBOLS.length], size)();
export const colour = index => `var(--c${index % 8})`;
// Text on a colour: black, but white on the dark blue of the light theme.
export const ink = index => index === 0 ? "bar-name on-blue" : "bar-name";

// `draw(drawing, width)` fills an empty SVG and returns its height. `label` is what a screen reader says.
export function chart(label, draw) {
  const drawing = svg("svg", { role: "img", "aria-label": label, class: "chart" });
  const holder = html("div", { class: "holder" }, drawing);
  let width = 0;
  const redraw = () => {
    if (width < 40) return;
    drawing.replaceChildren();
    const height = draw(drawing, width);
    drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
    drawing.setAttribute("width", width);
    drawing.setAttribute("height", height);
  };
  new ResizeObserver(([entry]) => {
    const now = Math.floor(entry.contentRect.width);
    if (now !== width) {
      width = now;
      redraw();
    }
  }).observe(holder);
  return { holder, drawing, redraw };
}

// Axes around a frame `{ left, top, right, bottom }`, with grid lines and titles. Ticks are as many as fit.
export function axes(drawing, frame, x, y, titles, formats) {
  const columns = Math.max(2, Math.floor((frame.right - frame.left) / 90));
  const rows = Math.max(2, Math.floor((frame.bottom - frame.top) / 45));
  const few = (scale, ticks) => scale.base ? logTicks(scale, ticks) : scale.ticks(ticks);
  const below = axisBottom(x).tickValues(few(x, columns)).tickFormat(round(formats[0])).tickSize(-(frame.bottom - frame.top)).tickPadding(6);
  const beside = axisLeft(y).tickValues(few(y, rows)).tickFormat(round(formats[1])).tickSize(-(frame.right - frame.left)).tickPadding(6);
  select(drawing).append("g").attr("class", "axis").attr("transform", `translate(0 ${frame.bottom})`).call(below);
  select(drawing).append("g").attr("class", "axis").attr("transform", `translate(${frame.left} 0)`).call(beside);
  drawing.append(
    svg("text", { class: "title", x: frame.right, y: frame.bottom + 34, "text-anchor": "end" }, titles[0]),
    svg("text", { class: "title", x: 4, y: frame.top - 8 }, titles[1]));
}

// Powers of ten; within few of them also 2 and 5.
function logTicks(scale, most) {
  const [low, high] = scale.domain().map(Math.log10);
  const between = high - low < 2.2 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil((high - low) * between.length / most));
  const found = [];
  for (let power = Math.floor(low); power <= Math.ceil(high); power++) {
    if (between.length === 1 && power % every) continue;
    for (const factor of between) found.push(factor * 10 ** power);
  }
  return found.filter(tick => tick >= scale.domain()[0] * 0.999 && tick <= scale.domain()[1] * 1.001);
}

// Round numbers in binary units.
export function binaryTicks(base, most) {
  const unit = 2 ** (10 * Math.max(0, Math.floor(Math.log2(most / 2) / 10)));
  return scaleLinear([base / unit, most / unit], [0, 1]).ticks(3).map(tick => tick * unit);
}

// Entries are `[colour, text]` or `[colour, text, symbol]`, or an element with its text.
export const legend = entries => html("ul", { class: "legend" }, entries.map(([fill, text, shape]) => html("li", {},
  fill instanceof Element ? fill : svg("svg", { width: 14, height: 14, "aria-hidden": "true" }, shape === undefined
    ? svg("rect", { x: 1, y: 1, width: 12, height: 12, fill })
    : svg("path", { d: mark(shape, 70), transform: "translate(7 7)", fill })),
  text)));

let tip;
export function showTip(event, ...lines) {
  tip ??= document.body.appendChild(html("div", { class: "tip", role: "status" }));
  tip.replaceChildren(...lines.filter(Boolean).map(line => html("div", {}, line)));
  tip.style.display = "block";
  const { clientX: x, clientY: y } = event, { offsetWidth: width, offsetHeight: height } = tip;
  tip.style.left = `${Math.max(4, Math.min(x + 12, innerWidth - width - 8))}px`;
  tip.style.top = `${y + height + 24 > innerHeight ? Math.max(4, y - height - 10) : y + 14}px`;
}
export const hideTip = () => { if (tip) tip.style.display = "none"; };

// Shows `lines(element)` over the elements of `drawing` with the attribute `data-at`.
export function tips(drawing, lines) {
  drawing.addEventListener("pointermove", event => {
    const over = event.target.closest?.("[data-at]");
    if (over) showTip(event, ...lines(over.dataset.at)); else hideTip();
  });
  drawing.addEventListener("pointerleave", hideTip);
}
