//! What fitting works on: operators with times, values with sizes, and who overwrites whom.
//!
//! A program is a graph without its meaning. Every operator reads values and makes values; running it again makes
//! the same values again. A value that is made in another one's bytes *replaces* it: afterwards the other one is
//! gone, until it is made again. Values that live throughout (parameters, inputs) have no bytes here: theirs are
//! in [`Program::resident`].

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
    /// Bytes that are occupied all the time.
    pub resident: u64,
    /// Copying to the host and back, where that is possible.
    pub host: Option<HostLink>,
}

/// One step.
#[derive(Debug, Clone, Default)]
pub struct Operator {
    /// Microseconds.
    pub time: f64,
    /// Bytes it needs only while it runs.
    pub workspace: u64,
    /// What it reads, each value once.
    pub reads: SmallVec<[ValueIndex; 4]>,
    pub writes: SmallVec<[ValueIndex; 2]>,
    /// Whether it may run more than once.
    pub repeatable: bool,
    /// Whether it keeps its place at the beginning of every order.
    pub first: bool,
}

/// What an operator makes, or what is there from the beginning.
#[derive(Debug, Clone, Default)]
pub struct Value {
    pub bytes: u64,
    /// Who makes it; `None` for what is there from the beginning.
    pub producer: Option<OperatorIndex>,
    /// Whether it is a result: it must be there at the end.
    pub result: bool,
    /// The value in whose bytes it is made.
    pub replaces: Option<ValueIndex>,
    /// Values with the same number lie in the same bytes: making one ends the others.
    pub storage: u32,
}

/// A second stream that copies between the device and its host.
///
/// A copy starts when both streams have drained; operators may run beside it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HostLink {
    /// Microseconds a copy takes besides its bytes.
    pub fixed: f64,
    /// Microseconds a byte.
    pub per_byte: f64,
}

/// Why a program is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    #[error("operator {operator} reads value {value}, which is not there when it runs")]
    Absent { operator: OperatorIndex, value: ValueIndex },
}

impl Program {
    /// The time of all operators one after the other, each once, in microseconds.
    pub fn time(&self) -> f64 {
        self.operators.iter().map(|o| o.time).sum()
    }

    /// No schedule has a lower peak: what one operator reads, makes and works in, or all results together.
    pub fn least_peak(&self) -> u64 {
        let results: u64 = self.values.iter().filter(|v| v.result).map(|v| v.bytes).sum();
        let first: u64 = self.operators.iter().filter(|o| o.first).map(|o| self.made(o)).sum();
        let single = self.operators.iter().map(|operator| {
            let reads: u64 = operator
                .reads
                .iter()
                .filter(|&&read| !operator.writes.iter().any(|&w| self.value(w).replaces == Some(read)))
                .map(|&read| self.value(read).bytes)
                .sum();
            reads + self.made(operator) + operator.workspace
        });
        self.resident + single.max().unwrap_or(0).max(results).max(first)
    }

    pub fn operator(&self, index: OperatorIndex) -> &Operator {
        &self.operators[index as usize]
    }

    pub fn value(&self, index: ValueIndex) -> &Value {
        &self.values[index as usize]
    }

    /// Microseconds that a copy of a value takes.
    pub fn copy_time(&self, value: ValueIndex) -> Option<f64> {
        self.host.map(|link| link.fixed + link.per_byte * self.value(value).bytes as f64)
    }

    /// Whether every operator finds what it reads when they run in program order, replaced values being gone.
    ///
    /// # Errors
    /// With the first operator that does not.
    pub fn check(&self) -> Result<(), ProgramError> {
        let mut there: Vec<bool> = self.values.iter().map(|v| v.producer.is_none()).collect();
        for (index, operator) in (0..).zip(&self.operators) {
            if let Some(&value) = operator.reads.iter().find(|r| !there[**r as usize]) {
                return Err(ProgramError::Absent { operator: index, value });
            }
            for &write in &operator.writes {
                there[write as usize] = true;
                if let Some(old) = self.value(write).replaces {
                    there[old as usize] = false;
                }
            }
        }
        Ok(())
    }

    /// For each operator those that must stand before it in every order.
    pub fn predecessors(&self) -> Vec<SmallVec<[OperatorIndex; 4]>> {
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

    fn made(&self, operator: &Operator) -> u64 {
        operator.writes.iter().map(|&write| self.value(write).bytes).sum()
    }
}
