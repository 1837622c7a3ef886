//! What pilot runs show of costs: what groups, shards and transfers take in the context of a plan, which is not what they
//! take in isolation. Caches are colder, and one core computes, receives and sends.
//!
//! What ran counts as it was measured, the last or the least of several times. Groups with the same signature share the mean
//! of their times in the latest run that measured any of them. Whatever did not run is scaled by the mean slowdown of what
//! did on that device: otherwise everything untried would look better than everything tried.

use std::collections::{BTreeMap, HashMap};

use edgecut_graph::{
    LinkCost,
    units::{Bytes, Micros, Rate},
};
use edgecut_plan::{
    DeviceId, GroupId, Plan, PlanRequest,
    activation::Activation,
    problem::{Cost, Handling},
    split::{costs::copied_bytes, expand::Expanded},
    transfer_format::Coding,
};

use super::{
    equivalent_groups::{EquivalentGroups, LatestMean},
    outcome::PilotOutcome,
    slowdown::{Slowdown, Times},
};
use edgecut_agent::results::TransferCost;

/// See the module's head.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InContextCosts {
    /// Number of pilot runs recorded.
    runs: u32,
    /// Whole groups that neither slice nor join.
    whole: BTreeMap<(DeviceId, usize), WholeTime>,
    /// Shards, and whole groups that slice or join.
    shards: Vec<ShardTime>,
    /// By the name of a link: its cost, and how long the reader's device takes to wake up.
    links: BTreeMap<String, (LinkCost, Micros)>,
    /// What an exchange takes beyond its transfer: the speed of devices varies, and a device that waits for another always
    /// waits for the slower of the two.
    exchange_overhead: Micros,
    /// Slowdown of all computations with several inputs in flight: the cores that compute also receive and send for other
    /// inputs, and are idle at times although inputs wait.
    contention: Option<f64>,
}

/// What one whole group took.
#[derive(Debug, Clone, Copy, PartialEq)]
struct WholeTime {
    times: Times,
    /// Number of the run that measured it.
    run: u32,
}

#[derive(Debug, Clone, PartialEq)]
struct ShardTime {
    device: DeviceId,
    group: usize,
    axis: usize,
    share: f64,
    copied: Bytes,
    /// In context.
    cost: Cost,
    isolated: Micros,
    /// Number of the run that measured it.
    run: u32,
    /// Whether it is a shard, and not a whole group that slices or joins.
    is_part: bool,
}

impl ShardTime {
    fn is_same(&self, other: &ShardTime) -> bool {
        let place = |s: &ShardTime| (s.device, s.group, s.axis, s.copied);
        place(self) == place(other) && self.share == other.share
    }
}

/// A line is fitted to transfers whose sizes differ by this factor at least, to others only a mean rate.
const MIN_SIZE_RATIO: u64 = 4;

/// A line with a rate above this multiple of the mean rate fits noise: small transfers were slower than large ones that
/// waited behind others.
const MAX_RATE_RATIO: f64 = 10.0;

/// Steps of the root search for the overhead of exchanges, and its relative tolerance.
const MAX_STEPS: usize = 12;
const TOLERANCE: f64 = 0.003;

impl InContextCosts {
    /// What is known after a pilot run of `plan`, which counts more than all before it. `isolated` is the problem that was
    /// planned, at costs measured in isolation.
    pub fn after(mut self, isolated: &Expanded, plan: &Plan, run: &PilotOutcome) -> InContextCosts {
        self.runs += 1;
        let number = self.runs;
        for time in &run.outcome.groups {
            let id = GroupId(time.group);
            let (Some(group), Some(Some(of))) =
                (plan.groups.get(time.group as usize), isolated.of.get(time.group as usize))
            else {
                continue;
            };
            let device = group.device;
            let Some(cost) = isolated.problem.cost(id, device) else { continue };
            let part = isolated.shards.get(&id);
            match part.or_else(|| isolated.joined.get(&id)) {
                None => {
                    let times = Times { isolated: cost.time, in_context: time.measured_us };
                    self.whole.insert((device, *of), WholeTime { times, run: number });
                }
                Some(shard) => {
                    let shard_time = ShardTime {
                        device,
                        group: *of,
                        axis: shard.axis,
                        share: shard.share,
                        copied: copied_bytes(&isolated.graph, shard),
                        cost: Cost { time: time.measured_us, ..cost },
                        isolated: cost.time,
                        run: number,
                        is_part: part.is_some(),
                    };
                    self.shards.retain(|before| !before.is_same(&shard_time));
                    self.shards.push(shard_time);
                }
            }
        }
        // Transfers of a stream share links with those of other inputs.
        if run.outcome.interval_us.is_none() {
            self.learn_links(run);
        }
        // A run without exchanges shows nothing of them.
        if !run.outcome.transfers.is_empty() {
            (self.exchange_overhead, self.contention) = (Micros::ZERO, None);
        }
        self
    }

