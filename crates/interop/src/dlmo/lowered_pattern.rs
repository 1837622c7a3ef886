//! Lowering of a DLMO program, and schedules of it as records.

use std::collections::HashMap;

use serde_json::Value as Json;
use smallvec::SmallVec;

use super::{
    error::PatternError,
    pattern::Pattern,
    record::{FREE, Record, VIEW},
};
use edgecut_graph::units::{Bytes, Micros};
use edgecut_memory::{
    program::{Operator, Program, Value, ValueIndex},
    remat::ScheduleStep,
};

/// A pattern as a program, with what is needed to write schedules of it as records.
#[derive(Debug)]
pub struct LoweredPattern {
    pub program: Program,
    /// The record of each operator.
    records: Vec<usize>,
    /// The ids that share each storage, the owner first, and the records that make the views.
    ids: Vec<Vec<u64>>,
    views: Vec<Vec<usize>>,
}

impl LoweredPattern {
    /// Lowers a pattern.
    ///
    /// # Errors
    /// If a record uses a tensor that `data` does not define, or one that is freed.
    pub fn new(pattern: &Pattern) -> Result<LoweredPattern, PatternError> {
        PatternLowering::new(pattern).lower()
    }

    /// The records of a schedule, with every storage freed after its last use.
    pub fn code(&self, pattern: &Pattern, steps: &[ScheduleStep]) -> Vec<Record> {
        let program = &self.program;
        let runs: Vec<u32> =
            steps.iter().filter_map(|s| if let ScheduleStep::Run(o) = s { Some(*o) } else { None }).collect();
        let storages = self.ids.len();
        // For each storage whether it is allocated, and the last step that uses it.
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

/// State while the records are lowered in order.
struct PatternLowering<'a> {
    pattern: &'a Pattern,
    sizes: HashMap<u64, u64>,
    storage: HashMap<u64, u32>,
    /// The current value of each storage.
    current: Vec<Option<ValueIndex>>,
    /// The ids that hold each storage: it is freed with the last of them.
    holders: HashMap<u32, Vec<u64>>,
    lowered: LoweredPattern,
}

impl<'a> PatternLowering<'a> {
    fn new(pattern: &'a Pattern) -> PatternLowering<'a> {
        PatternLowering {
            pattern,
            sizes: pattern.data.iter().map(|d| (d.id, d.size)).collect(),
            storage: HashMap::new(),
            current: Vec::new(),
            holders: HashMap::new(),
            lowered: LoweredPattern {
                program: Program::default(),
                records: Vec::new(),
                ids: Vec::new(),
                views: Vec::new(),
            },
        }
    }

    fn lower(mut self) -> Result<LoweredPattern, PatternError> {
        for id in self.pattern.resident() {
            let storage = self.storage(id, 0)?;
            self.lowered.program.resident += Bytes(self.sizes[&id]);
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
            self.lowered.program.values[value as usize].result = true;
        }
        // Tensors that the program never frees are results.
        for value in self.current.iter().flatten() {
            self.lowered.program.values[*value as usize].result = true;
        }
        self.lowered.program.check()?;
        Ok(self.lowered)
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
            return Err(self.bad(index, "expected one input and one output"));
        };
        let storage = self.storage(*source, index)?;
        self.storage.insert(*view, storage);
        self.hold(storage, *view);
        let (ids, views) = (&mut self.lowered.ids[storage as usize], &mut self.lowered.views[storage as usize]);
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
            time: Micros(record.time),
            workspace: Bytes(record.workspace),
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
        let number = self.lowered.program.operators.len() as u32;
        let mut written: SmallVec<[u32; 2]> = SmallVec::new();
        for id in &record.outs {
            let storage = self.storage(*id, index)?;
            self.hold(storage, *id);
            if written.contains(&storage) {
                continue;
            }
            written.push(storage);
            let replaces = self.current[storage as usize].filter(|old| operator.reads.contains(old));
            let owner = self.lowered.ids[storage as usize][0];
            let resident = self.lowered.program.values.iter().any(|v| v.storage == storage && v.producer.is_none());
            let bytes = if resident { Bytes::ZERO } else { Bytes(self.sizes[&owner]) };
            // The previous content of an input cannot be recomputed.
            operator.repeatable &= !resident;
            let value = Value { bytes, producer: Some(number), replaces, ..Value::default() };
            operator.writes.push(self.value(storage, value));
        }
        self.lowered.program.operators.push(operator);
        self.lowered.records.push(index);
        Ok(())
    }

    fn value(&mut self, storage: u32, value: Value) -> ValueIndex {
        let index = self.lowered.program.values.len() as u32;
        self.lowered.program.values.push(Value { storage, ..value });
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
        self.lowered.ids.push(vec![id]);
        self.lowered.views.push(Vec::new());
        Ok(storage)
    }

    fn bad(&self, record: usize, what: &str) -> PatternError {
        let name = self.pattern.code[record].name.clone();
        PatternError::Record { record, name, what: what.to_string() }
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
    fn shared_storage_is_freed_with_its_last_id() {
        for one in ["[1]", "[2]"] {
            assert_eq!(LoweredPattern::new(&pattern(one)).unwrap().program.operators.len(), 2, "{one}");
        }
        let both = LoweredPattern::new(&pattern("[1, 2]"));
        assert!(both.is_err_and(|error| error.to_string().contains("read after it was freed")));
    }
}
