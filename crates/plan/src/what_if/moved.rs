//! Another plan as it is, and with some of its groups moved to other devices. Nothing is searched: all other groups stay
//! where they are, and devices keep their order.
//!
//! Times are those of the plan where it has them, so that the plan as it is costs what it says. What it has not run, a
//! group on another device, takes what the profile says, times how much longer than in the profile the plan's own groups
//! take on that device.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    str::FromStr,
};

use edgecut_graph::{DeviceName, units::Micros};

use super::adopt::{AdoptError, check_groups, device_of, expand, positions, rank};
use crate::{
    candidate::Candidate,
    judge::solution::evaluate,
    plan_file::file::Plan,
    problem::{
        Cost, DeviceId, GroupId, Handling, LinkId, Objective, ProblemError,
        group_names::GroupNames,
        placement::Placement,
        rule::{NoSuchGroup, UnknownDevice, named},
    },
    request::{PlanRequest, choice::Choices, costs::SAME_SHARE, expand::Expanded, goal::Goal},
    split::strategy::choices_like,
};

/// One wish: groups, to one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// What the group is called, or a pattern with `*` or `?` for several.
    pub groups: String,
    /// As `server/device`.
    pub device: String,
}

/// The plan before and after.
#[derive(Debug, Clone)]
pub struct Moved {
    pub before: Candidate,
    pub after: Candidate,
    pub groups: Vec<MovedGroup>,
}

/// A group that moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedGroup {
    pub id: u32,
    pub kind: String,
    /// The devices that it runs on before: several if it is split.
    pub from: Vec<String>,
    pub to: String,
}

/// Why groups cannot be moved.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    #[error("`{0}`: expected GROUP=SERVER/DEVICE, such as '#7=two/cpu'")]
    Syntax(String),
    #[error("option `move={wish}`: {what}")]
    NoGroup { wish: Move, what: NoSuchGroup },
    #[error("option `move={wish}`: `{}` is {count} groups: {groups}; name one by its number, or all by a pattern with `*`", .wish.groups)]
    Ambiguous { wish: Move, count: usize, groups: String },
    #[error("option `move={wish}`: {what}")]
    NoDevice { wish: Move, what: UnknownDevice },
    #[error("option `move={wish}`: another move has {group} already")]
    Twice { wish: Move, group: String },
    #[error("option `move={wish}`: {} has no measurement of {group}, or cannot compute it", .wish.device)]
    Unable { wish: Move, group: String },
    #[error(
        "groups of {devices} are computed in parts that keep the memory limit, and after a move others would be needed: plan \
         again with {pins} in place of option `like` and option `move`"
    )]
    Scheduled { devices: String, pins: String },
    #[error(transparent)]
    Adopt(#[from] AdoptError),
}

impl From<ProblemError> for MoveError {
    fn from(error: ProblemError) -> MoveError {
        MoveError::Adopt(error.into())
    }
}

/// Limit on the groups that a message lists.
const LISTED: usize = 6;

impl FromStr for Move {
    type Err = MoveError;
    fn from_str(text: &str) -> Result<Move, MoveError> {
        match text.rsplit_once('=') {
            Some((groups, device)) if !groups.is_empty() && !device.is_empty() => {
                Ok(Move { groups: groups.to_string(), device: device.to_string() })
            }
            _ => Err(MoveError::Syntax(text.to_string())),
        }
    }
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.groups, self.device)
    }
}

