//! Offsets for buffers with given lifetimes, in one arena or in several memories.

use std::{
    ops::ControlFlow,
    path::Path,
    time::{Duration, Instant},
};

use edgecut_graph::units::{Bytes, UnitError};
use edgecut_interop::minimalloc::BufferTable;
pub use edgecut_memory::Pool;
use edgecut_memory::{
    self as memory, Packing,
    arena::{
        ArenaError, pack_watched,
        pools::{PoolError, pack_pools_watched},
        watch::{Standing, Watcher},
    },
    check,
};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use super::effort::steps;
use crate::{
    Error, Event, Events,
    file_kind::{self as kind, FileKind},
    input as file, option_values,
    plan::options::{TimeLimit, time_limit},
};

/// Default number of placements that are tried, in millions.
const EFFORT: u64 = 300;

/// Default time limit. What the default effort takes is a fraction of it, unless there are millions of buffers.
const LIMIT: Duration = Duration::from_secs(45);

/// How often progress is reported.
const REPORT: Duration = Duration::from_millis(200);

/// How buffers are packed. By default, into the smallest arena that is found.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PackOptions {
    /// Find a packing that fits in this size. It is an error if none is found.
    #[serde(deserialize_with = "option_values::optional_size")]
    pub capacity: Option<Bytes>,
    /// Memories for the buffers, in order of preference: `NAME=SIZE`. What does not fit goes to the next one. The last
    /// one may be without a size, and takes the rest.
    #[serde(deserialize_with = "pools")]
    pub pool: Vec<Pool>,
    /// Millions of placements to try. By default, 300; 30 take about 1 s.
    pub effort: Option<u64>,
    /// Stop the search after this time with the best packing so far. By default, 45 s.
    #[serde(deserialize_with = "time_limit")]
    pub time_limit: TimeLimit,
}

/// Packed buffers.
pub struct Packed {
    pub summary: PackSummary,
    /// The file with a column `offset`.
    pub csv: String,
}

/// The figures of a packing.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum PackSummary {
    Arena(ArenaSummary),
    /// One for each memory.
    Pools(Vec<PoolSummary>),
}

/// The figures of one arena.
#[derive(Debug, Serialize)]
pub struct ArenaSummary {
    pub buffers: usize,
    pub arena_bytes: Bytes,
    pub bound_bytes: Bytes,
    pub gap: f64,
    pub capacity_bytes: Option<Bytes>,
}

/// The figures of one memory of several.
#[derive(Debug, Serialize)]
pub struct PoolSummary {
    pub pool: String,
    pub capacity_bytes: Option<Bytes>,
    pub buffers: usize,
    pub arena_bytes: Bytes,
    /// Of the arena for the buffers that lie in this memory.
    pub bound_bytes: Bytes,
}

/// Packs the buffers of `table`, MiniMalloc's CSV: id, lower, upper, size, and optionally alignment and offset.
///
/// # Errors
/// If the file cannot be read, the options contradict each other, or the buffers do not fit.
pub fn pack(table: &Path, options: &PackOptions, events: &Events) -> Result<Packed, Error> {
    if options.capacity.is_some() && !options.pool.is_empty() {
        return Err(Error::BadInput("option `capacity` has no effect with option `pool`".into()));
    }
    let bytes = file::read(table)?;
    let buffers =
        BufferTable::parse(&bytes).map_err(|error| kind::mismatch_error(table, &bytes, FileKind::Buffers, error))?;
    let search = memory::PackOptions { capacity: options.capacity, effort: steps(options.effort, EFFORT) };
    let search = Search { options: search, time_limit: options.time_limit, events };
    match options.pool.as_slice() {
        [] => in_arena(table, &buffers, &search),
        pools => in_pools(&buffers, pools, &search),
    }
}

/// A search that is shown and can be stopped.
struct Search<'a> {
    options: memory::PackOptions,
    time_limit: TimeLimit,
    events: &'a Events,
}

impl Search<'_> {
    /// Does `work` until it is finished, or its watcher stops it.
    fn run<T>(&self, buffers: usize, work: impl FnOnce(&mut Watcher<'_>) -> T) -> Result<T, Error> {
        let limit = match self.time_limit {
            TimeLimit::Of(limit) => Some(limit.to_duration().unwrap_or(Duration::MAX)),
            TimeLimit::None => None,
            TimeLimit::Auto => Some(LIMIT),
        };
        let stop = self.events.stop(limit, "the best packing so far is used");
        let shown = self.events.progress();
        let mut reported: Option<Instant> = None;
        let mut is_stopped = false;
        let packed = work(&mut |standing| {
            if stop.is_requested() {
                is_stopped = true;
                return ControlFlow::Break(());
            }
            if reported.is_none_or(|at| at.elapsed() >= REPORT) {
                reported = Some(Instant::now());
                let what = progress(buffers, standing);
                self.events.emit(Event::Planning { what: &what, remaining: stop.remaining() });
            }
            ControlFlow::Continue(())
        });
        drop(shown);
        if self.events.is_unwanted() {
            return Err(Error::Cancelled);
        }
        if is_stopped && stop.is_over() {
            let longer =
                if self.time_limit == TimeLimit::Auto { " (option `time_limit=none` lets it end)" } else { "" };
            self.events.status(format_args!("time limit reached: this is the best packing so far{longer}"));
        }
        Ok(packed)
    }
}

