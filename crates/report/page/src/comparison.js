// Two profiles, plans or runs row by row, with the significance of what differs.
import { html } from "./dom.js";
import * as format from "./format.js";
import { sortedTable } from "./table.js";

const amounts = { us: format.time, bytes: format.bytes, j: format.energy };

export function comparison(of, words) {
  const rows = of.kind.map((kind, at) => ({
    kind, id: of.id[at], name: words[of.operator[at]], part: words[of.part[at]], onA: words[of.on_a[at]], onB: words[of.on_b[at]],
    a: of.value_a[at], b: of.value_b[at], ratio: of.value_a[at] > 0 ? of.value_b[at] / of.value_a[at] : null,
    difference: of.difference[at], isSignificant: of.is_significant[at], amount: amounts[of.unit[at]],
  }));
  const tested = rows.filter(row => row.kind === "group" && row.difference !== null);
  const significant = tested.filter(row => row.isSignificant);
  const columns = [
    { name: "", value: row => row.kind },
    { name: "#", value: row => row.id, isNumber: true },
    { name: "name", value: row => row.part ? `${row.name}[${row.part}]` : row.name, isLong: true },
    { name: "on A", value: row => row.onA },
    { name: "on B", value: row => row.onB === row.onA ? "" : row.onB },
    { name: "A", value: row => row.a, text: row => row.amount(row.a), isNumber: true },
    { name: "B", value: row => row.b, text: row => row.amount(row.b), isNumber: true },
    { name: "B / A", value: row => row.ratio, text: row => row.ratio === null ? "–" : row.ratio.toFixed(3), isNumber: true },
    { name: "difference", title: "in standard errors, from the scatter of both sides", value: row => row.difference === null ? null : Math.abs(row.difference),
      text: row => row.difference === null ? "–" : `${row.difference < 0 ? "−" : "+"}${Math.abs(row.difference).toFixed(1)}${row.isSignificant ? "" : ", may be chance"}`, isNumber: true },
  ];
  const table = sortedTable(columns, rows, row => `${row.kind} ${row.name} ${row.part} ${row.onA} ${row.onB} #${row.id ?? ""}`, columns.length - 1);
  return [
    html("p", {}, html("b", {}, "A "), of.a, html("br"), html("b", {}, "B "), of.b),
    tested.length > 0 && html("p", {}, `${significant.length} of ${format.plural(tested.length, "operator")} differ significantly. What changed between the two measurements as a whole, such as the clock of a processor, is not in them.`),
    table.element,
    of.notes.length > 0 && html("ul", {}, of.notes.map(note => html("li", {}, note))),
  ];
}
