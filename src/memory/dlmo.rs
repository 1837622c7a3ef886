//! Programs as DLMO reads and writes them: `pattern.json` and `best.json`.
//!
//! `code` is a list of records that read the ids `ins` and write the ids `outs`; an id in both is overwritten in
//! place. `.dealloc` frees its `outs`; the one `out` of a `.share` is a view of its one `in`. An id that is read
//! before it is written lives throughout. A schedule has the same form, so it can be read again.

use std::collections::HashMap;

use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::Value as Json;
use smallvec::SmallVec;

use super::{
    fit::Step,
    program::{Operator, Program, ProgramError, Value, ValueIndex},
};

const FREE: &str = ".dealloc";
const VIEW: &str = ".share";

/// A file of DLMO's.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pattern {
    pub code: Vec<Record>,
    pub data: Vec<Datum>,
    pub outputs: Vec<u64>,
    /// What else the file has.
    #[serde(flatten)]
    rest: serde_json::Map<String, Json>,
}

/// One line of the program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub name: String,
    #[serde(default)]
    pub attr: Json,
    pub ins: Vec<u64>,
    pub outs: Vec<u64>,
    /// Bytes needed only while it runs.
    #[serde(default)]
    pub workspace: u64,
    /// Microseconds.
    #[serde(default)]
    pub time: f64,
}

/// One tensor.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Datum {
    pub id: u64,
    pub size: u64,
    #[serde(flatten)]
    rest: serde_json::Map<String, Json>,
}

/// What tells the two forms of a file apart. Each is then read by itself, so that an error has its line.
#[derive(Deserialize)]
struct Form {
    tensors: Option<IgnoredAny>,
}

/// The same program as bare tensors and operators, without frees.
#[derive(Deserialize)]
struct Graph {
    tensors: Vec<GraphTensor>,
    ops: Vec<GraphOperator>,
}

#[derive(Deserialize)]
struct GraphTensor {
    id: u64,
    size: u64,
    kind: String,
}

#[derive(Deserialize)]
struct GraphOperator {
    name: String,
    ins: Vec<u64>,
    outs: Vec<u64>,
    #[serde(default)]
    ws: u64,
    #[serde(default)]
    time_us: f64,
}

impl Graph {
    /// The pattern, with every activation freed after its last use.
    fn pattern(&self) -> Pattern {
        let kinds: HashMap<u64, &str> = self.tensors.iter().map(|t| (t.id, t.kind.as_str())).collect();
        let mut last: HashMap<u64, usize> = HashMap::new();
        for (index, op) in self.ops.iter().enumerate() {
            last.extend(op.ins.iter().chain(&op.outs).map(|id| (*id, index)));
        }
        let none = || Json::Object(serde_json::Map::new());
        let mut code = Vec::new();
        for (index, op) in self.ops.iter().enumerate() {
            let (ins, outs) = (op.ins.clone(), op.outs.clone());
            let (workspace, time) = (op.ws, op.time_us);
            code.push(Record { name: op.name.clone(), attr: none(), ins, outs, workspace, time });
            let mut freed: Vec<u64> = op.ins.iter().chain(&op.outs).copied().collect();
            freed.retain(|id| last[id] == index && kinds.get(id) == Some(&"act"));
            freed.sort_unstable();
            freed.dedup();
            if !freed.is_empty() {
                let (name, ins) = (FREE.to_string(), Vec::new());
                code.push(Record { name, attr: none(), ins, outs: freed, workspace: 0, time: 0.0 });
            }
        }
        let data = self.tensors.iter().map(|t| Datum { id: t.id, size: t.size, rest: serde_json::Map::new() });
        let made: HashMap<u64, ()> = self.ops.iter().flat_map(|op| &op.outs).map(|id| (*id, ())).collect();
        let handed_out = |t: &&GraphTensor| matches!(t.kind.as_str(), "grad" | "output") && made.contains_key(&t.id);
        let outputs = self.tensors.iter().filter(handed_out).map(|t| t.id).collect();
        Pattern { code, data: data.collect(), outputs, rest: serde_json::Map::new() }
    }
}

