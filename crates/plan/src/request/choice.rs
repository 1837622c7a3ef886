//! How groups are split.

use std::{collections::BTreeMap, str::FromStr};

use crate::problem::{DeviceId, ProblemError};

/// How one group is split.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// Number of one of the group's split options.
    pub option: usize,
    /// What each of the shards gets; they need not sum to 1.
    pub fractions: Vec<f64>,
    /// By shard; a device whose share is in [pieces](super::pieces) has several, side by side.
    pub devices: Vec<DeviceId>,
    /// How shards of later groups get the halos that they read of this one's result.
    pub halo: Halo,
}

impl Choice {
    /// What a device gets, in all its pieces.
    pub fn share(&self, device: DeviceId) -> f64 {
        self.devices.iter().zip(&self.fractions).filter(|(of, _)| **of == device).map(|(_, fraction)| fraction).sum()
    }

    /// Whether some device's share is in pieces.
    pub fn has_pieces(&self) -> bool {
        self.devices.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// The same without the shards of `device`; the same if fewer than two devices would be left.
    pub fn without(&self, device: DeviceId) -> Choice {
        let kept = || self.devices.iter().enumerate().filter(|(_, of)| **of != device);
        let devices: Vec<DeviceId> = kept().map(|(_, of)| *of).collect();
        if devices.iter().all(|of| *of == devices[0]) {
            return self.clone();
        }
        Choice { fractions: kept().map(|(shard, _)| self.fractions[shard]).collect(), devices, ..self.clone() }
    }

    /// The same with the share of every device in one piece.
    pub fn in_one_piece(&self) -> Choice {
        let mut devices = self.devices.clone();
        devices.dedup();
        Choice { fractions: devices.iter().map(|device| self.share(*device)).collect(), devices, ..self.clone() }
    }
}

/// How a shard gets its halo: what it reads of an operand beyond the share on its own device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Halo {
    /// From the shards whose share they are.
    #[default]
    Exchanged,
    /// The shard on the same device computes them too: overlapping tiles, nothing is sent.
    Recomputed,
}

impl FromStr for Halo {
    type Err = ProblemError;
    fn from_str(text: &str) -> Result<Halo, ProblemError> {
        match text {
            "exchanged" => Ok(Halo::Exchanged),
            "recomputed" => Ok(Halo::Recomputed),
            _ => Err(ProblemError { what: format!("`{text}` is not valid: expected exchanged or recomputed") }),
        }
    }
}

/// The groups that are split, by number.
pub type Choices = BTreeMap<usize, Choice>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_left_out_while_two_remain() {
        let of = |devices: &[u32], fractions: &[f64]| Choice {
            option: 1,
            fractions: fractions.to_vec(),
            devices: devices.iter().copied().map(DeviceId).collect(),
            halo: Halo::Exchanged,
        };
        let choice = of(&[0, 1, 1, 2], &[4.0, 1.0, 1.0, 2.0]);
        assert_eq!(choice.without(DeviceId(1)), of(&[0, 2], &[4.0, 2.0]));
        assert_eq!(choice.without(DeviceId(2)), of(&[0, 1, 1], &[4.0, 1.0, 1.0]));
        assert_eq!(choice.without(DeviceId(3)), choice);
        let two = choice.without(DeviceId(0));
        assert_eq!(two.without(DeviceId(1)), two);
    }
}
