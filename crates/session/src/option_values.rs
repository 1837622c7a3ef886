//! Deserialisation of options. A value is a number, or text with a unit. A list may be a single value.

use std::{fmt::Display, str::FromStr};

use edgecut_graph::units::{Bytes, Micros};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use serde_json::Map;

use crate::Error;

/// Reads options from `json`, which must be an object.
///
/// # Errors
/// If an option does not exist or does not accept its value. The error names the first one.
pub fn read<T: DeserializeOwned>(json: &str) -> Result<T, Error> {
    let bad = |error: serde_json::Error| Error::BadInput(error.to_string().into());
    let all: Map<String, serde_json::Value> = serde_json::from_str(json).map_err(bad)?;
    // An error of serde does not name the option. So each option is first read alone.
    for (name, value) in &all {
        let alone = Map::from_iter([(name.clone(), value.clone())]);
        if let Err(error) = T::deserialize(alone) {
            return Err(Error::BadInput(format!("option `{name}`: {error}").into()));
        }
    }
    T::deserialize(all).map_err(bad)
}

/// A number or text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Value {
    Unsigned(u64),
    Number(f64),
    Text(String),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(Value),
    Many(Vec<Value>),
}

impl Value {
    fn parse<T: FromStr<Err: Display>>(self) -> Result<T, String> {
        let text = match self {
            Value::Unsigned(number) => number.to_string(),
            Value::Number(number) => number.to_string(),
            Value::Text(text) => text,
        };
        text.parse().map_err(|error: T::Err| format!("`{text}`: {error}"))
    }

    fn time(self) -> Result<Micros, String> {
        match self {
            Value::Unsigned(us) => format!("{us}us").parse().map_err(|error| format!("{error}")),
            Value::Number(us) => format!("{us}us").parse().map_err(|error| format!("{error}")),
            Value::Text(text) => text.parse().map_err(|error| format!("`{text}`: {error}")),
        }
    }
}

/// A value with a text form: `"tuned"`, `"auto"`.
pub(crate) fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(deserializer: D) -> Result<T, D::Error> {
    Value::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// Like [`parsed`], but optional.
pub(crate) fn optional<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let value = Option::<Value>::deserialize(deserializer)?;
    value.map(Value::parse).transpose().map_err(D::Error::custom)
}

/// Like [`parsed`], for one value or a list.
pub(crate) fn list<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let values = match Option::<OneOrMany>::deserialize(deserializer)? {
        None => Vec::new(),
        Some(OneOrMany::One(value)) => vec![value],
        Some(OneOrMany::Many(values)) => values,
    };
    values.into_iter().map(Value::parse).collect::<Result<_, _>>().map_err(D::Error::custom)
}

/// A time: microseconds, or text with a unit such as `"40ms"`.
pub fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Micros, D::Error> {
    Value::deserialize(deserializer)?.time().map_err(D::Error::custom)
}

/// Like [`time`], but optional.
pub(crate) fn optional_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Micros>, D::Error> {
    Option::<Value>::deserialize(deserializer)?.map(Value::time).transpose().map_err(D::Error::custom)
}

/// A time, or `None` for `"none"`.
pub(crate) fn time_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Micros>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Text(text) if text == "none" => Ok(None),
        value => value.time().map(Some).map_err(|error| D::Error::custom(format!("{error}, or `none`"))),
    }
}

/// An optional size: bytes, or text with a unit such as `"512MiB"`.
pub(crate) fn optional_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Bytes>, D::Error> {
    let size = |value| match value {
        Value::Unsigned(bytes) => Ok(Bytes(bytes)),
        Value::Number(number) => Err(format!("{number}: expected a whole number of bytes, or a text such as 512MiB")),
        Value::Text(text) => Bytes::with_unit(&text).map_err(|error| format!("`{text}`: {error}")),
    };
    Option::<Value>::deserialize(deserializer)?.map(size).transpose().map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Options {
        #[serde(deserialize_with = "time")]
        budget: Micros,
        #[serde(deserialize_with = "optional_size")]
        memory: Option<Bytes>,
        #[serde(deserialize_with = "list")]
        pin: Vec<String>,
    }

    #[test]
    fn numbers_and_texts_mean_the_same() {
        let of = |text: &str| serde_json::from_str::<Options>(text);
        let wanted = Options { budget: Micros(2e6), memory: Some(Bytes(1 << 20)), pin: vec!["a=b/cpu".to_string()] };
        for text in [
            r#"{"budget": 2000000, "memory": 1048576, "pin": ["a=b/cpu"]}"#,
            r#"{"budget": "2s", "memory": "1MiB", "pin": "a=b/cpu"}"#,
        ] {
            assert_eq!(of(text).unwrap(), wanted, "{text}");
        }
        assert_eq!(of("{}").unwrap(), Options::default());
        for text in [r#"{"budget": -1}"#, r#"{"memory": 1.5}"#, r#"{"memory": "much"}"#] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
