//! The scheduling model: operators with times, values with sizes, and which value overwrites which.
//!
//! An operator reads values and writes values; running it again yields the same values. A value that is written in
//! place of another *replaces* it: the other is lost until it is recomputed. Values that stay allocated throughout
//! (parameters, inputs) have no bytes here: they are counted in [`Program::resident`].

use edgecut_graph::{
    LinkCost,
    units::{Bytes, Micros},
};
use smallvec::SmallVec;

/// Index of an operator in [`Program::operators`].
pub type OperatorIndex = u32;
/// Index of a value in [`Program::values`].
pub type ValueIndex = u32;

/// Operators in program order with the values they exchange.
#[derive(Debug, Clone, Default)]
pub struct Program {
    pub operators: Vec<Operator>,
    pub values: Vec<Value>,
    /// Memory that is allocated throughout.
    pub resident: Bytes,
    /// The link to the host, if values can be copied there: a second stream, on which a copy starts when both streams
    /// have drained, while operators may run during the copy.
    pub host: Option<LinkCost>,
}

/// One operator of a program.
#[derive(Debug, Clone, Default)]
pub struct Operator {
    pub time: Micros,
    /// Scratch memory that it needs only while it runs.
    pub workspace: Bytes,
    /// The values it reads, each once.
    pub reads: SmallVec<[ValueIndex; 4]>,
    pub writes: SmallVec<[ValueIndex; 2]>,
    /// Whether it may run more than once.
    pub repeatable: bool,
    /// Whether it is pinned to its position at the beginning of every order.
    pub first: bool,
}

/// The result of an operator, or a value that exists from the beginning.
#[derive(Debug, Clone, Default)]
pub struct Value {
    pub bytes: Bytes,
    /// `None` for values that exist from the beginning.
    pub producer: Option<OperatorIndex>,
    /// Whether it is an output of the program: it must exist at the end.
    pub result: bool,
    /// The value that it overwrites.
    pub replaces: Option<ValueIndex>,
    /// Values with equal numbers share one buffer: writing one of them destroys the others.
    pub storage: u32,
}

/// An inconsistent program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    #[error("operator {operator} reads value {value}, which does not exist when it runs")]
    Absent { operator: OperatorIndex, value: ValueIndex },
}

impl Program {
    /// The sum of all operators' times.
    pub fn time(&self) -> Micros {
        self.operators.iter().map(|o| o.time).sum()
    }

    /// Lower bound on the peak of every schedule: operands, results and workspace of one operator, or all outputs.
    pub fn peak_bound(&self) -> Bytes {
        let results: Bytes = self.values.iter().filter(|v| v.result).map(|v| v.bytes).sum();
        let first: Bytes = self.operators.iter().filter(|o| o.first).map(|o| self.written(o)).sum();
        let single = self.operators.iter().map(|operator| {
            let reads: Bytes = operator
                .reads
                .iter()
                .filter(|&&read| !operator.writes.iter().any(|&w| self.value(w).replaces == Some(read)))
                .map(|&read| self.value(read).bytes)
                .sum();
            reads + self.written(operator) + operator.workspace
        });
        self.resident + single.max().unwrap_or_default().max(results).max(first)
    }

    pub fn operator(&self, index: OperatorIndex) -> &Operator {
        &self.operators[index as usize]
    }

    pub fn value(&self, index: ValueIndex) -> &Value {
        &self.values[index as usize]
    }

    /// Time to copy a value to the host or back; `None` without a host.
    pub fn copy_time(&self, value: ValueIndex) -> Option<Micros> {
        self.host.map(|link| link.time(self.value(value).bytes))
    }