/// What is shown of a search.
fn progress(buffers: usize, standing: Standing) -> String {
    match standing.height {
        Some(height) => {
            let above = (height.0 as f64 / standing.bound.0.max(1) as f64 - 1.0).max(0.0);
            format!("packing {buffers} buffers: {height}, {:.2} % above the lower bound", 100.0 * above)
        }
        None => format!("packing {buffers} buffers"),
    }
}

fn in_arena(path: &Path, table: &BufferTable, search: &Search<'_>) -> Result<Packed, Error> {
    let capacity = search.options.capacity;
    let refused = |error: ArenaError| Error::BadInput(format!("{}: {error}", path.display()).into());
    let packed = search.run(table.buffers.len(), |watcher| pack_watched(&table.buffers, &search.options, watcher))?;
    let packing = packed.map_err(refused)?;
    check::packing(&table.buffers, &packing).map_err(Error::failed)?;
    if let Some(capacity) = capacity.filter(|capacity| packing.height > *capacity) {
        return Err(Error::NoPlan(too_small(capacity, packing.bound, packing.height).into()));
    }
    let summary = ArenaSummary {
        buffers: table.buffers.len(),
        arena_bytes: packing.height,
        bound_bytes: packing.bound,
        gap: packing.gap(),
        capacity_bytes: capacity,
    };
    Ok(Packed { summary: PackSummary::Arena(summary), csv: table.print(&packing) })
}

fn in_pools(table: &BufferTable, pools: &[Pool], search: &Search<'_>) -> Result<Packed, Error> {
    let packed = search
        .run(table.buffers.len(), |watcher| pack_pools_watched(&table.buffers, pools, &search.options, watcher))?;
    let pooled = packed.map_err(|error| match error {
        PoolError::Full { .. } => Error::NoPlan(error.to_string().into()),
        PoolError::Arena(error) => Error::bad_input(error),
    })?;
    check::pools(&table.buffers, pools, &pooled).map_err(Error::failed)?;
    let names: Vec<&str> = pooled.pools.iter().map(|&pool| pools[pool].name.as_str()).collect();
    let summary = |(pool, packing): (&Pool, &Packing)| PoolSummary {
        pool: pool.name.clone(),
        capacity_bytes: pool.capacity,
        buffers: packing.offsets.len(),
        arena_bytes: packing.height,
        bound_bytes: packing.bound,
    };
    let summary = PackSummary::Pools(pools.iter().zip(&pooled.packings).map(summary).collect());
    Ok(Packed { summary, csv: table.print_pools(&pooled.offsets(), &names) })
}

fn too_small(capacity: Bytes, bound: Bytes, height: Bytes) -> String {
    match bound > capacity {
        true => format!(
            "no packing fits in {} bytes: the buffers need at least {} bytes, {} more",
            capacity.0,
            bound.0,
            capacity.shortfall(bound)
        ),
        false => format!(
            "no packing within {} bytes was found: the best one takes {} bytes, the lower bound is {}; \
             raise option `effort` and option `time_limit` to search longer",
            capacity.0, height.0, bound.0
        ),
    }
}

/// Parses `sram=100KB`, or a name alone.
///
/// # Errors
/// If the size is not a size with a unit.
pub fn pool(text: &str) -> Result<Pool, UnitError> {
    let (name, capacity) = text.split_once('=').map_or((text, None), |(name, size)| (name, Some(size)));
    Ok(Pool { name: name.to_string(), capacity: capacity.map(Bytes::with_unit).transpose()? })
}

fn pools<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Pool>, D::Error> {
    let texts: Vec<String> = option_values::list(deserializer)?;
    let pool = |text: &String| pool(text).map_err(|error| D::Error::custom(format!("`{text}`: {error}")));
    texts.iter().map(pool).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_read_from_json() {
        let options: PackOptions = option_values::read(r#"{"pool": ["sram=100KiB", "dram"], "effort": 1}"#).unwrap();
        let pool = |name: &str, capacity| Pool { name: name.to_string(), capacity };
        assert_eq!(options.pool, [pool("sram", Some(Bytes(100 << 10))), pool("dram", None)]);
        assert!(option_values::read::<PackOptions>(r#"{"pool": "sram=much"}"#).is_err());
    }
}
