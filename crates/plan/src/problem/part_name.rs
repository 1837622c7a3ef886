//! Names of the parts of a group: `2of3`, because spreadsheets read `2/3` as a date.

use serde::{Deserialize, Deserializer};

/// Part `number`, from 1, of `count`.
pub fn part_name(number: usize, count: usize) -> String {
    format!("{number}of{count}")
}

/// Reads the name of a part; `2/3` is accepted too.
///
/// # Errors
/// If it is not text.
pub fn read_part<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(String::deserialize(from)?.replace('/', "of"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_is_accepted() {
        let read = |text: &str| read_part(serde_json::Value::from(text)).unwrap();
        assert_eq!(read("2/3 again"), "2of3 again");
        assert_eq!(read(&part_name(2, 3)), "2of3");
        assert_eq!(read("1:0..28"), "1:0..28");
    }
}