    /// Scales computations by the ratio of the measured `interval` between results to the `predicted` one.
    pub fn fit_contention(&mut self, interval: Micros, predicted: Micros) {
        if interval.0 > 0.0 && predicted.0 > 0.0 {
            self.contention = Some(self.contention.unwrap_or(1.0) * interval.0 / predicted.0);
        }
    }

    /// The same with the contention of `other`: for runs without exchanges, which show none.
    pub fn with_contention_of(self, other: &InContextCosts) -> InContextCosts {
        InContextCosts { contention: other.contention, ..self }
    }

    /// The minimum of the times here and in `before`.
    pub fn or_less(mut self, before: &InContextCosts) -> InContextCosts {
        for (key, of) in &mut self.whole {
            if let Some(before) = before.whole.get(key) {
                of.times.in_context = of.times.in_context.min(before.times.in_context);
            }
        }
        for shard in &mut self.shards {
            if let Some(before) = before.shards.iter().find(|before| before.is_same(shard)) {
                shard.cost.time = shard.cost.time.min(before.cost.time);
            }
        }
        self
    }

    /// By device, the times of everything that ran there.
    fn slowdowns(&self) -> BTreeMap<DeviceId, Slowdown> {
        let mut slowdowns: BTreeMap<DeviceId, Slowdown> = BTreeMap::new();
        for ((device, _), of) in &self.whole {
            slowdowns.entry(*device).or_default().whole.add(of.times);
        }
        for shard in &self.shards {
            let slowdown = slowdowns.entry(shard.device).or_default();
            let times = if shard.is_part { &mut slowdown.parts } else { &mut slowdown.whole };
            times.add(Times { isolated: shard.isolated, in_context: shard.cost.time });
        }
        slowdowns
    }

    /// Fits the overhead of an exchange so that the predicted `latency` is the `measured` one. `exchanges` is the number of
    /// exchanges on the critical path at no overhead.
    ///
    /// # Errors
    /// Those of `latency`.
    pub fn fit_exchange_overhead<E>(
        &mut self,
        measured: Micros,
        exchanges: usize,
        latency: impl Fn(&InContextCosts) -> Result<Micros, E>,
    ) -> Result<(), E> {
        let mut low = (Micros::ZERO, latency(&InContextCosts { exchange_overhead: Micros::ZERO, ..self.clone() })?);
        if exchanges == 0 {
            return Ok(());
        }
        self.exchange_overhead = Micros::ZERO;
        if low.1 >= measured {
            return Ok(());
        }
        let mut high: Option<(Micros, Micros)> = None;
        self.exchange_overhead = Micros((measured - low.1).0 / exchanges as f64);
        for _ in 0..MAX_STEPS {
            let now = (self.exchange_overhead, latency(self)?);
            if (now.1 - measured).0.abs() <= TOLERANCE * measured.0 {
                break;
            }
            // The latency is monotonic in the overhead but not linear: another path may become critical, and transfers
            // queue for links.
            if now.1 < measured {
                low = now
            } else {
                high = Some(now)
            }
            self.exchange_overhead = match high {
                None => Micros(2.0 * now.0.0),
                Some(high) => {
                    let part = (measured - low.1).0 / (high.1 - low.1).0.max(f64::MIN_POSITIVE);
                    low.0 + Micros((high.0 - low.0).0 * part.clamp(0.1, 0.9))
                }
            };
        }
        Ok(())
    }

