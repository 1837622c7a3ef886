//! The load over time, and lower bounds on arenas and peaks.
//!
//! | module | bound |
//! |---|---|
//! | here | arena size: peak load, alignment padding, fixed offsets |
//! | `min_cut` | peak over all orders |
//! | [`remat`] | peak over all schedules with rematerialisation |

pub(crate) mod min_cut;
pub mod remat;

use crate::Buffer;
use edgecut_graph::units::Bytes;

/// The load over a range of steps in which no lifetime begins or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// The first step of the range, which ends where the next begins.
    pub from: u64,
    pub bytes: Bytes,
}

/// The sum of the live buffers' sizes over time; the last entry has load 0.
pub fn loads(buffers: &[Buffer]) -> Vec<Load> {
    load_curve(buffers, |buffer| buffer.size.0)
}

/// The peak load and the first step that reaches it.
pub fn peak(buffers: &[Buffer]) -> Load {
    let mut top = Load { from: 0, bytes: Bytes::ZERO };
    for load in loads(buffers) {
        if load.bytes > top.bytes {
            top = load;
        }
    }
    top
}

/// Lower bound on the size of an arena that holds `buffers`.
///
/// The maximum of: the peak load; if every offset is a multiple of `a`, the peak of the sizes rounded up to `a` less the
/// padding of the topmost buffer; the end of every buffer with a fixed offset; every size, including those of buffers with
/// an empty lifetime.
pub fn arena(buffers: &[Buffer]) -> Bytes {
    let common = buffers.iter().fold(0, |g, b| gcd(g, b.align)).max(1);
    let padding = buffers.iter().map(|b| pad(b.size.0, common)).max().unwrap_or(0);
    let padded = load_curve(buffers, |b| b.size.0.saturating_add(pad(b.size.0, common)));
    let padded = padded.iter().map(|load| load.bytes.0.saturating_sub(padding)).max().unwrap_or(0);
    let ends = buffers.iter().map(|b| b.fixed.unwrap_or_default() + b.size).max().unwrap_or_default();
    peak(buffers).bytes.max(Bytes(padded)).max(ends)
}

fn load_curve(buffers: &[Buffer], size: impl Fn(&Buffer) -> u64) -> Vec<Load> {
    let mut events: Vec<(u64, bool, u64)> = Vec::with_capacity(buffers.len() * 2);
    for buffer in buffers.iter().filter(|b| b.lower < b.upper) {
        events.push((buffer.lower, true, size(buffer)));
        events.push((buffer.upper, false, size(buffer)));
    }
    events.sort_unstable();
    let mut loads: Vec<Load> = Vec::new();
    let mut live = 0u128;
    for (step, begins, size) in events {
        live = if begins { live + u128::from(size) } else { live - u128::from(size) };
        let bytes = Bytes(u64::try_from(live).unwrap_or(u64::MAX));
        match loads.last_mut() {
            Some(last) if last.from == step => last.bytes = bytes,
            _ => loads.push(Load { from: step, bytes }),
        }
    }
    loads
}

/// Padding of `size` to the next multiple of `align`.
fn pad(size: u64, align: u64) -> u64 {
    (align - size % align) % align
}

pub(crate) fn gcd(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_falls_before_it_rises() {
        let buffers = [Buffer::new(0, 2, Bytes(10)), Buffer::new(2, 5, Bytes(7)), Buffer::new(1, 3, Bytes(1))];
        let found: Vec<_> = loads(&buffers).iter().map(|l| (l.from, l.bytes.0)).collect();
        assert_eq!(found, [(0, 10), (1, 11), (2, 8), (3, 7), (5, 0)]);
        assert_eq!(peak(&buffers).from, 1);
    }

    #[test]
    fn alignment_raises_the_bound() {
        let buffers = [Buffer::new(0, 1, Bytes(10)).align(64), Buffer::new(0, 1, Bytes(20)).align(64)];
        assert_eq!(arena(&buffers), Bytes(74));
        assert_eq!(arena(&[Buffer::new(0, 1, Bytes(10)).fixed(Bytes(100))]), Bytes(110));
        assert_eq!(arena(&[]), Bytes::ZERO);
        assert_eq!(arena(&[Buffer::new(3, 3, Bytes(5)), Buffer::new(0, 1, Bytes(3))]), Bytes(5));
    }
}
