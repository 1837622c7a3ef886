// Time as area: classes of operators, in them kinds, in them operators.
import { hierarchy, treemap } from "d3-hierarchy";
import { chart, colour, ink, legend, tips } from "./chart.js";
import { svg } from "./dom.js";
import * as format from "./format.js";

// More operators than this are drawn by kind alone.
const SINGLE = 400;

// Items are `{ name, colour, time, label }`; a click gives the name of the kind.
export function timeByKind(data, items, onkind) {
  const timed = items.filter(item => item.time > 0), total = timed.reduce((sum, item) => sum + item.time, 0);
  const classes = [...new Set(timed.map(item => item.colour))].sort();
  const kinds = of => {
    const found = new Map();
    for (const item of timed.filter(item => item.colour === of)) found.set(item.name, [...(found.get(item.name) ?? []), item]);
    return [...found].map(([name, all]) => ({ name, colour: of, count: all.length, time: all.reduce((sum, item) => sum + item.time, 0),
      children: timed.length <= SINGLE ? all.map(item => ({ ...item, kind: name })) : undefined }));
  };
  const tree = hierarchy({ children: classes.map(of => ({ colour: of, children: kinds(of) })) }).sum(of => of.children ? 0 : of.time).sort((a, b) => b.value - a.value);
  let leaves = [];
  const { holder, drawing } = chart("Time by kind of operator, as area", (drawing, width) => {
    const height = width < 500 ? 300 : 320;
    treemap().size([width, height]).paddingInner(1).paddingOuter(1).round(true)(tree);
    leaves = tree.leaves();
    leaves.forEach(({ data: of, x0, y0, x1, y1 }, at) => {
      const [wide, high] = [x1 - x0, y1 - y0];
      drawing.append(svg("rect", { class: "tile", "data-at": at, x: x0, y: y0, width: Math.max(0, wide), height: Math.max(0, high), fill: colour(of.colour) }));
      if (wide > 40 && high > 15) {
        const fits = text => format.shortened(text, Math.max(1, Math.floor((wide - 8) / 6.6)));
        drawing.append(svg("text", { class: ink(of.colour), x: x0 + 4, y: y0 + 12 }, fits(of.name.replace(/nn\./g, ""))));
        if (high > 30) drawing.append(svg("text", { class: ink(of.colour), x: x0 + 4, y: y0 + 25 }, fits(`${format.time(of.time)} ${format.share(of.time / total)}`)));
      }
    });
    return height;
  });
  tips(drawing, at => {
    const of = leaves[at].data;
    return [of.label ?? of.name, `${format.time(of.time)}, ${format.share(of.time / total)} of ${format.time(total)}`, of.count > 1 && `${of.count} operators`];
  });
  drawing.addEventListener("click", event => {
    const over = event.target.closest("[data-at]");
    if (over) onkind(leaves[over.dataset.at].data.name);
  });
  const sum = of => timed.filter(item => item.colour === of).reduce((sum, item) => sum + item.time, 0);
  return [legend(classes.map(of => [of, sum(of)]).sort((a, b) => b[1] - a[1]).map(([of, time]) => [colour(of), `${data.classes[of]} ${format.share(time / total)}`])), holder];
}
