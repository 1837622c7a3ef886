//! The file format: `pattern.json` and `best.json`.

use std::collections::HashMap;

use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::Value as Json;

use super::{
    error::PatternError,
    record::{Datum, FREE, Record, VIEW},
    tensor_graph::TensorGraph,
};
use edgecut_graph::units::{Bytes, Micros};

/// A DLMO program or schedule.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pattern {
    pub code: Vec<Record>,
    pub data: Vec<Datum>,
    pub outputs: Vec<u64>,
    /// Further fields of the file, which are kept.
    #[serde(flatten)]
    rest: serde_json::Map<String, Json>,
}

/// The fields that distinguish the two forms of a file. Each form is then parsed by itself, so that errors have positions.
#[derive(Deserialize)]
struct PatternForm {
    tensors: Option<IgnoredAny>,
}

impl Pattern {
    /// # Errors
    /// If the text is not JSON or a field is missing, with line and column.
    pub fn parse(text: &[u8]) -> Result<Pattern, PatternError> {
        let form: PatternForm = serde_json::from_slice(text)?;
        let pattern = match form.tensors {
            Some(_) => {
                let (code, data, outputs) = serde_json::from_slice::<TensorGraph>(text)?.records();
                Pattern { code, data, outputs, rest: serde_json::Map::new() }
            }
            None => serde_json::from_slice(text)?,
        };
        let sizes = pattern.data.iter().map(|d| d.size).chain(pattern.code.iter().map(|record| record.workspace));
        let all = sizes.map(u128::from).sum::<u128>();
        if all > 1 << 60 { Err(PatternError::Size) } else { Ok(pattern) }
    }

    /// Peak and time of the records as they are, with the deallocations of the file.
    pub fn figures(&self) -> (Bytes, Micros) {
        let sizes: HashMap<u64, u64> = self.data.iter().map(|d| (d.id, d.size)).collect();
        let size = |id: &u64| sizes.get(id).copied().unwrap_or(0);
        let mut alias: HashMap<u64, u64> = HashMap::new();
        let mut holders: HashMap<u64, Vec<u64>> = self.resident().into_iter().map(|id| (id, vec![id])).collect();
        let mut live: u64 = holders.keys().map(size).sum();
        let (mut peak, mut time) = (live, 0.0);
        for record in &self.code {
            match record.name.as_str() {
                FREE => {
                    for id in &record.outs {
                        let root = alias.get(id).copied().unwrap_or(*id);
                        let Some(names) = holders.get_mut(&root) else { continue };
                        names.retain(|name| name != id);
                        if names.is_empty() {
                            holders.remove(&root);
                            live -= size(&root);
                        }
                    }
                }
                VIEW => {
                    if let ([source], [view]) = (&record.ins[..], &record.outs[..]) {
                        let root = alias.get(source).copied().unwrap_or(*source);
                        alias.insert(*view, root);
                        let names = holders.entry(root).or_default();
                        if !names.contains(view) {
                            names.push(*view);
                        }
                    }
                }
                _ => {
                    for id in &record.outs {
                        let root = alias.get(id).copied().unwrap_or(*id);
                        let names = holders.entry(root).or_insert_with(|| {
                            live += size(&root);
                            Vec::new()
                        });
                        if !names.contains(id) {
                            names.push(*id);
                        }
                    }
                    peak = peak.max(live + record.workspace);
                    time += record.time;
                }
            }
        }
        (Bytes(peak), Micros(time))
    }

    /// The same pattern with other code.
    pub(crate) fn with_code(&self, code: Vec<Record>) -> Pattern {
        Pattern { code, data: self.data.clone(), outputs: self.outputs.clone(), rest: self.rest.clone() }
    }

    /// The ids that are read before they are written: they are live throughout.
    pub(super) fn resident(&self) -> Vec<u64> {
        let mut seen: HashMap<u64, ()> = HashMap::new();
        let mut found = Vec::new();
        for record in self.code.iter().filter(|record| record.name != FREE) {
            for id in &record.ins {
                if seen.insert(*id, ()).is_none() {
                    found.push(*id);
                }
            }
            seen.extend(record.outs.iter().map(|id| (*id, ())));
        }
        found
    }
}
