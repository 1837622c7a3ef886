//! What the parts of a group are called: `2of3`, as spreadsheets make a date of `2/3`.

use serde::{Deserialize, Deserializer};

/// Part `number`, from 1, of `count`.
pub fn part_name(number: usize, count: usize) -> String {
    format!("{number}of{count}")
}

/// Reads the name of a part; older files have `2/3`.
///
/// # Errors
/// If it is no text.
pub fn read_part<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(String::deserialize(from)?.replace('/', "of"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_older_files_are_called_as_today() {
        let read = |text: &str| read_part(serde_json::Value::from(text)).unwrap();
        assert_eq!(read("2/3 again"), "2of3 again");
        assert_eq!(read(&part_name(2, 3)), "2of3");
        assert_eq!(read("1:0..28"), "1:0..28");
    }
}
