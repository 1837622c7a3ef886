//! What rehearsals have shown of costs: what groups, shards and transfers take in their places, which is not what they
//! take alone. Caches are colder, and the same core receives and sends.
//!
//! What was rehearsed counts as it was measured. What was not is scaled by how much longer than alone what was rehearsed
//! takes on that device: else whatever nobody has tried would look better than all that was.

use std::collections::BTreeMap;

use super::{outcome::TransferCost, rehearsal::Rehearsal};
use crate::{
    cluster::LinkCost,
    plan::{
        DeviceId, GroupId, Plan, Strategy,
        problem::Cost,
        split::{Expanded, Sampled, Task, costs::copied_bytes},
    },
    units::{Bytes, Micros, Rate},
};

/// See the module's head.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InPlace {
    /// Whole groups that neither slice nor join.
    whole: BTreeMap<(DeviceId, usize), Micros>,
    /// Shards, and whole groups that slice or join.
    shards: Vec<Shown>,
    /// By device.
    slowdown: BTreeMap<DeviceId, Slowdown>,
    /// By the name of a link: its cost.
    links: BTreeMap<String, LinkCost>,
    /// What an exchange takes beyond its transfer: devices are now faster, now slower, and who waits for another waits for
    /// the slower of the two every time.
    jitter: Micros,
}

#[derive(Debug, Clone, PartialEq)]
struct Shown {
    device: DeviceId,
    group: usize,
    axis: usize,
    share: f64,
    copied: Bytes,
    cost: Cost,
}

/// Sums over all that was rehearsed on a device.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Slowdown {
    whole: Ratio,
    shards: Ratio,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Ratio {
    alone: Micros,
    in_place: Micros,
}

impl Ratio {
    fn add(&mut self, alone: Micros, in_place: Micros) {
        self.alone += alone;
        self.in_place += in_place;
    }

    /// `None` of nothing.
    fn value(self) -> Option<f64> {
        (self.alone.0 > 0.0 && self.in_place.0 > 0.0).then(|| self.in_place.0 / self.alone.0)
    }
}

/// A line is fitted to sizes that differ by this factor; of more equal ones only the mean says something.
const APART: u64 = 4;

impl InPlace {
    /// Adds what `rehearsal` of `plan` showed. `alone` is what was planned, at the costs that were measured alone.
    pub fn learn(&mut self, alone: &Expanded, plan: &Plan, rehearsal: &Rehearsal) {
        for time in &rehearsal.outcome.groups {
            let id = GroupId(time.group);
            let (Some(group), Some(Some(of))) =
                (plan.groups.get(time.group as usize), alone.of.get(time.group as usize))
            else {
                continue;
            };
            let Strategy::Whole { device } = group.strategy;
            let Some(cost) = alone.problem.cost(id, device) else { continue };
            let slowdown = self.slowdown.entry(device).or_default();
            let shard = alone.shards.get(&id);
            let ratio = if shard.is_some() { &mut slowdown.shards } else { &mut slowdown.whole };
            ratio.add(cost.time, time.measured_us);
            match shard.or_else(|| alone.joined.get(&id)) {
                None => {
                    self.whole.insert((device, *of), time.measured_us);
                }
                Some(shard) => {
                    let (axis, share, copied) = (shard.axis, shard.share, copied_bytes(&alone.graph, shard));
                    let same = |s: &Shown| {
                        (s.device, s.group, s.axis, s.copied) == (device, *of, axis, copied) && s.share == share
                    };
                    self.shards.retain(|shown| !same(shown));
                    let cost = Cost { time: time.measured_us, ..cost };
                    self.shards.push(Shown { device, group: *of, axis, share, copied, cost });
                }
            }
        }
        self.learn_links(rehearsal);
        self.jitter = Micros::ZERO;
    }

    /// Adds to what every exchange takes, so that what was rehearsed is predicted to take as long as it did: it is `short`
    /// of that with so many `exchanges` one after the other.
    pub fn spread(&mut self, short: Micros, exchanges: usize) {
        if exchanges > 0 {
            self.jitter = (self.jitter + Micros(short.0 / exchanges as f64)).max(Micros::ZERO);
        }
    }

    fn learn_links(&mut self, rehearsal: &Rehearsal) {
        let mut seen: BTreeMap<(&str, &str), Vec<&TransferCost>> = BTreeMap::new();
        for transfer in &rehearsal.outcome.transfers {
            seen.entry((&transfer.from, &transfer.to)).or_default().push(transfer);
        }
        for ((from, to), transfers) in seen {
            let Some(cost) = cost(&transfers) else { continue };
            let wake = rehearsal.wakes.get(to).copied().unwrap_or_default();
            self.links.insert(format!("{from} → {to}"), LinkCost { latency: cost.latency + wake, ..cost });
        }
    }

