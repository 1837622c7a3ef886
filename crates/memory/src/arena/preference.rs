//! Orders in which buffers are placed: by size, lifetime, area, or the load during the lifetime.
//!
//! No order is best for every problem, so a portfolio is tried: [`FIRST_FIT`] by first fit, [`SEARCH`] and then random
//! mixtures by the search.

use std::cmp::Ordering;

use super::hash::{mix, unit};

/// An order of placement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Preference {
    /// Descending by the first trait, ties by the second, then by the third.
    By([Trait; 3]),
    /// By a product of random powers of size, lifetime and contention, with noise.
    Mixed { seed: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trait {
    Size,
    /// Length of the lifetime.
    Width,
    /// Size times width.
    Area,
    /// The peak load during the lifetime.
    Contention,
    /// Size squared times width: what the size-ordered first fit of idealloc's bucketing approximates.
    Bulk,
    Early,
    Late,
}

/// The properties of a buffer that orders use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Traits {
    pub lower: u64,
    pub upper: u64,
    pub size: u64,
    pub contention: u64,
}

use Trait::{Area, Bulk, Contention, Early, Late, Size, Width};

/// The orders of TVM and TFLite Micro (size), Aidge (lifetime) and MiniMalloc, and mixtures of them.
pub(super) const FIRST_FIT: &[Preference] = &[
    Preference::By([Size, Width, Early]),
    Preference::By([Area, Size, Early]),
    Preference::By([Width, Size, Early]),
    Preference::By([Width, Area, Contention]),
    Preference::By([Contention, Area, Width]),
    Preference::By([Contention, Width, Area]),
    Preference::By([Contention, Size, Width]),
    Preference::By([Early, Size, Width]),
    Preference::By([Late, Size, Width]),
    Preference::By([Bulk, Width, Early]),
];

/// MiniMalloc's orders, the most successful first.
pub(super) const SEARCH: &[Preference] = &[
    Preference::By([Contention, Width, Area]),
    Preference::By([Contention, Area, Width]),
    Preference::By([Width, Area, Contention]),
];

impl Preference {
    /// Sorts `members` in the order of placement.
    pub fn sort(&self, members: &mut [u32], traits: impl Fn(u32) -> Traits) {
        members.sort_by_cached_key(|&member| (Key(self.key(&traits(member))), member));
    }

    fn key(&self, traits: &Traits) -> [f64; 3] {
        match *self {
            Preference::By(order) => order.map(|which| traits.get(which)),
            Preference::Mixed { seed } => {
                let draw = |salt: u64| unit(mix(seed ^ mix(salt)));
                let noise = unit(mix(traits.lower ^ mix(traits.upper ^ mix(traits.size ^ mix(seed)))));
                let log = |value: f64| value.max(1.0).ln();
                let value = draw(1) * log(traits.get(Size))
                    + draw(2) * log(traits.get(Width))
                    + 8.0 * draw(3) * log(traits.get(Contention))
                    + (0.1 + 0.6 * draw(4)) * noise;
                [value, 0.0, 0.0]
            }
        }
    }
}

impl Traits {
    fn get(&self, which: Trait) -> f64 {
        let (size, width) = (self.size as f64, (self.upper - self.lower) as f64);
        match which {
            Size => size,
            Width => width,
            Area => size * width,
            Contention => self.contention as f64,
            Bulk => size * size * width,
            Early => -(self.lower as f64),
            Late => self.upper as f64,
        }
    }
}

/// Descending lexicographic order of floats.
struct Key([f64; 3]);

impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        let pairs = self.0.iter().zip(&other.0);
        pairs.map(|(a, b)| b.total_cmp(a)).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key {}
