// A table that sorts by its headings and filters by text. Long ones show their first rows until asked for all.
import { html } from "./dom.js";
import * as format from "./format.js";

const FIRST = 25;

// Columns are `{ name, value(row), text(row), isNumber, title }`; `words(row)` is what the filter looks through.
export function sortedTable(columns, rows, words, sortedBy) {
  let by = sortedBy, down = true, filter = "", isWhole = false;
  const body = html("tbody"), status = html("span", { class: "faint", role: "status" });
  const more = html("button", { type: "button", onclick: () => { isWhole = true; show(); } });
  const input = html("input", { type: "search", placeholder: "name, layer, shape, class or #number", "aria-label": "Filter operators", oninput: () => {
    filter = input.value.trim().toLowerCase();
    isWhole = false;
    show();
  } });
  const headings = columns.map((column, index) => html("th", { class: column.isNumber && "number", title: column.title },
    html("button", { type: "button", onclick: () => {
      down = by === index ? !down : Boolean(column.isNumber);
      by = index;
      show();
    } }, column.name)));
  const text = rows.map(row => words(row).toLowerCase());

  function show() {
    const found = rows.map((row, at) => ({ row, at })).filter(({ at }) => filter.split(/\s+/).every(word => text[at].includes(word)));
    const value = columns[by].value;
    found.sort((a, b) => {
      const [x, y] = [value(a.row), value(b.row)];
      if (x === null || y === null) return (x === null) - (y === null); // What is not known comes last either way.
      const order = typeof x === "string" ? x.localeCompare(y, undefined, { numeric: true }) : x - y;
      return (down ? -order : order) || a.at - b.at;
    });
    const shown = isWhole ? found : found.slice(0, FIRST);
    body.replaceChildren(...shown.map(({ row }) => html("tr", {},
      columns.map(column => html("td", { class: column.isNumber ? "number" : column.isLong ? "long" : "" }, column.text ? column.text(row) : String(column.value(row) ?? "–"))))));
    headings.forEach((heading, index) => heading.setAttribute("aria-sort", index !== by ? "none" : down ? "descending" : "ascending"));
    status.textContent = found.length === rows.length ? format.plural(rows.length, "row") : `${found.length} of ${format.plural(rows.length, "row")}`;
    more.textContent = `Show all ${found.length}`;
    more.hidden = shown.length === found.length;
  }
  show();
  const element = html("div", { class: "sorted" }, html("div", { class: "tools" }, input, status),
    html("div", { class: "scroll" }, html("table", {}, html("thead", {}, html("tr", {}, headings)), body)), more);
  return { element, filter: words => { input.value = words; input.dispatchEvent(new Event("input")); } };
}
