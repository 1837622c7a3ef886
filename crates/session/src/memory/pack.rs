//! Offsets for buffers with given lifetimes, in one arena or in several memories.

use std::path::Path;

use edgecut_graph::units::{Bytes, UnitError};
use edgecut_interop::minimalloc::BufferTable;
pub use edgecut_memory::Pool;
use edgecut_memory::{
    self as memory, Packing,
    arena::pools::{PoolError, pack_pools},
    check,
};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use super::effort::steps;
use crate::{
    Error,
    file_kind::{self as kind, FileKind},
    input as file, option_values,
};

/// Default number of placements that are tried, in millions.
const EFFORT: u64 = 300;

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
pub fn pack(table: &Path, options: &PackOptions) -> Result<Packed, Error> {
    if options.capacity.is_some() && !options.pool.is_empty() {
        return Err(Error::BadInput("option `capacity` has no effect with option `pool`".into()));
    }
    let bytes = file::read(table)?;
    let buffers =
        BufferTable::parse(&bytes).map_err(|error| kind::mismatch_error(table, &bytes, FileKind::Buffers, error))?;
    let search = memory::PackOptions { capacity: options.capacity, effort: steps(options.effort, EFFORT) };
    match options.pool.as_slice() {
        [] => in_arena(table, &buffers, &search),
        pools => in_pools(&buffers, pools, &search),
    }
}

fn in_arena(path: &Path, table: &BufferTable, search: &memory::PackOptions) -> Result<Packed, Error> {
    let packing = memory::pack(&table.buffers, search)
        .map_err(|error| Error::BadInput(format!("{}: {error}", path.display()).into()))?;
    check::packing(&table.buffers, &packing).map_err(Error::failed)?;
    if let Some(capacity) = search.capacity.filter(|capacity| packing.height > *capacity) {
        return Err(Error::NoPlan(too_small(capacity, packing.bound, packing.height).into()));
    }
    let summary = ArenaSummary {
        buffers: table.buffers.len(),
        arena_bytes: packing.height,
        bound_bytes: packing.bound,
        gap: packing.gap(),
        capacity_bytes: search.capacity,
    };
    Ok(Packed { summary: PackSummary::Arena(summary), csv: table.print(&packing) })
}

fn in_pools(table: &BufferTable, pools: &[Pool], search: &memory::PackOptions) -> Result<Packed, Error> {
    let pooled = pack_pools(&table.buffers, pools, search).map_err(|error| match error {
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
             option `effort` searches longer",
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
