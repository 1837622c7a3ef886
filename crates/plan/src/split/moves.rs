//! Moves of the split search, on segments: those of all layers at once where layers repeat, then those of program order, from the
//! whole order by halves and quarters down to single groups.
//!
//! First improvement: a move that improves the plan is accepted, and the next one starts from it.

use std::collections::BTreeSet;

use super::{
    search::{Incumbent, Search, gains},
    segments::{Segment, overlapping, segments},
};
use crate::{
    problem::DeviceId,
    request::{
        choice::{Choice, Choices, Halo},
        pieces::{PIECES, in_pieces},
        split_option::ResultLayout,
    },
};

/// Candidate fractions of one device.
const SHARES: [f64; 11] = [0.15, 0.25, 0.33, 0.4, 0.45, 0.5, 0.55, 0.6, 0.67, 0.75, 0.85];
/// Pieces must improve a plan by this: their times are estimates at first, and each piece packs its weights for itself.
const PIECES_GAIN: f64 = 0.99;
/// Maximum number of segments whose ratios are tuned or whose shares are divided: finer ones would fit the noise of shard
/// measurements.
const SEGMENTS: usize = 8;

/// Whose ratio a group gets that is split along another axis.
#[derive(Clone, Copy, PartialEq)]
enum Like {
    /// Its own, else that of the nearest split group before, else after.
    Nearest,
    /// That of the split group before it, with the coarsest grain, so that shards end at the same positions: those of whole heads of
    /// attention, for example.
    Previous,
}

impl Search<'_, '_> {
    /// Unsplits segments of groups onto one of the first two of `devices` where that improves the plan.
    pub(super) fn unsplit(&mut self, at: &mut Incumbent, devices: &[(DeviceId, f64)]) {
        let groups = self.request.instance.split_options.groups.len();
        // All groups whole is another strategy's plan.
        let in_order = segments(groups, groups).filter(|segment| segment.len() < groups);
        for segment in self.of_layers.clone().into_iter().chain(in_order) {
            if self.is_over() {
                return;
            }
            if segment.first_choice(&at.choices).is_none() {
                continue;
            }
            let mut fewer = at.choices.clone();
            fewer.retain(|group, _| !segment.contains(*group));
            let before = self.whole.clone();
            for (device, _) in devices.iter().take(2) {
                for group in segment.groups() {
                    if self.request.instance.costs[group][device.0 as usize].is_some() {
                        self.whole[group] = *device;
                    }
                }
                if let Some(next) = self.evaluate(fewer.clone()).filter(|next| next.score.better(&at.score)) {
                    *at = next;
                    break;
                }
                self.whole.clone_from(&before);
            }
        }
    }

    /// Splits segments of groups, including whole groups, along another axis where that improves the plan.
    pub(super) fn change_axis(&mut self, at: &mut Incumbent) {
        let groups = self.request.instance.split_options.groups.len();
        let options = (0..groups).flat_map(|group| self.request.instance.split_options.group(group));
        let layouts: BTreeSet<&ResultLayout> = options.map(|option| &option.layout).collect();
        // In other segments, the ratio before is not worth its evaluations.
        let of_layers = self.of_layers.clone().into_iter().map(|segment| (segment, true));
        for (segment, is_of_all) in of_layers.chain(segments(groups, groups).map(|segment| (segment, false))) {
            for layout in &layouts {
                if self.is_over() {
                    return;
                }
                let with = |like: Like| self.with_layout(&at.choices, &segment, layout, like);
                let nearest = with(Like::Nearest);
                let previous = is_of_all.then(|| with(Like::Previous)).flatten();
                let previous = previous.filter(|previous| nearest.as_ref() != Some(previous));
                for next in nearest.into_iter().chain(previous) {
                    if let Some(next) = self.evaluate(next).filter(|next| next.score.better(&at.score)) {
                        *at = next;
                    }
                }
            }
        }
    }