/// The device that each of `moves` brings groups to, by number of the group.
///
/// # Errors
/// If one names no group, several groups without saying so, an unknown device, or a group that another names too.
pub fn targets(
    moves: &[Move],
    groups: &[GroupNames],
    devices: &[String],
) -> Result<HashMap<usize, DeviceId>, MoveError> {
    let mut targets = HashMap::new();
    for wish in moves {
        let found = named(&wish.groups, groups).map_err(|what| MoveError::NoGroup { wish: wish.clone(), what })?;
        let shown = |group: &usize| groups[*group].label();
        if found.len() > 1 && !wish.groups.contains(['*', '?']) {
            let more = if found.len() > LISTED { ", …" } else { "" };
            let listed: Vec<String> = found.iter().take(LISTED).map(shown).collect();
            let groups = listed.join(", ") + more;
            return Err(MoveError::Ambiguous { wish: wish.clone(), count: found.len(), groups });
        }
        let device = (0u32..).zip(devices).find(|(_, device)| **device == wish.device).map(|(id, _)| DeviceId(id));
        let unknown = || MoveError::NoDevice { wish: wish.clone(), what: UnknownDevice::of(&wish.device, devices) };
        let device = device.ok_or_else(unknown)?;
        for group in found {
            if targets.insert(group, device).is_some() {
                return Err(MoveError::Twice { wish: wish.clone(), group: shown(&group) });
            }
        }
    }
    Ok(targets)
}

/// Checks that the groups of `other` can be moved, as `moves` wish.
///
/// # Errors
/// If devices follow schedules, which are for just the groups that they have.
pub fn movable(other: &Plan, moves: &[Move]) -> Result<(), MoveError> {
    let scheduled: BTreeSet<DeviceId> = other.schedules.iter().map(|schedule| schedule.device).collect();
    if scheduled.is_empty() {
        return Ok(());
    }
    let devices = DeviceName::join(scheduled.iter().filter_map(|id| other.device_name(*id)), " and ");
    let pins: Vec<String> = moves.iter().map(|wish| format!("option `pin={wish}`")).collect();
    Err(MoveError::Scheduled { devices, pins: pins.join(", ") })
}

/// `other`, a plan of the same model over the devices of `request`, as it is and after `moves`. `request` has the costs of
/// groups and shards, and as [`Goal::like`] the splits of `other`.
///
/// # Errors
/// If `other` cannot be taken over, or a group cannot be moved.
pub fn moved(request: &PlanRequest<'_>, other: &Plan, moves: &[Move]) -> Result<Moved, MoveError> {
    movable(other, moves)?;
    let devices: Vec<String> = request.instance.device_names().iter().map(DeviceName::to_string).collect();
    let names = request.instance.group_names();
    let targets = targets(moves, &names, &devices)?;
    // A plan of other targets is judged by its own.
    // The profiles may tell less than those that the plan was made from.
    let without = if other.objective == Objective::Energy { request.instance.without_energy() } else { Vec::new() };
    let objective = if without.is_empty() { other.objective } else { Objective::Latency };
    let mut request = request.with_goal(Goal { objective, targets: other.targets, ..request.goal.clone() });
    let network = &mut request.instance_mut().network;
    network.set_transfer_format(other.transfer);
    // The times of its groups have in them what transfers take of devices.
    network.devices.iter_mut().for_each(|device| device.handling = Handling::default());
    let choices = choices_like(&request.instance, request.goal.like.as_deref().unwrap_or_default())?;
    let run = OtherPlan::of(&request, other, &choices)?;
    let before = run.candidate(&request, &choices, &HashMap::new())?;
    let kept = choices.iter().filter(|(group, _)| !targets.contains_key(group));
    let kept: Choices = kept.map(|(group, choice)| (*group, choice.clone())).collect();
    for wish in moves {
        let group = targets.iter().find(|(group, device)| {
            names[**group].is_called(&wish.groups) && request.instance.costs[**group][device.0 as usize].is_none()
        });
        if let Some((group, _)) = group {
            return Err(MoveError::Unable { wish: wish.clone(), group: names[*group].label() });
        }
    }
    let mut after = run.candidate(&request, &kept, &targets)?;
    if !without.is_empty() {
        let names: Vec<&str> = without.iter().map(|device| devices[device.0 as usize].as_str()).collect();
        let names = names.join(", ");
        after.notes.push(format!("by latency: the plan was made by energy, which the profiles do not tell of {names}"));
    }
    let mut groups: Vec<MovedGroup> = targets
        .iter()
        .map(|(group, to)| MovedGroup {
            id: *group as u32,
            kind: names[*group].kind.clone(),
            from: run.homes(*group).iter().map(|device| devices[device.0 as usize].clone()).collect(),
            to: devices[to.0 as usize].clone(),
        })
        .collect();
    groups.sort_by_key(|group| group.id);
    Ok(Moved { before, after, groups })
}

