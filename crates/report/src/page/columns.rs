//! Columns of compact JSON: names that repeat are numbered, times are rounded to what can be read off a chart.

use std::collections::HashMap;

use serde::Serialize;

/// Distinct strings; columns hold their indices.
#[derive(Debug, Default, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Dictionary {
    words: Vec<String>,
    #[serde(skip)]
    index: HashMap<String, u32>,
}

impl Dictionary {
    /// The index of `word`.
    pub fn add(&mut self, word: &str) -> u32 {
        if let Some(index) = self.index.get(word) {
            return *index;
        }
        let index = self.words.len() as u32;
        self.words.push(word.to_string());
        self.index.insert(word.to_string(), index);
        index
    }

    pub fn words(&self) -> &[String] {
        &self.words
    }
}

/// A time in microseconds, to the nanosecond.
pub(crate) fn nanoseconds(time: f64) -> f64 {
    (time * 1e3).round() / 1e3
}

/// A quantity to five significant digits.
pub(crate) fn five_digits(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10f64.powi(4 - value.abs().log10().floor() as i32);
    let rounded = (value * scale).round() / scale;
    if rounded.is_finite() { rounded } else { value }
}

/// The middle of a sample; `None` of an empty one.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.retain(|value| !value.is_nan());
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_words_are_kept_once() {
        assert_eq!([1234567.0, 0.123456, 0.0, 5e-324].map(five_digits), [1234600.0, 0.12346, 0.0, 5e-324]);
        assert_eq!((nanoseconds(1.23456), median(vec![3.0, 1.0, 2.0, 10.0]), median(vec![])), (1.235, Some(2.5), None));
        let mut words = Dictionary::default();
        assert_eq!([words.add("a"), words.add("b"), words.add("a")], [0, 1, 0]);
        assert_eq!(serde_json::to_string(&words).unwrap(), "[\"a\",\"b\"]");
    }
}