    /// Checks that every operator finds its operands when the operators run in program order.
    ///
    /// # Errors
    /// With the first operator that does not.
    pub fn check(&self) -> Result<(), ProgramError> {
        let mut exists: Vec<bool> = self.values.iter().map(|v| v.producer.is_none()).collect();
        for (index, operator) in (0..).zip(&self.operators) {
            if let Some(&value) = operator.reads.iter().find(|r| !exists[**r as usize]) {
                return Err(ProgramError::Absent { operator: index, value });
            }
            for &write in &operator.writes {
                exists[write as usize] = true;
                if let Some(old) = self.value(write).replaces {
                    exists[old as usize] = false;
                }
            }
        }
        Ok(())
    }

    /// For each operator those that must precede it in every order.
    pub(crate) fn predecessors(&self) -> Vec<SmallVec<[OperatorIndex; 4]>> {
        let mut readers: Vec<SmallVec<[OperatorIndex; 4]>> = vec![SmallVec::new(); self.values.len()];
        for (index, operator) in (0..).zip(&self.operators) {
            for &read in &operator.reads {
                readers[read as usize].push(index);
            }
        }
        let mut before: Vec<SmallVec<[OperatorIndex; 4]>> = vec![SmallVec::new(); self.operators.len()];
        for (index, operator) in (0..).zip(&self.operators) {
            let list = &mut before[index as usize];
            list.extend(operator.reads.iter().filter_map(|&read| self.value(read).producer));
            for old in operator.writes.iter().filter_map(|&write| self.value(write).replaces) {
                list.extend(readers[old as usize].iter().copied().filter(|&reader| reader != index));
                list.extend(self.value(old).producer);
            }
            list.retain(|other| *other != index);
            list.sort_unstable();
            list.dedup();
        }
        before
    }

    fn written(&self, operator: &Operator) -> Bytes {
        operator.writes.iter().map(|&write| self.value(write).bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operators as (reads, bytes written, value replaced); the last value is the result.
    fn program(operators: &[(&[u32], u64, Option<u32>)]) -> Program {
        let mut program = Program::default();
        for (index, (reads, bytes, replaces)) in (0..).zip(operators) {
            let (reads, writes) = (SmallVec::from_slice(reads), [index].into_iter().collect());
            program.operators.push(Operator { time: Micros(2.0), reads, writes, ..Operator::default() });
            let storage = replaces.unwrap_or(index);
            let result = index as usize + 1 == operators.len();
            let (bytes, producer, replaces) = (Bytes(*bytes), Some(index), *replaces);
            program.values.push(Value { bytes, producer, result, replaces, storage });
        }
        program
    }

    #[test]
    fn replaced_values_are_not_counted_twice() {
        for (operators, peak) in [
            (&[(&[][..], 10, None), (&[0], 10, None)][..], 20),
            (&[(&[][..], 10, None), (&[0], 10, Some(0))], 10),
            (&[(&[][..], 4, None), (&[], 30, None), (&[0, 1], 1, None)], 35),
        ] {
            assert_eq!(program(operators).peak_bound(), Bytes(peak), "{operators:?}");
        }
        assert_eq!(program(&[(&[][..], 10, None), (&[0], 10, None)]).time(), Micros(4.0));
    }

    #[test]
    fn replaced_values_cannot_be_read() {
        let sound = program(&[(&[][..], 8, None), (&[0], 8, Some(0)), (&[1], 1, None)]);
        assert_eq!(sound.check(), Ok(()));
        // The consumers of a value precede the operator that overwrites it.
        let late = program(&[(&[][..], 8, None), (&[0], 8, Some(0)), (&[0], 1, None)]);
        assert_eq!(late.check(), Err(ProgramError::Absent { operator: 2, value: 0 }));
        assert_eq!(late.predecessors()[1].as_slice(), [0, 2]);
    }

    #[test]
    fn copies_need_a_host() {
        let mut program = program(&[(&[][..], 100, None)]);
        assert_eq!(program.copy_time(0), None);
        program.host = Some(LinkCost::per_byte(Micros(5.0), 0.5));
        assert_eq!(program.copy_time(0), Some(Micros(55.0)));
    }
}
