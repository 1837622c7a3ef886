//! Values that can be produced from nothing, such as constants and their in-place conversions.

use smallvec::SmallVec;

use crate::program::{OperatorIndex, Program};
use edgecut_graph::{Alias, units::Bytes};

/// For each value the operators that produce it from nothing: one without operands, and those that overwrite its result
/// in place one after the other. Empty for all other values.
///
/// They never need more bytes than the value itself, so running them right before the first use of the value never
/// raises the peak, and no order gains by running them earlier.
pub(super) fn sources(
    program: &Program,
    alias: &[Alias],
    readers: &[SmallVec<[OperatorIndex; 4]>],
) -> Vec<SmallVec<[OperatorIndex; 2]>> {
    let mut sources: Vec<SmallVec<[OperatorIndex; 2]>> = vec![SmallVec::new(); program.values.len()];
    for (index, operator) in (0..).zip(&program.operators) {
        let [write] = operator.writes[..] else { continue };
        let written = program.value(write);
        let plain = written.replaces.is_none() && !written.result && !readers[write as usize].is_empty();
        if operator.first || operator.workspace > Bytes::ZERO || !plain {
            continue;
        }
        let in_place = alias.get(index as usize) == Some(&Alias::InPlace);
        let mut producers = match operator.reads[..] {
            [] => SmallVec::new(),
            [read] if in_place && readers[read as usize].len() == 1 && program.value(read).bytes == written.bytes => {
                std::mem::take(&mut sources[read as usize])
            }
            _ => continue,
        };
        if operator.reads.is_empty() || !producers.is_empty() {
            producers.push(index);
            sources[write as usize] = producers;
        }
    }
    sources
}
