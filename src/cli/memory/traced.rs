//! `edgecut memory --trace`: liveness reports of a traced PyTorch graph.

use std::path::Path;

use miette::Report;

use super::{Memory, figures};
use crate::{
    cli::{Failure, Outcome, file},
    memory::fx,
    units::Bytes,
};

pub fn run(memory: &Memory, input: &Path) -> Outcome {
    let text = |path: &Path| Ok::<_, Failure>(String::from_utf8_lossy(&file::read(path)?).into_owned());
    let bad = |path: &Path, error| Failure::BadInput(Report::msg(format!("{}: {error}", path.display())));
    let times = match &memory.times {
        Some(path) => fx::times(&text(path)?).map_err(|error| bad(path, error))?,
        None => Vec::new(),
    };
    let backward = memory.backward.as_deref().map(text).transpose()?.unwrap_or_default();
    let trace = fx::parse(&text(input)?, &backward, &times).map_err(|error| bad(input, error))?;
    if let Some(folder) = &memory.liveness {
        figures::write_reports(folder, &trace, memory)?;
    }
    let used = trace.memory();
    let peak = used.iter().enumerate().max_by_key(|(index, m)| (m.total, std::cmp::Reverse(*index)));
    let globals: Bytes = trace.tensors.iter().filter(|t| t.global).map(|t| Bytes(t.bytes)).sum();
    let periods: usize = trace.lives().iter().map(|life| life.idle.len()).sum();
    println!("kernels       {}", trace.kernels.len());
    println!("tensors       {}, {globals} of them global", trace.tensors.len());
    if let Some((kernel, memory)) = peak {
        println!("peak          {} ({} bytes) at kernel {kernel}", Bytes(memory.total), memory.total);
    }
    println!("idle periods  {periods}");
    Ok(())
}
