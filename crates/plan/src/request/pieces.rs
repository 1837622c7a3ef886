//! Pieces: a device's share of a group as several shards, so that what other devices wait for is sent while the rest is
//! computed.

use super::choice::Choice;
use crate::problem::{DeviceId, GroupId};

/// How shares are divided into pieces.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pieces {
    /// This part of a share at each border with another device's share, and the interior: shards of later groups read
    /// their halos from the borders, which are computed first.
    Borders(f64),
    /// Equal halves: the receiver of the first one starts on it.
    Halves,
}

/// What the search tries.
pub(crate) const PIECES: [Pieces; 3] = [Pieces::Borders(0.125), Pieces::Borders(0.25), Pieces::Halves];

/// `choice` with the share of every device in pieces; `None` if some already are.
pub(crate) fn in_pieces(choice: &Choice, pieces: Pieces) -> Option<Choice> {
    let count = choice.devices.len();
    if count < 2 || choice.has_pieces() {
        return None;
    }
    let mut divided = Choice { fractions: Vec::new(), devices: Vec::new(), ..choice.clone() };
    for (place, (device, fraction)) in choice.devices.iter().zip(&choice.fractions).enumerate() {
        let parts = match pieces {
            Pieces::Halves => vec![0.5, 0.5],
            Pieces::Borders(border) => {
                let (before, after) = (place > 0, place + 1 < count);
                let interior = 1.0 - border * f64::from(u8::from(before) + u8::from(after));
                let parts = [(before, border), (true, interior), (after, border)];
                parts.into_iter().filter(|(exists, _)| *exists).map(|(_, part)| part).collect()
            }
        };
        divided.devices.extend(parts.iter().map(|_| *device));
        divided.fractions.extend(parts.iter().map(|part| part * fraction));
    }
    Some(divided)
}

/// Groups in program order, but of the shards of a group those first that lie next to another device's. `of` says by group
/// which one it is a shard of, `devices` on which devices the shards of that one run.
pub(crate) fn borders_first<'a>(
    of: &[Option<usize>],
    devices: impl Fn(usize) -> Option<&'a [DeviceId]>,
) -> Vec<GroupId> {
    let mut order = Vec::with_capacity(of.len());
    let mut begin = 0;
    for shards in of.chunk_by(|a, b| a.is_some() && a == b) {
        let devices = shards[0].and_then(&devices).unwrap_or_default();
        let is_interior = |shard: &usize| {
            let alike = |other: Option<usize>| {
                other.and_then(|other| devices.get(other)).is_none_or(|device| Some(device) == devices.get(*shard))
            };
            devices.len() == shards.len() && alike(shard.checked_sub(1)) && alike(Some(shard + 1))
        };
        let (interiors, borders): (Vec<usize>, Vec<usize>) = (0..shards.len()).partition(is_interior);
        order.extend(borders.into_iter().chain(interiors).map(|shard| GroupId((begin + shard) as u32)));
        begin += shards.len();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::choice::Halo;

    fn choice(devices: &[u32], fractions: &[f64]) -> Choice {
        let devices = devices.iter().copied().map(DeviceId).collect();
        Choice { option: 0, fractions: fractions.to_vec(), devices, halo: Halo::Exchanged }
    }

    #[test]
    fn shares_keep_their_sizes_in_pieces() {
        let whole = choice(&[2, 0, 1], &[2.0, 1.0, 1.0]);
        let borders = in_pieces(&whole, Pieces::Borders(0.25)).unwrap();
        assert_eq!(borders, choice(&[2, 2, 0, 0, 0, 1, 1], &[1.5, 0.5, 0.25, 0.5, 0.25, 0.25, 0.75]));
        let halves = in_pieces(&whole, Pieces::Halves).unwrap();
        assert_eq!(halves, choice(&[2, 2, 0, 0, 1, 1], &[1.0, 1.0, 0.5, 0.5, 0.5, 0.5]));
        assert_eq!(in_pieces(&halves, Pieces::Halves), None);
        assert_eq!((borders.in_one_piece(), halves.in_one_piece()), (whole.clone(), whole));
    }

    #[test]
    fn borders_come_before_interiors() {
        let of = [None, Some(0), Some(1), Some(1), Some(1), Some(1), Some(1), Some(2), Some(2), None, None];
        let devices = [vec![], [0, 0, 1, 1, 1].map(DeviceId).to_vec(), [0, 1].map(DeviceId).to_vec()];
        let order = borders_first(&of, |group| devices.get(group).map(Vec::as_slice));
        assert_eq!(order.iter().map(|group| group.0).collect::<Vec<_>>(), [0, 1, 3, 4, 2, 5, 6, 7, 8, 9, 10]);
    }
}
