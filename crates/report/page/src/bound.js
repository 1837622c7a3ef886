// What the lower bound says of a plan, its targets, its rules and its notes.
import { grid, html } from "./dom.js";
import * as format from "./format.js";

const FIGURES = { latency: format.time, memory: format.bytes, throughput: value => `${format.count(value)}/s` };

export function bound(plan) {
  const { value, bound, by, gap } = plan.bound, unit = { memory: format.bytes, energy: format.energy }[plan.objective] ?? format.time;
  const what = { latency: "latency", throughput: "time between results", memory: "memory of the fullest device", energy: "energy of one run" }[plan.objective];
  return [
    html("p", {}, `The plan's ${what} is `, html("strong", {}, unit(value)), "; no plan can be below ", html("strong", {}, unit(bound)),
      ", by the argument “", html("strong", {}, by), "”. The gap is ", html("strong", {}, format.share(gap)), " of the plan's value: ",
      gap < 0.005 ? "no plan is noticeably better." : "a better plan may or may not exist within it."),
    plan.targets.length > 0 && grid(["target", "limit", "plan", "kept"], plan.targets.map(target => [
      target.device ? `${target.figure} of ${target.device}` : target.figure, FIGURES[target.figure](target.limit), FIGURES[target.figure](target.value), target.is_met ? "yes" : html("strong", { class: "bad" }, "no")]), [1, 2]),
    (plan.splits > 0 || plan.schedules > 0) && html("p", {}, [plan.splits && `${format.plural(plan.splits, "operator")} split`, plan.schedules && `${format.plural(plan.schedules, "memory-saving schedule")}`].filter(Boolean).join(", ") + "."),
    plan.rules.length > 0 && html("p", {}, `Decided beforehand: ${plan.rules.join("; ")}.`),
    plan.notes.length > 0 && html("ul", {}, plan.notes.map(note => html("li", {}, note))),
  ];
}
