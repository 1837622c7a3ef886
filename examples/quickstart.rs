//! Profiles a model on this machine, plans it, and runs the plan.
//!
//! `cargo run --release --example quickstart models/resnet18.relay`

use std::{collections::BTreeMap, error::Error};

use edgecut::{
    session::{Events, Model, ModelOptions, PlanOptions, ProfileOptions, RunOptions, Site, SiteOptions},
    units::{Bytes, Micros},
};

/// Counts the program's allocations, to measure the memory of operators.
#[global_allocator]
static ALLOCATOR: edgecut::engine::CountingAllocator = edgecut::engine::CountingAllocator;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: quickstart MODEL")?;
    let model = Model::open(path, &ModelOptions::default())?;
    // With a cluster file in its options, the site is the servers of that cluster.
    let site = Site::open(&SiteOptions::default(), &Events::default())?;

    let options = ProfileOptions { budget: Micros(5e6), ..ProfileOptions::default() };
    let profiles = site.profile(&model, &options)?;
    println!("{} groups take {}", profiles.devices[0].rows.len(), profiles.summaries[0].sum.time);

    let options = PlanOptions { memory: Some(Bytes(512 << 20)), ..PlanOptions::default() };
    let plan = site.plan(&model, &profiles, &options)?;
    println!("predicted {}, {:.1} % above the bound", plan.predicted.latency_us, 100.0 * plan.gap);

    let runs = site.run(&model, &plan, &RunOptions { repeat: Some(20), ..RunOptions::default() })?;
    println!("measured {}", runs[0].result.outcome.latency.median_us);

    let deployed = site.deploy(&model, &plan)?;
    let outputs = deployed.run(&BTreeMap::new())?;
    println!("{} outputs, the first of type {}", outputs.len(), outputs[0].ty());
    Ok(())
}