    /// `choices` with the groups of `segment` split so that results have `layout` where they can be, in the ratio that `like` says;
    /// `None` if nothing changes.
    fn with_layout(&self, choices: &Choices, segment: &Segment, layout: &ResultLayout, like: Like) -> Option<Choices> {
        let mut next = choices.clone();
        let mut changed = false;
        for group in segment.groups() {
            let before = match like {
                Like::Nearest => choices.range(..=group).next_back().or_else(|| choices.range(group..).next()),
                Like::Previous => next.range(..group).next_back(),
            };
            let Some((at, ratio)) = before else { continue };
            let costs = &self.request.instance.costs[group];
            let able = |d: &DeviceId| costs.get(d.0 as usize).is_some_and(Option::is_some);
            if *at != group && !ratio.devices.iter().all(able) {
                continue;
            }
            let options = self.request.instance.split_options.group(group);
            let fits = |number: &usize| {
                let option = &options[*number];
                option.layout == *layout && option.can_have_shards(ratio.devices.len())
            };
            let mut fitting = (0..options.len()).filter(fits);
            let found = match like {
                Like::Nearest if *at == group && fits(&ratio.option) => None,
                Like::Nearest => fitting.next(),
                Like::Previous => fitting.max_by_key(|number| options[*number].grain),
            };
            let choice = found.map(|option| Choice { option, ..ratio.in_one_piece() });
            if let Some(choice) = choice.filter(|choice| next.get(&group) != Some(choice)) {
                next.insert(group, choice);
                changed = true;
            }
        }
        changed.then_some(next)
    }

    /// Leaves a device out of segments of groups that are split over three or more, if that improves the plan: attention has fewer
    /// heads than devices can share evenly, for example, and the products around it have thousands of columns.
    pub(super) fn leave_out(&mut self, at: &mut Incumbent) {
        let groups = self.request.instance.split_options.groups.len();
        for segment in self.of_layers.clone().into_iter().chain(segments(groups, SEGMENTS)) {
            let mut devices: BTreeSet<DeviceId> = BTreeSet::new();
            segment.choices_mut(&mut at.choices).for_each(|(_, choice)| devices.extend(&choice.devices));
            for device in devices {
                if self.is_over() {
                    return;
                }
                let mut next = at.choices.clone();
                segment.choices_mut(&mut next).for_each(|(_, choice)| *choice = choice.without(device));
                if next == at.choices {
                    continue;
                }
                if let Some(next) = self.evaluate(next).filter(|next| next.score.better(&at.score)) {
                    *at = next;
                }
            }
        }
    }

    /// Lets shards compute halos themselves, or receive them, in overlapping segments of every length, if that improves the
    /// plan.
    pub(super) fn change_halos(&mut self, at: &mut Incumbent) {
        if self.request.goal.halo.is_some() {
            return;
        }
        let groups = self.request.instance.split_options.groups.len();
        let mut divided = self.request.instance.divided(&at.choices).0;
        for segment in overlapping(groups) {
            for halo in [Halo::Recomputed, Halo::Exchanged] {
                if self.is_over() {
                    return;
                }
                if at.choices.iter().all(|(group, choice)| !segment.contains(*group) || choice.halo == halo) {
                    continue;
                }
                let mut next = at.choices.clone();
                segment.choices_mut(&mut next).for_each(|(_, choice)| choice.halo = halo);
                // Where nothing reads more than its share, there is no halo.
                let divided_next = self.request.instance.divided(&next).0;
                if divided_next == divided {
                    continue;
                }
                if let Some(next) = self.evaluate(next).filter(|next| next.score.better(&at.score)) {
                    *at = next;
                    divided = divided_next;
                }
            }
        }
    }

    /// Divides the shares of segments of groups into pieces, or joins these, where that improves the plan.
    pub(super) fn divide_shares(&mut self, at: &mut Incumbent) {
        // A halo is recomputed by a shard in one piece.
        if self.request.goal.halo == Some(Halo::Recomputed) {
            return;
        }
        let groups = self.request.instance.split_options.groups.len();
        for segment in self.of_layers.clone().into_iter().chain(segments(groups, SEGMENTS)) {
            let mut joined = at.choices.clone();
            segment.choices_mut(&mut joined).for_each(|(_, choice)| *choice = choice.in_one_piece());
            if joined != at.choices
                && let Some(next) = self.evaluate(joined).filter(|next| next.score.better(&at.score))
            {
                *at = next;
            }
            for pieces in PIECES {
                if self.is_over() {
                    return;
                }
                let mut next = at.choices.clone();
                for (group, choice) in segment.choices_mut(&mut next) {
                    let fits = |choice: &Choice| {
                        let option = self.request.instance.split_option(group, choice.option);
                        option.is_some_and(|option| {
                            !option.is_replicated() && option.can_have_shards(choice.devices.len())
                        })
                    };
                    if let Some(divided) = in_pieces(choice, pieces).filter(fits) {
                        *choice = divided;
                    }
                }
                if next == at.choices {
                    continue;
                }
                let gains = |next: &Incumbent| gains(&next.score, &at.score, PIECES_GAIN);
                if let Some(next) = self.evaluate(next).filter(gains) {
                    *at = next;
                }
            }
        }
    }