/// What a group of an expanded problem is: the group of the model that it is or is a shard of, and its name.
type Key = (Option<usize>, String);

/// The plan that is taken over, by what its groups are.
struct OtherPlan {
    groups: HashMap<Key, Planned>,
    /// By device: how much longer its groups take than in the profile.
    slowdowns: Vec<f64>,
    /// The same of links; `None` for those that carry nothing.
    links: HashMap<LinkId, f64>,
}

/// A group of the plan.
#[derive(Clone, Copy)]
struct Planned {
    device: DeviceId,
    start: Micros,
    /// Place in the device's order.
    position: usize,
    cost: Cost,
    /// Which part of the whole it is.
    share: f64,
}

impl OtherPlan {
    fn of(request: &PlanRequest<'_>, other: &Plan, choices: &Choices) -> Result<OtherPlan, MoveError> {
        let expanded = expand(request, choices)?;
        check_groups(request, &expanded, other)?;
        let problem = &expanded.problem;
        let here = |id: DeviceId| device_of(problem, other, id).map_err(AdoptError::from);
        let mut groups = HashMap::new();
        let mut sums = vec![(0.0, 0.0); problem.devices.len()];
        for ((id, group), position) in problem.group_ids().zip(&other.groups).zip(positions(other)) {
            let device = here(group.device)?;
            let profiled = problem.cost(id, device).ok_or(AdoptError::Foreign)?;
            let cost = Cost { time: group.time_us, workspace: group.workspace_bytes, ..profiled };
            let sum = &mut sums[device.0 as usize];
            *sum = (sum.0 + cost.time.0, sum.1 + profiled.time.0);
            let share = share(&expanded, id);
            groups.insert(key(&expanded, id), Planned { device, start: group.start_us, position, cost, share });
        }
        let all = sums.iter().fold((0.0, 0.0), |all, sum| (all.0 + sum.0, all.1 + sum.1));
        let ratio =
            |(planned, profiled): (f64, f64)| if planned > 0.0 && profiled > 0.0 { planned / profiled } else { 1.0 };
        let slowdowns = sums.iter().map(|sum| ratio(if sum.1 > 0.0 { *sum } else { all })).collect();
        let mut carried: HashMap<LinkId, (f64, f64)> = HashMap::new();
        let by_id: HashMap<_, _> = problem.tensors.iter().map(|tensor| (tensor.graph, tensor)).collect();
        for transfer in &other.transfers {
            let tensor = by_id.get(&transfer.tensor).ok_or(AdoptError::Foreign)?;
            let Some(link) = problem.route(here(transfer.from)?, here(transfer.to)?) else { continue };
            let sum = carried.entry(link).or_default();
            *sum = (sum.0 + transfer.time_us.0, sum.1 + problem.link(link).time(tensor).0);
        }
        let links = carried.into_iter().map(|(link, sum)| (link, ratio(sum))).collect();
        Ok(OtherPlan { groups, slowdowns, links })
    }

    /// The plan with the splits of `choices` and the groups of `targets` elsewhere.
    fn candidate(
        &self,
        request: &PlanRequest<'_>,
        choices: &Choices,
        targets: &HashMap<usize, DeviceId>,
    ) -> Result<Candidate, MoveError> {
        let mut expanded = expand(request, choices)?;
        let ids: Vec<GroupId> = expanded.problem.group_ids().collect();
        let mut devices = Vec::with_capacity(ids.len());
        let mut ranks = Vec::with_capacity(ids.len());
        for id in &ids {
            let planned = self.groups.get(&key(&expanded, *id)).copied();
            let within = expanded.within[id.0 as usize];
            let target = within.and_then(|group| targets.get(&group)).copied();
            let part = share(&expanded, *id);
            let costs = &mut expanded.problem.groups[id.0 as usize].costs;
            for (cost, slowdown) in costs.iter_mut().zip(&self.slowdowns) {
                *cost = cost.map(|cost| Cost { time: Micros(cost.time.0 * slowdown), ..cost });
            }
            // Without its reader on the same device a tile is smaller.
            if let Some(planned) = planned.filter(|planned| (planned.share - part).abs() < SAME_SHARE) {
                costs[planned.device.0 as usize] = Some(planned.cost);
            }
            // Slices of inputs and joins of results have one device that they can run on.
            let able = || costs.iter().position(Option::is_some).map(|device| DeviceId(device as u32));
            let device = target.or(planned.map(|planned| planned.device)).or_else(able);
            devices.push(device.ok_or(AdoptError::Foreign)?);
            ranks.push(self.rank(planned, within));
        }
        for (link, factor) in &self.links {
            let link = &mut expanded.problem.links[link.0 as usize];
            *link = link.clone().slower(*factor);
        }
        let order = expanded.problem.topological_order(|id| {
            let (start, position) = ranks[id.0 as usize];
            rank(start, position)
        });
        let solution = evaluate(&expanded.problem, Placement { devices, order }).map_err(AdoptError::from)?;
        let splits = request.instance.splits(&expanded);
        Ok(Candidate::split(solution, expanded, splits, choices.clone(), choices.clone()))
    }

