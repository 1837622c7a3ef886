// The page: what it is made of, and a section for each thing that its subjects have.
import { accuracy } from "./accuracy.js";
import { bound } from "./bound.js";
import { cluster } from "./cluster.js";
import { comparison } from "./comparison.js";
import { choice, grid, html } from "./dom.js";
import * as format from "./format.js";
import { front } from "./front.js";
import { chooseInChart, gantt } from "./gantt.js";
import { memory } from "./memory.js";
import { operators } from "./operators.js";
import { roofline } from "./roofline.js";
import { themeButton } from "./theme.js";

const data = JSON.parse(document.getElementById("data").textContent);
const sections = [];

function section(id, title, content) {
  sections.push({ id, title, element: html("section", { id }, html("h2", {}, title), content) });
}

// A section about one of several, with a list to choose from; sections of the same label show the same one.
const together = new Map();
function chosen(id, title, all, label, show) {
  if (!all.length) return;
  const place = html("div"), followers = together.get(label) ?? [];
  together.set(label, followers);
  const list = choice(label, all.map(of => of.name), 0, index => followers.forEach(follow => follow(index)));
  let shown = -1;
  followers.push(index => {
    if (index === shown) return;
    shown = index;
    if (list) list.querySelector("select").value = index;
    place.replaceChildren(...[show(all[index])].flat(Infinity).filter(Boolean));
  });
  followers[followers.length - 1](0);
  section(id, title, [list, place]);
}

// A group in the chart over time, of whichever plan it is.
function show(plan, code) {
  for (const follow of together.get("plan")) follow(plan);
  chooseInChart(code);
}

function figures(plan) {
  const run = data.runs.find(run => data.plans[run.plan] === plan);
  // Inputs of a stream wait for each other, which the latency of one input does not have.
  const off = (measured, predicted) => `${format.time(measured)} measured (${run.interval_us === null ? format.signedShare(measured / predicted - 1) : "in a stream, with queueing"})`;
  const used = plan.devices.filter(device => device.groups).length;
  const tile = (name, value, more) => html("div", { class: "tile-box" }, html("div", { class: "faint" }, name), html("div", { class: "big" }, value), html("div", { class: "faint" }, more));
  return html("div", { class: "tiles" },
    tile("latency", format.time(plan.latency_us), run ? off(run.latency.median_us, plan.latency_us) : "predicted"),
    tile("throughput", `${format.count(plan.throughput_per_s)}/s`, `with ${format.plural(plan.in_flight, "input")} in flight`),
    tile("memory of the fullest device", format.bytes(plan.peak_bytes), "peak load"),
    plan.energy_j !== null && tile("energy", format.energy(plan.energy_j), "one run, with idle power"),
    tile("gap to the bound", format.share(plan.bound.gap), `${plan.objective} is minimised`),
    tile("devices", `${used} of ${plan.devices.length}`, `${format.plural(plan.groups.id.length, "operator")}, ${format.plural(plan.transfers.name.length, "transfer")}`));
}

chosen("plan", "Plan over time", data.plans, "plan", plan => [html("p", { class: "faint" }, `${plan.name}, of ${plan.model}${plan.cluster ? ` on ${plan.cluster}` : ""}`), figures(plan), gantt(data, plan)]);
chosen("memory", "Memory over time", data.plans, "plan", plan => memory(data, plan));
chosen("bound", "Bound and targets", data.plans, "plan", bound);
chosen("accuracy", "Predicted against measured", data.runs, "results", run => [
  run.plan === null && data.plans.length > 0 && html("p", { class: "notice" }, `${run.name}: the run is of none of the plans on this page.`), accuracy(run, data.words)]);
chosen("comparison", "Comparison", data.comparisons, "of", of => comparison(of, data.words));
chosen("front", "Front of latency, throughput and memory", data.fronts, "front", of => front(data, of));
if (data.tables.length || data.plans.length) section("operators", "Operators by time", operators(data, show));
if (data.tables.length) section("roofline", "Roofline", roofline(data));
if (data.cluster) section("cluster", "Cluster", cluster(data.cluster));

const hints = [
  data.plans.length && !data.tables.length && "Profiles are not among the subjects: times on other devices and the roofline are not shown.",
  data.plans.length && !data.runs.length && "Results of a run are not among the subjects: predictions are not compared with measurements.",
].filter(Boolean);
document.getElementById("page").append(
  html("header", {}, html("h1", {}, [...new Set(data.plans.map(plan => plan.model.split(/[\\/]/).pop())), "edgecut report"].join(" · ")), themeButton(),
    html("nav", { "aria-label": "Sections" }, sections.map(({ id, title }) => html("a", { href: `#${id}` }, title)))),
  html("main", {}, html("details", { class: "subjects", open: data.subjects.length <= 3 }, html("summary", {}, `Made of ${format.plural(data.subjects.length, "subject")} by ${data.made_by}`),
    grid(["subject", "is", "has"], data.subjects)), hints.map(hint => html("p", { class: "faint" }, hint)), sections.map(({ element }) => element)));
