// Events of a plan: its groups and transfers with names, and where profiles and runs say something of them.

// An event by its code: a group as its index, a transfer as -1, -2, …
export const transferOf = code => -1 - code;
export const isTransfer = code => code < 0;

// How profiles are measured, in words.
export const MODES = { isolated: "alone", "in-situ": "in context" };

export function planModel(data, plan) {
  const { groups, transfers, devices } = plan, { words } = data;
  const run = data.runs.find(run => run.plan === data.plans.indexOf(plan));
  const critical = new Set(groups.critical), estimated = new Set(groups.estimated);
  const criticalTransfers = new Set(transfers.critical);
  const group = index => ({
    code: index, index, id: groups.id[index], name: words[groups.name[index]], part: words[groups.part[index]],
    layer: words[groups.layer[index]], colour: data.class_of[groups.name[index]], device: groups.device[index],
    start: groups.start_us[index], time: groups.time_us[index], workspace: groups.workspace_bytes[index],
    isEstimated: estimated.has(index), isCritical: critical.has(index), after: groups.after[index],
    reads: groups.reads?.[index], rules: groups.rules.filter(([of]) => of === index).map(([, rule]) => plan.rules[rule]),
  });
  const transfer = index => ({
    code: -1 - index, index, name: words[transfers.name[index]], part: words[transfers.part[index]],
    from: transfers.from[index], to: transfers.to[index], start: transfers.start_us[index], time: transfers.time_us[index],
    overhead: transfers.overhead_us[index], bytes: transfers.bytes[index], sent: transfers.sent_bytes[index],
    isCritical: criticalTransfers.has(index), after: transfers.after[index],
  });
  const event = code => isTransfer(code) ? transfer(transferOf(code)) : group(code);
  const number = of => of.id === null ? "" : `#${of.id} `;
  const label = code => {
    const of = event(code), part = of.part ? `[${of.part}]` : "";
    return isTransfer(code) ? `transfer of ${of.name}${part && ` ${part}`}`
      : `${number(of)}${of.name}${of.part && !of.name.endsWith("]") ? ` [${of.part}]` : ""}`;
  };
  return { plan, run, devices, event, label, groupCount: groups.id.length, transferCount: transfers.name.length };
}

// What a run measured, by event code: `{ time, start }`.
export function measuredEvents(run) {
  const found = new Map();
  const add = (columns, code) => columns.index.forEach((index, at) => {
    if (index !== null) found.set(code(index), { time: columns.measured_us[at], start: columns.start_us[at] });
  });
  if (run) {
    add(run.groups, index => index);
    add(run.transfers, index => -1 - index);
  }
  return found;
}

// Times of the whole operator that a group is, or is a part of, on every device that profiles of the plan's model are of;
// `planned` is the plan's device that computes as was measured. Nothing where no profile has the operator.
export function profiledTimes(data, plan, group) {
  if (group.id === null) return [];
  const name = group.name.replace(/\[[^\]]*\]/g, "");
  const severalTables = new Set(plan.profiled.map(({ table }) => table)).size > 1;
  let isKnown = false;
  const times = plan.profiled.map(({ table, device, planned }) => {
    const of = data.tables[table], { name: label, mode, time_us, unable } = of.devices[device];
    const items = of.id.flatMap((id, at) => id === group.id && data.words[of.name[at]] === name ? [at] : []);
    isKnown ||= items.length > 0;
    const time = items.map(at => time_us[at]).find(time => time !== null) ?? null;
    return { device: severalTables ? `${label}, ${of.subject}` : label, mode, planned, time, isUnable: items.some(at => unable.includes(at)) };
  });
  return isKnown ? times : [];
}
