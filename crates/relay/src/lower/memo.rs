//! Memoised values of expressions and variables, one per activation.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::value::{ActivationId, Value};

/// Values by index and activation. Most indices have a single activation, whose value is in a table; those of functions
/// that are called repeatedly are in a map.
pub(super) struct Memo {
    first: Vec<Option<(ActivationId, Value)>>,
    more: HashMap<(u32, ActivationId), Value, RandomState>,
}

impl Memo {
    /// For indices below `count`.
    pub fn new(count: usize) -> Memo {
        Memo { first: vec![None; count], more: HashMap::default() }
    }

    pub fn get(&self, index: usize, activation: ActivationId) -> Option<Value> {
        match self.first.get(index).copied().flatten() {
            Some((owner, value)) if owner == activation => Some(value),
            Some(_) => self.more.get(&(index as u32, activation)).copied(),
            None => None,
        }
    }

    pub fn insert(&mut self, index: usize, activation: ActivationId, value: Value) {
        match self.first.get_mut(index) {
            Some(Some((owner, _))) if *owner != activation => {
                self.more.insert((index as u32, activation), value);
            }
            Some(slot) => *slot = Some((activation, value)),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::TensorId;

    #[test]
    fn activations_keep_values_of_their_own() {
        let mut memo = Memo::new(2);
        let tensor = |value: Option<Value>| match value {
            Some(Value::Tensor(TensorId(at))) => Some(at),
            _ => None,
        };
        for (activation, at) in [(0, 5), (1, 6), (2, 7), (1, 8)] {
            memo.insert(1, ActivationId(activation), Value::Tensor(TensorId(at)));
        }
        let got = [0, 1, 2, 3].map(|activation| tensor(memo.get(1, ActivationId(activation))));
        assert_eq!(got, [Some(5), Some(8), Some(7), None]);
        assert_eq!((tensor(memo.get(0, ActivationId(0))), tensor(memo.get(9, ActivationId(0)))), (None, None));
    }
}
