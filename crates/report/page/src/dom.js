// Elements with attributes and children. Children that are strings become text, so no name of an operator is ever markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter(child => child !== undefined && child !== null && child !== false));
  return element;
}

export const html = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// A table with a heading row; cells are strings or elements, `numeric` says which columns are aligned to the right.
export function grid(headings, rows, numeric = []) {
  const cell = (tag, content, column) => html(tag, { class: numeric.includes(column) && "number" }, content);
  return html("div", { class: "scroll" }, html("table", {},
    html("thead", {}, html("tr", {}, headings.map((heading, column) => cell("th", heading, column)))),
    html("tbody", {}, rows.map(row => html("tr", {}, row.map((content, column) => cell("td", content, column)))))));
}

// A name that may be broken after each `+`, `_` and `.`.
export const broken = name => name.split(/(?<=[+_.])/).flatMap((part, at) => at ? [html("wbr"), part] : [part]);

// A labelled list to choose from; nothing where there is no choice.
export function choice(label, options, chosen, onchange) {
  if (options.length < 2) return null;
  return html("label", { class: "choice" }, `${label} `, html("select", { onchange: event => onchange(+event.target.value) },
    options.map((option, index) => html("option", { value: index, selected: index === chosen }, option))));
}
