//! What rehearsals have shown of costs: what groups, shards and transfers take in their places, which is not what they
//! take alone. Caches are colder, and the same core receives and sends.
//!
//! What was rehearsed counts as it was measured, the newest or the least of several times. What was not is scaled by how
//! much longer than alone what was takes on that device: else whatever nobody has tried would look better than all that was.

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
    whole: BTreeMap<(DeviceId, usize), Times>,
    /// Shards, and whole groups that slice or join.
    shards: Vec<Shown>,
    /// By the name of a link: its cost.
    links: BTreeMap<String, LinkCost>,
    /// What an exchange takes beyond its transfer: devices are now faster, now slower, and who waits for another waits for
    /// the slower of the two every time.
    jitter: Micros,
    /// How much longer all computations are taken to take with several inputs under way, of plans for a stream: the cores
    /// that compute also carry what others send meanwhile, and now and then wait although there are other inputs.
    crowd: Option<f64>,
}

/// What the same takes alone and in its place; or sums of that.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Times {
    alone: Micros,
    in_place: Micros,
}

#[derive(Debug, Clone, PartialEq)]
struct Shown {
    device: DeviceId,
    group: usize,
    axis: usize,
    share: f64,
    copied: Bytes,
    /// In its place.
    cost: Cost,
    alone: Micros,
    /// Whether it is a part of its group.
    is_part: bool,
}

/// Sums over all that is known of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Slowdown {
    whole: Times,
    parts: Times,
}

impl Times {
    fn add(&mut self, other: Times) {
        self.alone += other.alone;
        self.in_place += other.in_place;
    }

    /// How much longer it takes in its place; `None` of nothing.
    fn ratio(self) -> Option<f64> {
        (self.alone.0 > 0.0 && self.in_place.0 > 0.0).then(|| self.in_place.0 / self.alone.0)
    }
}

impl Shown {
    fn is_same(&self, other: &Shown) -> bool {
        let place = |s: &Shown| (s.device, s.group, s.axis, s.copied);
        place(self) == place(other) && self.share == other.share
    }
}

/// A line is fitted to sizes that differ by this factor; of more equal ones only the mean says something.
const APART: u64 = 4;

/// A line that makes a link so many times faster than all bytes in all their time is noise's: small ones took longer than large
/// ones that lay behind others.
const NOISE: f64 = 10.0;

/// How often the latency is predicted anew to find what exchanges take, and how close is close enough.
const SPREADINGS: usize = 12;
const CLOSE: f64 = 0.003;

impl InPlace {
    /// What is known after `rehearsal` of `plan`, which counts before everything else. `alone` is what was planned, at the
    /// costs that were measured alone.
    pub fn after(mut self, alone: &Expanded, plan: &Plan, rehearsal: &Rehearsal) -> InPlace {
        for time in &rehearsal.outcome.groups {
            let id = GroupId(time.group);
            let (Some(group), Some(Some(of))) =
                (plan.groups.get(time.group as usize), alone.of.get(time.group as usize))
            else {
                continue;
            };
            let Strategy::Whole { device } = group.strategy;
            let Some(cost) = alone.problem.cost(id, device) else { continue };
            let part = alone.shards.get(&id);
            match part.or_else(|| alone.joined.get(&id)) {
                None => {
                    self.whole.insert((device, *of), Times { alone: cost.time, in_place: time.measured_us });
                }
                Some(shard) => {
                    let shown = Shown {
                        device,
                        group: *of,
                        axis: shard.axis,
                        share: shard.share,
                        copied: copied_bytes(&alone.graph, shard),
                        cost: Cost { time: time.measured_us, ..cost },
                        alone: cost.time,
                        is_part: part.is_some(),
                    };
                    self.shards.retain(|before| !before.is_same(&shown));
                    self.shards.push(shown);
                }
            }
        }
        // In a stream a transfer's time is also that of others, which share the way.
        if rehearsal.outcome.interval_us.is_none() {
            self.learn_links(rehearsal);
        }
        // What exchanges nothing says nothing of exchanges.
        if !rehearsal.outcome.transfers.is_empty() {
            (self.jitter, self.crowd) = (Micros::ZERO, None);
        }
        self
    }

