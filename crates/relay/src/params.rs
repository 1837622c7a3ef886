//! `.params` files, as written by `relay.save_param_dict`: names and tensors.

use std::collections::HashMap;

use bytes::Bytes;

use crate::{Fault, ImportError, record};
use edgecut_graph::TensorData;

const MAGIC: u64 = 0xF7E5_8D4F_0504_9CB7;

/// Contents of parameters by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Params {
    by_name: HashMap<String, TensorData>,
}

impl Params {
    /// Reads the bytes of a `.params` file; the tensors share them.
    ///
    /// # Errors
    /// If the file is not a `.params` file, or is truncated or damaged.
    pub fn read(file: &str, bytes: impl Into<Bytes>) -> Result<Params, ImportError> {
        parse(&bytes.into()).map_err(|what| ImportError {
            fault: Fault::Params(what),
            file: file.to_string(),
            spot: None,
        })
    }

    /// The parameter printed as `%name`. TVM prefixes names that do not start with a letter with `v`.
    pub fn get(&self, name: &str) -> Option<&TensorData> {
        self.by_name.get(name).or_else(|| self.by_name.get(name.strip_prefix('v')?))
    }

    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &TensorData)> {
        self.by_name.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// Serialises the parameters as a `.params` file, sorted by name.
    pub fn write(&self) -> Vec<u8> {
        let mut names: Vec<&String> = self.by_name.keys().collect();
        names.sort();
        let count = (names.len() as u64).to_le_bytes();
        let mut bytes: Vec<u8> = [MAGIC.to_le_bytes(), [0; 8], count].concat();
        for name in &names {
            bytes.extend((name.len() as u64).to_le_bytes());
            bytes.extend(name.as_bytes());
        }
        bytes.extend(count);
        names.iter().for_each(|name| bytes.extend(record::encode(&self.by_name[*name])));
        bytes
    }
}

impl FromIterator<(String, TensorData)> for Params {
    fn from_iter<I: IntoIterator<Item = (String, TensorData)>>(entries: I) -> Params {
        Params { by_name: entries.into_iter().collect() }
    }
}

fn parse(bytes: &Bytes) -> Result<Params, String> {
    let mut rest = bytes.clone();
    if word(&mut rest)? != MAGIC {
        return Err("it does not begin as one; expected a file written by `relay.save_param_dict`".to_string());
    }
    word(&mut rest)?;
    let count = word(&mut rest)?;
    let mut names = Vec::new();
    for _ in 0..count {
        let len = word(&mut rest)?;
        let len = usize::try_from(len).ok().filter(|len| *len <= rest.len()).ok_or("a name is longer than the file")?;
        names.push(String::from_utf8_lossy(&rest.split_to(len)).into_owned());
    }
    let tensors = word(&mut rest)?;
    if tensors != count {
        return Err(format!("it has {count} names but {tensors} tensors"));
    }
    let mut by_name = HashMap::with_capacity(names.len());
    for name in names {
        let (tensor, used) = record::decode(&rest).map_err(|what| format!("tensor `{name}`: {what}"))?;
        rest = rest.slice(used..);
        by_name.insert(name, tensor);
    }
    Ok(Params { by_name })
}

fn word(rest: &mut Bytes) -> Result<u64, String> {
    match rest.get(..8).and_then(|b| b.try_into().ok()) {
        Some(bytes) => {
            let value = u64::from_le_bytes(bytes);
            *rest = rest.slice(8..);
            Ok(value)
        }
        None => Err("it is cut".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::DType;

    #[test]
    fn writes_and_reads_and_refuses_what_is_cut() {
        let tensor = |n: u8| TensorData::new(DType::U8, [n as u64], vec![n; n as usize]).unwrap();
        let params: Params = [("a.weight".to_string(), tensor(3)), ("1".to_string(), tensor(1))].into_iter().collect();
        let bytes = params.write();
        let again = Params::read("m.params", bytes.clone()).unwrap();
        assert_eq!(again, params);
        assert_eq!(again.get("v1"), Some(&tensor(1)));
        for len in 0..bytes.len() {
            assert!(Params::read("m.params", bytes[..len].to_vec()).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn a_count_beyond_the_file_is_refused_at_once() {
        let bytes: Vec<u8> = [MAGIC, 0, u64::MAX].iter().flat_map(|w| w.to_le_bytes()).collect();
        assert!(Params::read("m.params", bytes).is_err());
    }
}