    fn learn_links(&mut self, run: &PilotOutcome) {
        let mut seen: BTreeMap<(&str, &str), Vec<&TransferCost>> = BTreeMap::new();
        for transfer in &run.outcome.transfers {
            seen.entry((&transfer.from, &transfer.to)).or_default().push(transfer);
        }
        for ((from, to), transfers) in seen {
            let Some(cost) = link_cost(&transfers) else { continue };
            let wake = run.wake_times.get(to).copied().unwrap_or_default();
            self.links.insert(format!("{from} → {to}"), (cost, wake));
        }
    }

    /// `request` at these costs.
    pub fn applied_to<'a>(&self, request: &PlanRequest<'a>) -> PlanRequest<'a> {
        let mut request = request.clone();
        let instance = request.instance_mut();
        if self.is_informed() {
            // What was measured in runs has in it what transfers take of devices.
            instance.network.devices.iter_mut().for_each(|device| device.handling = Handling::default());
            for link in &mut instance.network.links {
                link.cost.latency = (link.cost.latency - link.overhead).max(Micros::ZERO);
                link.overhead = Micros::ZERO;
            }
        }
        let devices = (0..instance.network.devices.len() as u32).map(DeviceId);
        let slowdowns = self.slowdowns();
        let mut all = Slowdown::default();
        for slowdown in slowdowns.values() {
            all.whole.add(slowdown.whole);
            all.parts.add(slowdown.parts);
        }
        for device in devices.clone() {
            let own = slowdowns.get(&device).copied().unwrap_or_default();
            let whole = [own.whole, own.parts, all.whole, all.parts].into_iter().find_map(Times::ratio).unwrap_or(1.0);
            let shards = [own.parts, all.parts].into_iter().find_map(Times::ratio).unwrap_or(whole);
            for row in &mut instance.costs {
                if let Some(Some(cost)) = row.get_mut(device.0 as usize) {
                    cost.time = Micros(cost.time.0 * whole);
                }
            }
            instance.shards.scale(device, shards);
        }
        let equivalent = EquivalentGroups::of(&instance.representatives);
        let whole = self.means_of_whole(&equivalent);
        for (device, group, time) in whole.iter().flat_map(|((device, representative), mean)| {
            equivalent.members(*representative).iter().map(move |group| (*device, *group, mean.get()))
        }) {
            if let Some(Some(cost)) = instance.costs.get_mut(group).and_then(|row| row.get_mut(device.0 as usize)) {
                cost.time = time;
            }
        }
        for (shard, mean) in self.means_of_shards(&equivalent) {
            let cost = Cost { time: mean.get(), ..shard.cost };
            for group in equivalent.members(equivalent.representative(shard.group)) {
                instance.shards.retime(shard.device, *group, shard.axis, shard.share, shard.copied, cost);
            }
        }
        if let Some(contention) = self.contention {
            for cost in instance.costs.iter_mut().flatten().flatten() {
                cost.time = Micros(cost.time.0 * contention);
            }
            devices.for_each(|device| instance.shards.scale(device, contention));
        }
        for link in &mut instance.network.links {
            if let Some((cost, wake)) = self.links.get(&link.name) {
                (link.cost, link.overhead) = (*cost, *wake);
                link.cost.latency += *wake;
            }
            link.cost.latency += self.exchange_overhead;
            link.overhead += self.exchange_overhead;
        }
        instance.estimated.retain(|(device, group)| {
            !whole.contains_key(&(*device, equivalent.representative(*group))) && !self.has_joined(*device, *group)
        });
        request
    }

    /// By device and the representative of equivalent groups: the mean time of those of them that ran there as a whole.
    fn means_of_whole(&self, equivalent: &EquivalentGroups) -> BTreeMap<(DeviceId, usize), LatestMean> {
        let mut means: BTreeMap<(DeviceId, usize), LatestMean> = BTreeMap::new();
        for ((device, group), of) in &self.whole {
            means.entry((*device, equivalent.representative(*group))).or_default().add(of.times.in_context, of.run);
        }
        means
    }

    /// One shard of each kind that ran, with the mean time of equal shards of equivalent groups.
    fn means_of_shards(&self, equivalent: &EquivalentGroups) -> Vec<(&ShardTime, LatestMean)> {
        let mut means: Vec<(&ShardTime, LatestMean)> = Vec::new();
        let mut places: HashMap<_, usize> = HashMap::new();
        for shard in &self.shards {
            let place =
                (shard.device, equivalent.representative(shard.group), shard.axis, shard.copied, shard.share.to_bits());
            let at = *places.entry((place, shard.is_part)).or_insert(means.len());
            if at == means.len() {
                means.push((shard, LatestMean::default()));
            }
            means[at].1.add(shard.cost.time, shard.run);
        }
        means
    }

    /// Whether anything ran.
    fn is_informed(&self) -> bool {
        !self.whole.is_empty() || !self.shards.is_empty()
    }

    /// Whether a whole group that slices or joins ran on a device.
    fn has_joined(&self, device: DeviceId, group: usize) -> bool {
        self.shards.iter().any(|s| (s.device, s.group) == (device, group) && s.share >= 1.0 && !s.is_part)
    }
}

