// Zoom and pan of the arena map. Blocks and lines lie in an inner drawing whose viewBox moves; ticks, names and the
// lines' labels are written anew around it, so that text is never stretched.
for (const inner of document.querySelectorAll("svg.inner")) {
  const svg = inner.parentElement, tools = document.querySelector(".tools");
  const [left, top, width, height] = ["x", "y", "width", "height"].map(name => +inner.getAttribute(name));
  const steps = +inner.dataset.steps, bytes = +inner.dataset.bytes, all = "all" in inner.dataset;
  const axes = svg.querySelector(".axes"), names = svg.querySelector(".names"), tags = svg.querySelectorAll(".tag");
  const blocks = [...inner.querySelectorAll("rect")].map(rect => ({
    ...Object.fromEntries(["x", "y", "width", "height"].map(name => [name, +rect.getAttribute(name)])),
    name: rect.firstChild.textContent.split("\n")[0].replace(/ \([a-z-]+\)$/, ""),
  }));
  // What is seen, in the units of the whole drawing.
  const view = { x: left, y: top, w: width, h: height };
  const px = x => left + (x - view.x) / view.w * width, py = y => top + (y - view.y) / view.h * height;

  const add = (parent, kind, attributes, text = "") => {
    const made = parent.appendChild(document.createElementNS(svg.namespaceURI, kind));
    for (const name in attributes) made.setAttribute(name, attributes[name]);
    made.textContent = text;
  };
  // Round numbers between two others.
  const ticks = (from, to, count, least) => {
    const power = 10 ** Math.floor(Math.log10((to - from) / count));
    const step = Math.max(least, [1, 2, 5, 10].map(m => m * power).find(s => s >= (to - from) / count));
    const found = [];
    for (let i = Math.ceil(from / step - 1e-9); i * step <= to + step * 1e-9; i++) found.push(i * step);
    return found;
  };
  const draw = () => {
    inner.setAttribute("viewBox", `${view.x} ${view.y} ${view.w} ${view.h}`);
    axes.replaceChildren();
    const step = x => (x - left) / width * steps, byte = y => (top + height - y) / height * bytes;
    for (const at of ticks(step(view.x), step(view.x + view.w), 10, 1)) {
      const x = px(left + at / steps * width);
      add(axes, "line", { class: "grid", x1: x, x2: x, y1: top, y2: top + height });
      add(axes, "text", { x, y: top + height + 17, "text-anchor": "middle" }, at);
    }
    const high = byte(view.y), power = high >= 1024 ? Math.min(3, Math.floor(Math.log2(high) / 10)) : 0, unit = 1024 ** power;
    for (const at of ticks(byte(view.y + view.h) / unit, high / unit, 6, power ? 0 : 1)) {
      const y = py(top + height - at * unit / bytes * height);
      add(axes, "line", { class: "grid", x1: left, x2: left + width, y1: y, y2: y });
      const label = Math.abs(at) < 1e-9 ? "0" : `${+at.toPrecision(7)} ${["B", "KiB", "MiB", "GiB"][power]}`;
      add(axes, "text", { x: left - 6, y: y + 4, "text-anchor": "end" }, label);
    }
    names.replaceChildren();
    for (const block of blocks) {
      const x0 = Math.max(left, px(block.x)), x1 = Math.min(left + width, px(block.x + block.width));
      const y0 = Math.max(top, py(block.y)), y1 = Math.min(top + height, py(block.y + block.height));
      const fits = y1 - y0 >= 11 && x1 - x0 >= 6 * block.name.length;
      if (fits || (all && x1 > x0 && y1 > y0)) {
        add(names, "text", { class: "name", x: x0 + 3, y: (y0 + y1 + 8) / 2 }, block.name);
      }
    }
    for (const tag of tags) {
      const y = py(top + height - tag.dataset.at / bytes * height);
      tag.setAttribute("y", y - 3);
      tag.style.display = y < top || y > top + height ? "none" : "";
    }
    svg.classList.toggle("near", width / view.w * width / steps >= 3);
  };

  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
  const move = (x, y) => {
    view.x = clamp(x, left, left + width - view.w);
    view.y = clamp(y, top, top + height - view.h);
    draw();
  };
  // The point at these parts of the view stays where it is.
  const zoom = (kx, ky, fx = 0.5, fy = 0.5) => {
    const w = clamp(view.w * kx, width * Math.min(1, 4 / steps), width), h = clamp(view.h * ky, height / 5000, height);
    const x = view.x + (view.w - w) * fx, y = view.y + (view.h - h) * fy;
    Object.assign(view, { w, h });
    move(x, y);
  };
  const whole = () => zoom(Infinity, Infinity);
  const place = event => {
    const box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width;
    return { x: (event.clientX - box.left) * scale, y: (event.clientY - box.top) * scale };
  };

  svg.addEventListener("wheel", event => {
    const { x, y } = place(event), k = 1.0015 ** clamp(event.deltaY, -300, 300);
    // With everything in sight, the page scrolls.
    if (k > 1 && view.w === width && view.h === height) return;
    event.preventDefault();
    const fx = clamp((x - left) / width, 0, 1), fy = clamp((y - top) / height, 0, 1);
    zoom(x < left ? 1 : k, y > top + height ? 1 : k, fx, fy);
  }, { passive: false });
  let held = null;
  svg.addEventListener("pointerdown", event => {
    if (event.button !== 0 || event.pointerType === "touch") return;
    held = { ...place(event), from: { ...view } };
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", event => {
    if (!held) return;
    const { x, y } = place(event);
    move(held.from.x - (x - held.x) / width * view.w, held.from.y - (y - held.y) / height * view.h);
  });
  for (const end of ["pointerup", "pointercancel"]) svg.addEventListener(end, () => { held = null; });
  svg.addEventListener("dblclick", whole);
  const keys = {
    "+": () => zoom(0.7, 0.7), "=": () => zoom(0.7, 0.7), "-": () => zoom(1 / 0.7, 1 / 0.7), 0: whole, Escape: whole,
    ArrowLeft: far => far ? zoom(1 / 0.7, 1) : move(view.x - view.w / 8, view.y),
    ArrowRight: far => far ? zoom(0.7, 1) : move(view.x + view.w / 8, view.y),
    ArrowUp: far => far ? zoom(1, 0.7) : move(view.x, view.y - view.h / 8),
    ArrowDown: far => far ? zoom(1, 1 / 0.7) : move(view.x, view.y + view.h / 8),
  };
  svg.addEventListener("keydown", event => {
    if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key](event.shiftKey);
  });
  svg.tabIndex = 0;
  tools.hidden = false;
  tools.querySelector("button").addEventListener("click", whole);
}
