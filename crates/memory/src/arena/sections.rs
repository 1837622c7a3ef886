//! A packing problem in the representation of the search: time divided into sections with the same live buffers, sizes
//! divided by their common unit.

use std::ops::{Add, Range, Sub};

use super::{
    conflicts::{Conflicts, spans},
    preference::{Preference, Traits},
    problem::Problem,
};

/// Integer type of offsets and sizes; narrow ones are faster.
pub(super) trait Number: Copy + Ord + Default + Add<Output = Self> + Sub<Output = Self> {
    fn of(value: u64) -> Option<Self>;
    fn get(self) -> u64;
    /// The next multiple of `align`.
    fn up_to(self, align: Self) -> Self;
}

macro_rules! number {
    ($($int:ty),*) => {$(
        impl Number for $int {
            fn of(value: u64) -> Option<Self> {
                <$int>::try_from(value).ok()
            }

            fn get(self) -> u64 {
                self as u64
            }

            fn up_to(self, align: Self) -> Self {
                match self % align {
                    0 => self,
                    rest => self + (align - rest),
                }
            }
        }
    )*};
}
number!(i32, i64);

/// A subset of a problem's buffers, renumbered from 0 in order of their beginning.
pub(super) struct Sections<N> {
    /// Their indices in the problem.
    pub members: Vec<u32>,
    /// The divisor of all sizes.
    pub unit: u64,
    /// The number of sections.
    pub count: usize,
    sizes: Vec<N>,
    aligns: Vec<N>,
    fixed: Vec<Option<N>>,
    spans: Vec<(u32, u32)>,
    lifetimes: Vec<(u64, u64)>,
    /// For each buffer the previous one with the same lifetime, size and alignment.
    twins: Vec<Option<u32>>,
    conflicts: Conflicts,
}

impl<N: Number> Sections<N> {
    /// `members` are in order of their beginning. `None` if their numbers, divided by `unit`, do not fit in `N` with room
    /// for their sum.
    pub fn new(problem: &Problem<'_>, members: &[u32], unit: u64) -> Option<Sections<N>> {
        let of = |old: u32| &problem.buffers[old as usize];
        let top = |old: u32| of(old).size.0 + of(old).align + of(old).fixed.unwrap_or_default().0;
        N::of(
            members
                .iter()
                .map(|&old| u128::from(top(old)))
                .sum::<u128>()
                .try_into()
                .map_or(u64::MAX, |s: u64| s / unit),
        )?;
        let (count, spans) = spans(members.iter().map(|&old| (of(old).lower, of(old).upper)));
        let mut latest = std::collections::HashMap::new();
        let mut made = Sections {
            members: members.to_vec(),
            unit,
            count,
            sizes: Vec::new(),
            aligns: Vec::new(),
            fixed: Vec::new(),
            conflicts: Conflicts::new(&spans, count),
            spans,
            lifetimes: Vec::new(),
            twins: Vec::new(),
        };
        for (new, &old) in (0u32..).zip(members) {
            let buffer = of(old);
            made.sizes.push(N::of(buffer.size.0 / unit)?);
            made.aligns.push(N::of((buffer.align / unit).max(1))?);
            made.fixed.push(buffer.fixed.map(|offset| N::of(offset.0 / unit)).unwrap_or_default());
            made.lifetimes.push((buffer.lower, buffer.upper));
            made.twins.push(buffer.fixed.map_or_else(|| latest.insert(buffer, new), |_| None));
        }
        Some(made)
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether no buffer has a fixed offset, and packings of several times `height` fit in `N`.
    pub fn is_free(&self, height: u64) -> bool {
        let align = self.aligns.iter().max().map_or(1, |align| align.get());
        let reach = height.saturating_mul(4).saturating_add(align);
        self.fixed.iter().all(Option::is_none) && N::of(reach).is_some()
    }

    pub fn size(&self, buffer: u32) -> N {
        self.sizes[buffer as usize]
    }

    pub fn fixed(&self, buffer: u32) -> Option<N> {
        self.fixed[buffer as usize]
    }

    pub fn twin(&self, buffer: u32) -> Option<u32> {
        self.twins[buffer as usize]
    }

    /// `offset` rounded up to the buffer's alignment.
    pub fn align(&self, buffer: u32, offset: N) -> N {
        offset.up_to(self.aligns[buffer as usize])
    }

    /// The sections of the buffer's lifetime.
    pub fn span(&self, buffer: u32) -> Range<usize> {
        let (start, end) = self.spans[buffer as usize];
        start as usize..end as usize
    }

    /// The buffers that share a section with `buffer`.
    pub fn conflicts(&self, buffer: u32) -> impl Iterator<Item = u32> + '_ {
        self.conflicts.of(buffer)
    }

    /// Sorts `buffers` by preference, with their contention computed among themselves.
    pub fn sort(&self, buffers: &mut [u32], preference: Preference, loads: &mut [N]) {
        for &buffer in buffers.iter() {
            loads[self.span(buffer)].fill(N::default());
        }
        for &buffer in buffers.iter() {
            loads[self.span(buffer)].iter_mut().for_each(|load| *load = *load + self.size(buffer));
        }
        preference.sort(buffers, |buffer| {
            let (lower, upper) = self.lifetimes[buffer as usize];
            let contention = loads[self.span(buffer)].iter().max().copied().unwrap_or_default();
            Traits { lower, upper, size: self.size(buffer).get(), contention: contention.get() }
        });
    }
}