/// The cost of a link by the transfers of one run, by what was sent, without encoding and decoding; `None` if none had any
/// bytes.
fn link_cost(transfers: &[&TransferCost]) -> Option<LinkCost> {
    let sizes = || transfers.iter().map(|t| t.sent_bytes);
    let times = || transfers.iter().map(|t| transfer_time(t));
    let (least, most) = (sizes().min()?, sizes().max()?);
    let (bytes, time): (Bytes, Micros) = (sizes().sum(), times().sum());
    if bytes == Bytes::ZERO || time <= Micros::ZERO {
        return None;
    }
    let mean = LinkCost { latency: Micros::ZERO, rate: Rate(bytes.0 as f64 / time.0) };
    let points: Vec<(Bytes, Micros)> = sizes().zip(times()).collect();
    let line = LinkCost::fit(&points).ok().filter(|line| {
        let is_wide = most.0 >= MIN_SIZE_RATIO * least.0.max(1) && line.latency > Micros::ZERO;
        is_wide && line.rate.0 < MAX_RATE_RATIO * mean.rate.0
    });
    Some(line.unwrap_or(mean))
}

/// What a transfer takes of its link.
fn transfer_time(transfer: &TransferCost) -> Micros {
    let elements = transfer.bytes.0 / 4;
    let coding = Coding::of(transfer.format).time(Activation { elements, blocks: 0 });
    (transfer.measured_us - coding).max(Micros::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_plan::TransferFormat;

    fn transfer(kib: u64, time: f64) -> TransferCost {
        TransferCost {
            tensor: "t".into(),
            from: "a".into(),
            to: "b".into(),
            bytes: Bytes(kib << 10),
            sent_bytes: Bytes(kib << 10),
            predicted_us: None,
            measured_us: Micros(time),
            ..TransferCost::default()
        }
    }

    #[test]
    fn a_line_is_fitted_to_transfers_of_different_sizes() {
        let of = |transfers: &[TransferCost]| link_cost(&transfers.iter().collect::<Vec<_>>());
        let line = of(&[transfer(16, 50.0 + 16.0), transfer(64, 50.0 + 64.0)]).unwrap();
        assert!((line.latency.0 - 50.0).abs() < 1e-6 && (line.rate.0 - 1024.0).abs() < 1e-6);
        let mean = of(&[transfer(16, 15.0), transfer(16, 17.0)]).unwrap();
        assert_eq!((mean.latency, mean.rate), (Micros::ZERO, Rate(1024.0)));
        let burst = of(&[transfer(16, 8.0), transfer(1024, 1032.0)]).unwrap();
        assert_eq!((burst.latency, burst.rate), (Micros::ZERO, Rate(1024.0)));
        let behind = of(&[transfer(4, 18.0), transfer(16, 12.0)]).unwrap();
        assert_eq!((behind.latency, behind.rate), (Micros::ZERO, Rate(20480.0 / 30.0)));
        assert_eq!(of(&[transfer(0, 5.0)]), None);
        // What is sent counts, and encoding is not the link's.
        let coded = |kib: u64| {
            let coding = Coding::of(TransferFormat::F16).time(Activation { elements: kib << 8, blocks: 0 });
            let format = TransferFormat::F16;
            TransferCost { format, sent_bytes: Bytes(kib << 9), ..transfer(kib, 50.0 + kib as f64 / 2.0 + coding.0) }
        };
        let line = of(&[coded(16), coded(64)]).unwrap();
        assert!((line.latency.0 - 50.0).abs() < 1e-6 && (line.rate.0 - 1024.0).abs() < 1e-6, "{line:?}");
    }

    #[test]
    fn the_overhead_of_exchanges_is_found_whichever_path_is_critical() {
        // Four exchanges on the path that is critical at first, twelve on another.
        let latency = |known: &InContextCosts| {
            Ok::<_, ()>(Micros((48.0 + 4.0 * known.exchange_overhead.0).max(47.0 + 12.0 * known.exchange_overhead.0)))
        };
        for (wanted, overhead) in [(52.0, 5.0 / 12.0), (48.2, 0.05), (47.0, 0.0), (20.0, 0.0), (500.0, 453.0 / 12.0)] {
            let mut known = InContextCosts { exchange_overhead: Micros(9.0), ..InContextCosts::default() };
            known.fit_exchange_overhead(Micros(wanted), 4, latency).unwrap();
            assert!(
                (known.exchange_overhead.0 - overhead).abs() < 0.01 + 0.03 * overhead,
                "{wanted}: {:?}",
                known.exchange_overhead
            );
        }
        let mut isolated = InContextCosts::default();
        isolated.fit_exchange_overhead(Micros(60.0), 0, |_| Ok::<_, ()>(Micros(50.0))).unwrap();
        assert_eq!(isolated.exchange_overhead, Micros::ZERO);
    }

    #[test]
    fn latest_times_of_equivalent_groups_are_averaged() {
        let shard = |group, device, time, run| ShardTime {
            device: DeviceId(device),
            group,
            axis: 1,
            share: 0.5,
            copied: Bytes(8),
            cost: Cost { time: Micros(time), ..Cost::default() },
            isolated: Micros(1.0),
            run,
            is_part: true,
        };
        let times = |time| WholeTime { times: Times { isolated: Micros(1.0), in_context: Micros(time) }, run: 1 };
        let whole = [((0, 0), 2.0), ((0, 2), 4.0), ((0, 1), 9.0), ((1, 2), 7.0)];
        let known = InContextCosts {
            whole: whole.map(|((device, group), time)| ((DeviceId(device), group), times(time))).into(),
            shards: vec![
                shard(0, 0, 2.0, 2),
                shard(2, 0, 3.0, 2),
                shard(3, 0, 9.0, 1),
                shard(1, 0, 5.0, 1),
                shard(2, 1, 8.0, 1),
            ],
            ..InContextCosts::default()
        };
        let equivalent = EquivalentGroups::of(&[0, 1, 0, 0]);
        let means: Vec<_> = known
            .means_of_whole(&equivalent)
            .into_iter()
            .map(|((d, first), mean)| (d.0, first, mean.get().0))
            .collect();
        assert_eq!(means, [(0, 0, 3.0), (0, 1, 9.0), (1, 0, 7.0)]);
        let means: Vec<_> =
            known.means_of_shards(&equivalent).iter().map(|(of, mean)| (of.device.0, of.group, mean.get().0)).collect();
        assert_eq!(means, [(0, 0, 2.5), (0, 1, 5.0), (1, 2, 8.0)]);
        assert_eq!(equivalent.members(0), [0, 2, 3]);
    }

    #[test]
    fn the_least_of_several_times_counts() {
        let known = |one, other| {
            let times = |time| WholeTime { times: Times { isolated: Micros(1.0), in_context: Micros(time) }, run: 1 };
            let whole = BTreeMap::from([((DeviceId(0), 0), times(one)), ((DeviceId(1), 0), times(other))]);
            InContextCosts { whole, ..InContextCosts::default() }
        };
        assert_eq!(known(3.0, 2.0).or_less(&known(1.0, 4.0)), known(1.0, 2.0));
        assert_eq!(known(3.0, 2.0).or_less(&InContextCosts::default()), known(3.0, 2.0));
        let shown = |share, time| {
            let cost = Cost { time: Micros(time), ..Cost::default() };
            let (device, copied, isolated) = (DeviceId(0), Bytes(8), Micros(1.0));
            let shown = ShardTime { device, group: 0, axis: 1, share, copied, cost, isolated, run: 1, is_part: true };
            InContextCosts { shards: vec![shown], ..InContextCosts::default() }
        };
        assert_eq!(shown(0.5, 3.0).or_less(&shown(0.5, 1.0)), shown(0.5, 1.0));
        assert_eq!(shown(0.5, 3.0).or_less(&shown(0.25, 1.0)), shown(0.5, 3.0));
    }
}