    /// When a group runs among others: as in the plan, or with the first of the shards that it was there.
    fn rank(&self, planned: Option<Planned>, within: Option<usize>) -> (Micros, usize) {
        let of = |planned: &Planned| (planned.start, planned.position);
        let first = || {
            let shards = self.groups.iter().filter(|((group, _), _)| group.is_some() && *group == within);
            shards.map(|(_, planned)| of(planned)).min_by(|a, b| a.0.0.total_cmp(&b.0.0).then(a.1.cmp(&b.1)))
        };
        planned.as_ref().map(of).or_else(first).unwrap_or((Micros::ZERO, 0))
    }

    /// The devices of a group of the model.
    fn homes(&self, group: usize) -> BTreeSet<DeviceId> {
        let of_it = self.groups.iter().filter(|((of, _), _)| *of == Some(group));
        of_it.map(|(_, planned)| planned.device).collect()
    }
}

/// Which part of the whole a group of an expanded problem is.
fn share(expanded: &Expanded, id: GroupId) -> f64 {
    expanded.shards.get(&id).map_or(1.0, |shard| shard.share)
}

fn key(expanded: &Expanded, id: GroupId) -> Key {
    (expanded.within[id.0 as usize], expanded.problem.group(id).name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        solve::planner::plan,
        testing::{CONVOLUTIONS, WIDE, with_request},
        what_if::change::changes,
    };
    use edgecut_graph::units::Bytes;

    fn wish(text: &str) -> Move {
        text.parse().unwrap()
    }

    #[test]
    fn a_plan_without_moves_costs_what_it_says() {
        for speeds in [&[1000.0, 500.0][..], &[1000.0]] {
            with_request(CONVOLUTIONS, speeds, |mut request| {
                let made = plan(&request).unwrap();
                let other = made.to_plan(&request).unwrap();
                request.goal.like = Some(other.splits.clone());
                let same = moved(&request, &other, &[]).unwrap();
                for candidate in [&same.before, &same.after] {
                    let again = candidate.to_plan(&request).unwrap();
                    assert!((again.predicted.latency_us.0 / other.predicted.latency_us.0 - 1.0).abs() < 1e-9);
                    assert_eq!((&again.groups, &again.splits), (&other.groups, &other.splits));
                    let orders =
                        |plan: &Plan| plan.devices.iter().map(|device| device.order.clone()).collect::<Vec<_>>();
                    assert_eq!(orders(&again), orders(&other));
                }
                assert!(changes(&same).unwrap().iter().all(|row| row.difference == 0.0));
            });
        }
    }

    #[test]
    fn a_moved_group_runs_there_and_the_others_stay() {
        with_request(CONVOLUTIONS, &[1000.0, 500.0], |mut request| {
            let other = plan(&request).unwrap().to_plan(&request).unwrap();
            assert!(other.splits.iter().any(|split| split.operator.0 == 0));
            request.goal.like = Some(other.splits.clone());
            for group in 0..3u32 {
                let made = moved(&request, &other, &[wish(&format!("#{group}=s1/cpu"))]).unwrap();
                assert_eq!((made.groups.len(), made.groups[0].id, made.groups[0].to.as_str()), (1, group, "s1/cpu"));
                let after = made.after.to_plan(&request).unwrap();
                for placed in &after.groups {
                    let before = other.groups.iter().find(|g| (g.id, &g.part) == (placed.id, &placed.part));
                    match placed.id == Some(group) {
                        true => assert_eq!((placed.device, placed.part.as_str()), (DeviceId(1), "")),
                        false => assert_eq!(placed.device, before.map_or(placed.device, |before| before.device)),
                    }
                }
                assert!(after.predicted.latency_us > other.predicted.latency_us, "one device, and the slower one");
            }
        });
    }

    #[test]
    fn times_that_the_plan_does_not_have_are_as_much_longer_as_those_that_it_has() {
        with_request(CONVOLUTIONS, &[1000.0, 500.0], |request| {
            let mut request = request.unsplit();
            let mut other = plan(&request).unwrap().to_plan(&request).unwrap();
            let profiled = other.groups[1].time_us;
            other.groups.iter_mut().for_each(|group| group.time_us = Micros(2.0 * group.time_us.0));
            request.goal.like = Some(Vec::new());
            let there = if other.groups[1].device == DeviceId(0) { "s1/cpu" } else { "s0/cpu" };
            let made = moved(&request, &other, &[wish(&format!("nn.relu_1={there}"))]).unwrap();
            let after = made.after.to_plan(&request).unwrap();
            let cost = request.instance.costs[1][after.groups[1].device.0 as usize].unwrap().time;
            assert!(cost != profiled && (after.groups[1].time_us.0 / (2.0 * cost.0) - 1.0).abs() < 1e-9);
        });
    }

    #[test]
    fn plans_with_schedules_are_not_moved_but_made_again() {
        with_request(WIDE, &[1000.0], |mut request| {
            request.instance_mut().network.devices[0].memory = Some(Bytes(3 << 20));
            let other = plan(&request).unwrap().to_plan(&request).unwrap();
            assert!(!other.schedules.is_empty());
            request.goal.like = Some(other.splits.clone());
            let error = moved(&request, &other, &[wish("#2=s0/cpu"), wish("tanh_4=s0/cpu")]).unwrap_err();
            assert_eq!(
                error.to_string(),
                "groups of s0/cpu are computed in parts that keep the memory limit, and after a move others would be \
                 needed: plan again with option `pin=#2=s0/cpu`, option `pin=tanh_4=s0/cpu` in place of option `like` and option `move`"
            );
        });
    }

    #[test]
    fn wishes_that_cannot_be_granted_are_told_precisely() {
        with_request(CONVOLUTIONS, &[1000.0, 500.0], |mut request| {
            request.instance_mut().costs[1][1] = None;
            let other = plan(&request).unwrap().to_plan(&request).unwrap();
            request.goal.like = Some(other.splits.clone());
            for (wishes, want) in [
                (&["#3=s1/cpu"][..], "option `move=#3=s1/cpu`: there is no group #3; the model has 3 groups"),
                (&["nn.conv2d=s1/cpu"], "`nn.conv2d` is 2 groups: #0 nn.conv2d_0, #2 nn.conv2d_2; name one"),
                (&["nn.conv2d_1=s1/cpu"], "is called `nn.conv2d_1` (did you mean nn.relu_1?)"),
                (&["#0=s1"], "unknown device s1 (did you mean s1/cpu?)"),
                (&["#0=s1/cpu", "*=s0/cpu"], "another move has #0 nn.conv2d_0 already"),
                (&["#1=s1/cpu"], "s1/cpu has no measurement of #1 nn.relu_1, or cannot compute it"),
            ] {
                let wishes: Vec<Move> = wishes.iter().map(|text| wish(text)).collect();
                let error = moved(&request, &other, &wishes).unwrap_err().to_string();
                assert!(error.contains(want), "{error}");
            }
        });
        assert!("#7".parse::<Move>().unwrap_err().to_string().contains("expected GROUP=SERVER/DEVICE"));
    }
}