    /// Changes what computations are taken to take so that what was rehearsed is predicted to take as long between results
    /// as it did: it is predicted to take `least`.
    pub fn crowd(&mut self, between: Micros, least: Micros) {
        if between.0 > 0.0 && least.0 > 0.0 {
            self.crowd = Some(self.crowd.unwrap_or(1.0) * between.0 / least.0);
        }
    }

    /// The same as crowded as `other`: who exchanges nothing does not learn what exchanges take.
    pub fn as_crowded_as(self, other: &InPlace) -> InPlace {
        InPlace { crowd: other.crowd, ..self }
    }

    /// The same with the least that things took here or `before`.
    pub fn or_less(mut self, before: &InPlace) -> InPlace {
        for (key, times) in &mut self.whole {
            if let Some(before) = before.whole.get(key) {
                times.in_place = times.in_place.min(before.in_place);
            }
        }
        for shown in &mut self.shards {
            if let Some(before) = before.shards.iter().find(|before| before.is_same(shown)) {
                shown.cost.time = shown.cost.time.min(before.cost.time);
            }
        }
        self
    }

    /// How much longer what is known of a device takes in its place.
    fn slowdowns(&self) -> BTreeMap<DeviceId, Slowdown> {
        let mut slowdowns: BTreeMap<DeviceId, Slowdown> = BTreeMap::new();
        for ((device, _), times) in &self.whole {
            slowdowns.entry(*device).or_default().whole.add(*times);
        }
        for shown in &self.shards {
            let slowdown = slowdowns.entry(shown.device).or_default();
            let times = if shown.is_part { &mut slowdown.parts } else { &mut slowdown.whole };
            times.add(Times { alone: shown.alone, in_place: shown.cost.time });
        }
        slowdowns
    }