/// Why a pattern has no program.
#[derive(Debug, thiserror::Error)]
pub enum PatternError {
    #[error("no JSON of the expected form: {0}")]
    Json(#[from] serde_json::Error),
    #[error("code[{record}] (`{name}`): {what}")]
    Record { record: usize, name: String, what: String },
    #[error("outputs: nothing makes tensor {0}")]
    Output(u64),
    #[error("the sizes add up to more than 2^60 bytes")]
    Size,
    #[error(transparent)]
    Program(#[from] ProgramError),
}

/// A pattern as a program, and the way back.
#[derive(Debug)]
pub struct Reading {
    pub program: Program,
    /// For each operator its record in the pattern.
    pub records: Vec<usize>,
    /// For each storage the ids that lie in it, the owner first, and the records that make the views.
    ids: Vec<Vec<u64>>,
    views: Vec<Vec<usize>>,
}

impl Pattern {
    /// # Errors
    /// If the text is no JSON or a field is missing, with line and column.
    pub fn parse(text: &[u8]) -> Result<Pattern, PatternError> {
        let form: Form = serde_json::from_slice(text)?;
        let pattern = match form.tensors {
            Some(_) => serde_json::from_slice::<Graph>(text)?.pattern(),
            None => serde_json::from_slice(text)?,
        };
        let sizes = pattern.data.iter().map(|d| d.size).chain(pattern.code.iter().map(|record| record.workspace));
        let all = sizes.map(u128::from).sum::<u128>();
        if all > 1 << 60 { Err(PatternError::Size) } else { Ok(pattern) }
    }

    /// What the records say about values and their bytes.
    ///
    /// # Errors
    /// If a record uses a tensor that `data` lacks, or one that is freed.
    pub fn read(&self) -> Result<Reading, PatternError> {
        Reader::new(self).read()
    }

    /// Peak in bytes and time in microseconds of the records as they are, with the frees that are written.
    pub fn figures(&self) -> (u64, f64) {
        let sizes: HashMap<u64, u64> = self.data.iter().map(|d| (d.id, d.size)).collect();
        let size = |id: &u64| sizes.get(id).copied().unwrap_or(0);
        let mut alias: HashMap<u64, u64> = HashMap::new();
        let mut holders: HashMap<u64, Vec<u64>> = self.resident().into_iter().map(|id| (id, vec![id])).collect();
        let mut now: u64 = holders.keys().map(size).sum();
        let (mut peak, mut time) = (now, 0.0);
        for record in &self.code {
            match record.name.as_str() {
                FREE => {
                    for id in &record.outs {
                        let root = alias.get(id).copied().unwrap_or(*id);
                        let Some(names) = holders.get_mut(&root) else { continue };
                        names.retain(|name| name != id);
                        if names.is_empty() {
                            holders.remove(&root);
                            now -= size(&root);
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
                            now += size(&root);
                            Vec::new()
                        });
                        if !names.contains(id) {
                            names.push(*id);
                        }
                    }
                    peak = peak.max(now + record.workspace);
                    time += record.time;
                }
            }
        }
        (peak, time)
    }

    /// The same pattern with other code.
    pub fn with_code(&self, code: Vec<Record>) -> Pattern {
        Pattern { code, data: self.data.clone(), outputs: self.outputs.clone(), rest: self.rest.clone() }
    }

    /// The ids that are read before they are written.
    fn resident(&self) -> Vec<u64> {
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

/// The state while records are read one after the other.
struct Reader<'a> {
    pattern: &'a Pattern,
    sizes: HashMap<u64, u64>,
    storage: HashMap<u64, u32>,
    /// For each storage its current value.
    current: Vec<Option<ValueIndex>>,
    /// For each storage the names that hold it: it is freed with the last of them.
    holders: HashMap<u32, Vec<u64>>,
    reading: Reading,
}

impl<'a> Reader<'a> {
    fn new(pattern: &'a Pattern) -> Reader<'a> {
        Reader {
            pattern,
            sizes: pattern.data.iter().map(|d| (d.id, d.size)).collect(),
            storage: HashMap::new(),
            current: Vec::new(),
            holders: HashMap::new(),
            reading: Reading { program: Program::default(), records: Vec::new(), ids: Vec::new(), views: Vec::new() },
        }
    }

    fn read(mut self) -> Result<Reading, PatternError> {
        for id in self.pattern.resident() {
            let storage = self.storage(id, 0)?;
            self.reading.program.resident += self.sizes[&id];
            self.value(storage, Value::default());
            self.hold(storage, id);
        }
        for (index, record) in self.pattern.code.iter().enumerate() {
            match record.name.as_str() {
                FREE => self.free(record),
                VIEW => self.view(index, record)?,
                _ => self.operator(index, record)?,
            }
        }
        for id in &self.pattern.outputs {
            let storage = self.storage.get(id).copied();
            let value = storage.and_then(|s| self.current[s as usize]).ok_or(PatternError::Output(*id))?;
            self.reading.program.values[value as usize].result = true;
        }
        // What the program itself never frees is wanted by somebody.
        for value in self.current.iter().flatten() {
            self.reading.program.values[*value as usize].result = true;
        }
        self.reading.program.check()?;
        Ok(self.reading)
    }

    fn free(&mut self, record: &Record) {
        for id in &record.outs {
            let Some(storage) = self.storage.get(id) else { continue };
            let Some(names) = self.holders.get_mut(storage) else { continue };
            names.retain(|name| name != id);
            if names.is_empty() {
                self.holders.remove(storage);
                self.current[*storage as usize] = None;
            }
        }
    }

    fn hold(&mut self, storage: u32, id: u64) {
        let names = self.holders.entry(storage).or_default();
        if !names.contains(&id) {
            names.push(id);
        }
    }

    fn view(&mut self, index: usize, record: &Record) -> Result<(), PatternError> {
        let ([source], [view]) = (&record.ins[..], &record.outs[..]) else {
            return Err(self.bad(index, "expected one in and one out"));
        };
        let storage = self.storage(*source, index)?;
        self.storage.insert(*view, storage);
        self.hold(storage, *view);
        let (ids, views) = (&mut self.reading.ids[storage as usize], &mut self.reading.views[storage as usize]);
        if !ids.contains(view) {
            ids.push(*view);
            views.push(index);
        }
        Ok(())
    }

    fn operator(&mut self, index: usize, record: &Record) -> Result<(), PatternError> {
        if !(record.time >= 0.0 && record.time.is_finite()) {
            return Err(self.bad(index, "expected a time of 0 µs or more"));
        }
        let mut operator = Operator {
            time: record.time,
            workspace: record.workspace,
            repeatable: !["dropout", "rand"].iter().any(|random| record.name.contains(random)),
            ..Operator::default()
        };
        for id in &record.ins {
            let storage = self.storage(*id, index)?;
            let value = self.current[storage as usize]
                .ok_or_else(|| self.bad(index, &format!("tensor {id} is read after it was freed")))?;
            if !operator.reads.contains(&value) {
                operator.reads.push(value);
            }
        }
        let number = self.reading.program.operators.len() as u32;
        let mut written: SmallVec<[u32; 2]> = SmallVec::new();
        for id in &record.outs {
            let storage = self.storage(*id, index)?;
            self.hold(storage, *id);
            if written.contains(&storage) {
                continue;
            }
            written.push(storage);
            let replaces = self.current[storage as usize].filter(|old| operator.reads.contains(old));
            let owner = self.reading.ids[storage as usize][0];
            let resident = self.reading.program.values.iter().any(|v| v.storage == storage && v.producer.is_none());
            let bytes = if resident { 0 } else { self.sizes[&owner] };
            // The old content of an input cannot be had again.
            operator.repeatable &= !resident;
            let value = Value { bytes, producer: Some(number), replaces, ..Value::default() };
            operator.writes.push(self.value(storage, value));
        }
        self.reading.program.operators.push(operator);
        self.reading.records.push(index);
        Ok(())
    }

    fn value(&mut self, storage: u32, value: Value) -> ValueIndex {
        let index = self.reading.program.values.len() as u32;
        self.reading.program.values.push(Value { storage, ..value });
        self.current[storage as usize] = Some(index);
        index
    }

    fn storage(&mut self, id: u64, record: usize) -> Result<u32, PatternError> {
        if let Some(storage) = self.storage.get(&id) {
            return Ok(*storage);
        }
        if !self.sizes.contains_key(&id) {
            return Err(self.bad(record, &format!("tensor {id} is not in `data`")));
        }
        let storage = self.current.len() as u32;
        self.storage.insert(id, storage);
        self.current.push(None);
        self.reading.ids.push(vec![id]);
        self.reading.views.push(Vec::new());
        Ok(storage)
    }

    fn bad(&self, record: usize, what: &str) -> PatternError {
        let name = self.pattern.code[record].name.clone();
        PatternError::Record { record, name, what: what.to_string() }
    }
}

impl Reading {
    /// The records of a schedule, each storage freed after its last use.
    pub fn code(&self, pattern: &Pattern, steps: &[Step]) -> Vec<Record> {
        let program = &self.program;
        let runs: Vec<u32> = steps.iter().filter_map(|s| if let Step::Run(o) = s { Some(*o) } else { None }).collect();
        let storages = self.ids.len();
        // For each storage whether it is occupied, and the last step that touched it.
        let mut occupied: Vec<bool> = vec![false; storages];
        let mut last: Vec<usize> = vec![0; storages];
        let mut frees: Vec<Vec<u32>> = vec![Vec::new(); runs.len()];
        let mut begins: Vec<Vec<u32>> = vec![Vec::new(); runs.len()];
        for (step, &run) in runs.iter().enumerate() {
            let operator = program.operator(run);
            for &read in &operator.reads {
                last[program.value(read).storage as usize] = step;
            }
            for &write in &operator.writes {
                let value = program.value(write);
                let storage = value.storage as usize;
                if value.replaces.is_none() {
                    if occupied[storage] && last[storage] < step {
                        frees[last[storage]].push(value.storage);
                    }
                    begins[step].push(value.storage);
                }
                occupied[storage] = true;
                last[storage] = step;
            }
        }
        let mut kept = vec![false; storages];
        for value in program.values.iter().filter(|v| v.result || v.producer.is_none()) {
            kept[value.storage as usize] = true;
        }
        for storage in (0..storages).filter(|&s| occupied[s] && !kept[s]) {
            frees[last[storage]].push(storage as u32);
        }
        let mut code = Vec::new();
        for (step, &run) in runs.iter().enumerate() {
            code.push(pattern.code[self.records[run as usize]].clone());
            for &storage in &begins[step] {
                code.extend(self.views[storage as usize].iter().map(|&view| pattern.code[view].clone()));
            }
            if !frees[step].is_empty() {
                let outs = frees[step].iter().flat_map(|&s| self.ids[s as usize].iter().copied()).collect();
                let attr = Json::Object(serde_json::Map::new());
                code.push(Record { name: FREE.into(), attr, ins: Vec::new(), outs, workspace: 0, time: 0.0 });
            }
        }
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(freed: &str) -> Pattern {
        let text = format!(
            r#"{{"data": [{{"id": 0, "size": 8}}, {{"id": 1, "size": 64}}, {{"id": 2, "size": 64}}, {{"id": 3, "size": 4}}],
                "outputs": [3],
                "code": [
                    {{"name": "make", "attr": {{}}, "ins": [0], "outs": [1], "workspace": 0, "time": 1.0}},
                    {{"name": ".share", "attr": {{}}, "ins": [1], "outs": [2]}},
                    {{"name": ".dealloc", "attr": {{}}, "ins": [], "outs": {freed}}},
                    {{"name": "use", "attr": {{}}, "ins": [1], "outs": [3], "workspace": 0, "time": 1.0}}
                ]}}"#
        );
        Pattern::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn what_is_shared_is_freed_with_the_last_of_its_names() {
        for one in ["[1]", "[2]"] {
            assert_eq!(pattern(one).read().unwrap().program.operators.len(), 2, "{one}");
        }
        let both = pattern("[1, 2]").read();
        assert!(both.is_err_and(|error| error.to_string().contains("read after it was freed")));
    }
}