    /// Puts what is known into `task`, and into what `sampled` knows of shards.
    pub fn tell(&self, task: &mut Task<'_>, sampled: &mut Sampled) {
        let mut all = Slowdown::default();
        for slowdown in self.slowdown.values() {
            all.whole.add(slowdown.whole.alone, slowdown.whole.in_place);
            all.shards.add(slowdown.shards.alone, slowdown.shards.in_place);
        }
        for device in (0..task.network.devices.len() as u32).map(DeviceId) {
            let own = self.slowdown.get(&device).copied().unwrap_or_default();
            let whole =
                [own.whole, own.shards, all.whole, all.shards].into_iter().find_map(Ratio::value).unwrap_or(1.0);
            let shards = [own.shards, all.shards].into_iter().find_map(Ratio::value).unwrap_or(whole);
            for row in &mut task.costs {
                if let Some(Some(cost)) = row.get_mut(device.0 as usize) {
                    cost.time = Micros(cost.time.0 * whole);
                }
            }
            sampled.scale(device, shards);
        }
        for ((device, group), time) in &self.whole {
            if let Some(Some(cost)) = task.costs.get_mut(*group).and_then(|row| row.get_mut(device.0 as usize)) {
                cost.time = *time;
            }
        }
        for shown in &self.shards {
            sampled.add(shown.device, shown.group, shown.axis, shown.share, shown.copied, shown.cost);
        }
        for link in &mut task.network.links {
            if let Some(cost) = self.links.get(&link.name) {
                (link.latency, link.per_byte) = (cost.latency, 1.0 / cost.rate.0);
            }
            link.latency += self.jitter;
        }
    }

    /// Whether a whole group was rehearsed on a device.
    pub fn has(&self, device: DeviceId, group: usize) -> bool {
        self.whole.contains_key(&(device, group))
            || self.shards.iter().any(|s| (s.device, s.group) == (device, group) && s.share >= 1.0)
    }
}

/// What a link takes, by the transfers of one rehearsal; `None` if none had any bytes.
fn cost(transfers: &[&TransferCost]) -> Option<LinkCost> {
    let sizes = || transfers.iter().map(|t| t.bytes);
    let (least, most) = (sizes().min()?, sizes().max()?);
    let points: Vec<(Bytes, Micros)> = transfers.iter().map(|t| (t.bytes, t.measured_us)).collect();
    if let (Ok(fit), true) = (LinkCost::fit(&points), most.0 >= APART * least.0.max(1)) {
        return Some(fit);
    }
    let (bytes, time): (Bytes, Micros) = (sizes().sum(), transfers.iter().map(|t| t.measured_us).sum());
    (bytes.0 > 0 && time.0 > 0.0).then(|| LinkCost { latency: Micros::ZERO, rate: Rate(bytes.0 as f64 / time.0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer(kib: u64, time: f64) -> TransferCost {
        TransferCost {
            tensor: "t".into(),
            from: "a".into(),
            to: "b".into(),
            bytes: Bytes(kib << 10),
            predicted_us: None,
            measured_us: Micros(time),
            waited_us: Micros::ZERO,
        }
    }

    #[test]
    fn a_link_has_a_latency_where_sizes_tell_it() {
        let of = |transfers: &[TransferCost]| cost(&transfers.iter().collect::<Vec<_>>());
        let line = of(&[transfer(16, 50.0 + 16.0), transfer(64, 50.0 + 64.0)]).unwrap();
        assert!((line.latency.0 - 50.0).abs() < 1e-6 && (line.rate.0 - 1024.0).abs() < 1e-6);
        let mean = of(&[transfer(16, 15.0), transfer(16, 17.0)]).unwrap();
        assert_eq!((mean.latency, mean.rate), (Micros::ZERO, Rate(1024.0)));
        assert_eq!(of(&[transfer(0, 5.0)]), None);
    }

    #[test]
    fn what_was_not_rehearsed_is_as_much_slower_as_what_was() {
        let mut ratio = Ratio::default();
        assert_eq!(ratio.value(), None);
        ratio.add(Micros(10.0), Micros(12.0));
        ratio.add(Micros(30.0), Micros(32.0));
        assert_eq!(ratio.value(), Some(1.1));
    }
}