    /// Makes every exchange take so much more that what was rehearsed is predicted to take as long as it did: `latency` predicts
    /// it, with `exchanges` one after the other as long as they take no more.
    ///
    /// # Errors
    /// Those of `latency`.
    pub fn spread<E>(
        &mut self,
        wanted: Micros,
        exchanges: usize,
        latency: impl Fn(&InPlace) -> Result<Micros, E>,
    ) -> Result<(), E> {
        let mut low = (Micros::ZERO, latency(&InPlace { jitter: Micros::ZERO, ..self.clone() })?);
        if exchanges == 0 {
            return Ok(());
        }
        self.jitter = Micros::ZERO;
        if low.1 >= wanted {
            return Ok(());
        }
        let mut high: Option<(Micros, Micros)> = None;
        self.jitter = Micros((wanted - low.1).0 / exchanges as f64);
        for _ in 0..SPREADINGS {
            let now = (self.jitter, latency(self)?);
            if (now.1 - wanted).0.abs() <= CLOSE * wanted.0 {
                break;
            }
            // With dearer exchanges another way through the plan may be the longest, and what queues for a link pays for all
            // before it: no line leads to the right value, but more is never less.
            if now.1 < wanted {
                low = now
            } else {
                high = Some(now)
            }
            self.jitter = match high {
                None => Micros(2.0 * now.0.0),
                Some(high) => {
                    let part = (wanted - low.1).0 / (high.1 - low.1).0.max(f64::MIN_POSITIVE);
                    low.0 + Micros((high.0 - low.0).0 * part.clamp(0.1, 0.9))
                }
            };
        }
        Ok(())
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
        let slowdowns = self.slowdowns();
        let mut all = Slowdown::default();
        for slowdown in slowdowns.values() {
            all.whole.add(slowdown.whole);
            all.parts.add(slowdown.parts);
        }
        for device in (0..task.network.devices.len() as u32).map(DeviceId) {
            let own = slowdowns.get(&device).copied().unwrap_or_default();
            let whole = [own.whole, own.parts, all.whole, all.parts].into_iter().find_map(Times::ratio).unwrap_or(1.0);
            let shards = [own.parts, all.parts].into_iter().find_map(Times::ratio).unwrap_or(whole);
            for row in &mut task.costs {
                if let Some(Some(cost)) = row.get_mut(device.0 as usize) {
                    cost.time = Micros(cost.time.0 * whole);
                }
            }
            sampled.scale(device, shards);
        }
        for ((device, group), times) in &self.whole {
            if let Some(Some(cost)) = task.costs.get_mut(*group).and_then(|row| row.get_mut(device.0 as usize)) {
                cost.time = times.in_place;
            }
        }
        for shown in &self.shards {
            sampled.retime(shown.device, shown.group, shown.axis, shown.share, shown.copied, shown.cost);
        }
        if let Some(crowd) = self.crowd {
            for cost in task.costs.iter_mut().flatten().flatten() {
                cost.time = Micros(cost.time.0 * crowd);
            }
            (0..task.network.devices.len() as u32).for_each(|device| sampled.scale(DeviceId(device), crowd));
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
    let (bytes, time): (Bytes, Micros) = (sizes().sum(), transfers.iter().map(|t| t.measured_us).sum());
    if bytes == Bytes::ZERO || time <= Micros::ZERO {
        return None;
    }
    // What all took together is right for all together.
    let mean = LinkCost { latency: Micros::ZERO, rate: Rate(bytes.0 as f64 / time.0) };
    let points: Vec<(Bytes, Micros)> = transfers.iter().map(|t| (t.bytes, t.measured_us)).collect();
    let line = LinkCost::fit(&points).ok().filter(|line| {
        let tells = most.0 >= APART * least.0.max(1) && line.latency > Micros::ZERO;
        tells && line.rate.0 < NOISE * mean.rate.0
    });
    Some(line.unwrap_or(mean))
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
        let burst = of(&[transfer(16, 8.0), transfer(1024, 1032.0)]).unwrap();
        assert_eq!((burst.latency, burst.rate), (Micros::ZERO, Rate(1024.0)));
        let behind = of(&[transfer(4, 18.0), transfer(16, 12.0)]).unwrap();
        assert_eq!((behind.latency, behind.rate), (Micros::ZERO, Rate(20480.0 / 30.0)));
        assert_eq!(of(&[transfer(0, 5.0)]), None);
    }

    #[test]
    fn exchanges_take_what_is_missing_whichever_way_is_the_longest() {
        // Four exchanges on the way that is the longest at first, twelve on another.
        let latency =
            |known: &InPlace| Ok::<_, ()>(Micros((48.0 + 4.0 * known.jitter.0).max(47.0 + 12.0 * known.jitter.0)));
        for (wanted, jitter) in [(52.0, 5.0 / 12.0), (48.2, 0.05), (47.0, 0.0), (20.0, 0.0), (500.0, 453.0 / 12.0)] {
            let mut known = InPlace { jitter: Micros(9.0), ..InPlace::default() };
            known.spread(Micros(wanted), 4, latency).unwrap();
            assert!((known.jitter.0 - jitter).abs() < 0.01 + 0.03 * jitter, "{wanted}: {:?}", known.jitter);
        }
        let mut alone = InPlace::default();
        alone.spread(Micros(60.0), 0, |_| Ok::<_, ()>(Micros(50.0))).unwrap();
        assert_eq!(alone.jitter, Micros::ZERO);
    }

    #[test]
    fn what_was_not_rehearsed_is_as_much_slower_as_what_was() {
        let times = |alone, in_place| Times { alone: Micros(alone), in_place: Micros(in_place) };
        let mut sum = Times::default();
        assert_eq!(sum.ratio(), None);
        sum.add(times(10.0, 12.0));
        sum.add(times(30.0, 32.0));
        assert_eq!(sum.ratio(), Some(1.1));
    }

    #[test]
    fn of_several_times_the_least_counts() {
        let known = |one, other| {
            let times = |in_place| Times { alone: Micros(1.0), in_place: Micros(in_place) };
            let whole = BTreeMap::from([((DeviceId(0), 0), times(one)), ((DeviceId(1), 0), times(other))]);
            InPlace { whole, ..InPlace::default() }
        };
        assert_eq!(known(3.0, 2.0).or_less(&known(1.0, 4.0)), known(1.0, 2.0));
        assert_eq!(known(3.0, 2.0).or_less(&InPlace::default()), known(3.0, 2.0));
        let shown = |share, time| {
            let cost = Cost { time: Micros(time), ..Cost::default() };
            let (device, copied, alone) = (DeviceId(0), Bytes(8), Micros(1.0));
            let shown = Shown { device, group: 0, axis: 1, share, copied, cost, alone, is_part: true };
            InPlace { shards: vec![shown], ..InPlace::default() }
        };
        assert_eq!(shown(0.5, 3.0).or_less(&shown(0.5, 1.0)), shown(0.5, 1.0));
        assert_eq!(shown(0.5, 3.0).or_less(&shown(0.25, 1.0)), shown(0.5, 3.0));
    }
}