    /// Sets the fraction of one device to each of [`SHARES`], in overlapping segments of every length, if that improves
    /// the plan. Unlike [`Search::tuned`], it can leave a local optimum of the ratio.
    pub(super) fn set_fractions(&mut self, at: &mut Incumbent) {
        let groups = self.request.instance.split_options.groups.len();
        for segment in self.of_layers.clone().into_iter().chain(overlapping(groups)) {
            let first = segment.first_choice(&at.choices);
            let Some(devices) = first.map(|choice| choice.devices.clone()) else { continue };
            for device in moved(&devices) {
                for share in SHARES {
                    if self.is_over() {
                        return;
                    }
                    let mut next = at.choices.clone();
                    for (_, choice) in segment.choices_mut(&mut next) {
                        give(choice, device, share);
                    }
                    if next == at.choices {
                        continue;
                    }
                    if let Some(next) = self.evaluate(next).filter(|next| next.score.better(&at.score)) {
                        *at = next;
                    }
                }
            }
        }
    }

    /// Scales fractions by each of `steps`: in the whole model, then in halves of it, and so on.
    pub(super) fn tune_ratios(&mut self, at: &mut Incumbent, steps: &[f64]) {
        let groups = self.request.instance.split_options.groups.len();
        for step in steps {
            for segment in segments(groups, SEGMENTS) {
                self.tune(at, &segment, *step);
            }
        }
    }

    fn tune(&mut self, at: &mut Incumbent, segment: &Segment, step: f64) {
        let first = segment.first_choice(&at.choices);
        let Some(devices) = first.map(|choice| choice.devices.clone()) else { return };
        for device in moved(&devices) {
            for factor in [1.0 + step, 1.0 / (1.0 + step)] {
                while !self.is_over() {
                    let mut next = at.choices.clone();
                    for (_, choice) in segment.choices_mut(&mut next) {
                        let of_device = choice.fractions.iter_mut().zip(&choice.devices).filter(|(_, d)| **d == device);
                        of_device.for_each(|(fraction, _)| *fraction *= factor);
                    }
                    match self.evaluate(next).filter(|next| next.score.better(&at.score)) {
                        Some(next) => *at = next,
                        None => break,
                    }
                }
            }
        }
    }
}

/// The devices whose fractions are changed: with two of them, changing that of one determines the other.
fn moved(devices: &[DeviceId]) -> Vec<DeviceId> {
    let mut distinct: Vec<DeviceId> = Vec::new();
    for device in devices {
        if !distinct.contains(device) {
            distinct.push(*device);
        }
    }
    if distinct.len() == 2 {
        distinct.truncate(1);
    }
    distinct
}

/// Sets the fraction of `device` to `share`; the others keep their ratio.
fn give(choice: &mut Choice, device: DeviceId, share: f64) {
    let own = choice.share(device);
    let others: f64 = choice.fractions.iter().sum::<f64>() - own;
    if own > 0.0 && others > 0.0 {
        for (fraction, of) in choice.fractions.iter_mut().zip(&choice.devices) {
            *fraction *= if *of == device { share / own } else { (1.0 - share) / others };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_given_and_the_others_keep_their_ratio() {
        let devices = [0, 1, 2].map(DeviceId).to_vec();
        let mut choice = Choice { option: 0, fractions: vec![2.0, 1.0, 1.0], devices, halo: Halo::Exchanged };
        give(&mut choice, DeviceId(1), 0.5);
        assert_eq!(
            choice.fractions.iter().map(|f| (f * 1e6).round()).collect::<Vec<_>>(),
            [333333.0, 500000.0, 166667.0]
        );
    }
}
