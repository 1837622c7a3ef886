//! Times of the kernels of a traced graph: lines of `0 0.125 ms`.

use edgecut_graph::units::Micros;

use super::error::FxError;

/// Nanoseconds in a second: the clock by which the G10 tool counts times if its configuration names no frequency.
const CLOCK: f64 = 1e9;

/// Reads `0 0.125 ms` lines into microseconds, in order of the kernels.
///
/// A time is a whole number of nanoseconds, as the G10 tool counts it: what is below is cut off.
///
/// # Errors
/// With the line that is of another form.
pub fn times(text: &str) -> Result<Vec<Micros>, FxError> {
    let mut found = Vec::new();
    for (line, content) in (1..).zip(text.lines()).filter(|(_, content)| !content.trim().is_empty()) {
        let mut words = content.split_whitespace();
        let index = words.next().and_then(|word| word.parse::<usize>().ok());
        let time =
            words.next().and_then(|word| word.parse::<f64>().ok()).filter(|time| time.is_finite() && *time >= 0.0);
        let per_second = match words.next() {
            Some("us") => Some(1e6),
            Some("ms") | None => Some(1e3),
            Some("s") => Some(1.0),
            _ => None,
        };
        match (index, time, per_second) {
            (Some(index), Some(time), Some(per_second)) if index == found.len() => {
                found.push(Micros((time * CLOCK / per_second).trunc() / 1e3));
            }
            _ => {
                let what = format!("expected `{} TIME ms`, found `{content}`", found.len());
                return Err(FxError::Text { line, what });
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_whole_nanoseconds() {
        let found = times("0 0.0010009 ms \n1 0.016834 ms\n\n2 2.5 us\n3 1.5 s\n").unwrap();
        assert_eq!(found, [Micros(1.0), Micros(16.834), Micros(2.5), Micros(1.5e6)]);
        assert!(times("0 1 ms\n2 1 ms\n").unwrap_err().to_string().starts_with("line 2: expected `1 TIME ms`"));
    }
}
