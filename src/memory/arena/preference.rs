//! In which order buffers are placed: by size, lifetime, area, or how crowded the steps are in which they live.
//!
//! No order is best for every problem, so all of them are tried: [`FIRST_FIT`] by first fit, [`SEARCH`] and then
//! seeded mixtures by the search.

use std::cmp::Ordering;

use super::hash::{mix, unit};

/// An order of placement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Preference {
    /// By the first trait, then by the second, then by the third; the larger the earlier.
    By([Trait; 3]),
    /// By a product of powers of size, lifetime and crowd with some noise, all drawn from the seed.
    Mixed { seed: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trait {
    Size,
    /// Length of the lifetime.
    Width,
    /// Size times width.
    Area,
    /// The largest load while the buffer lives.
    Crowd,
    /// Size squared times width: what the size-ordered first fit of idealloc's bucketing approximates.
    Bulk,
    Early,
    Late,
}

/// What an order looks at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Traits {
    pub lower: u64,
    pub upper: u64,
    pub size: u64,
    pub crowd: u64,
}

use Trait::{Area, Bulk, Crowd, Early, Late, Size, Width};

/// Orders of TVM and TFLite Micro (size), Aidge (lifetime), MiniMalloc, and their mixtures.
pub(super) const FIRST_FIT: &[Preference] = &[
    Preference::By([Size, Width, Early]),
    Preference::By([Area, Size, Early]),
    Preference::By([Width, Size, Early]),
    Preference::By([Width, Area, Crowd]),
    Preference::By([Crowd, Area, Width]),
    Preference::By([Crowd, Width, Area]),
    Preference::By([Crowd, Size, Width]),
    Preference::By([Early, Size, Width]),
    Preference::By([Late, Size, Width]),
    Preference::By([Bulk, Width, Early]),
];

/// MiniMalloc's orders, the most successful one first.
pub(super) const SEARCH: &[Preference] =
    &[Preference::By([Crowd, Width, Area]), Preference::By([Crowd, Area, Width]), Preference::By([Width, Area, Crowd])];

impl Preference {
    /// Sorts `members`, the first one to place first.
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
                    + 8.0 * draw(3) * log(traits.get(Crowd))
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
            Crowd => self.crowd as f64,
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
