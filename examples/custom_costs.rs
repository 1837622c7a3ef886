//! Plans a model for devices that were not measured, with custom costs: here a roofline model of each device.
//!
//! `cargo run --release --example custom_costs models/resnet18.relay`

use std::error::Error;

use edgecut::{
    engine::EngineId,
    graph::Granularity,
    profile::{Conditions, Cost, Item, MeasurementMode, ProfileRow, ProfiledDevice, items},
    session::{Events, Model, ModelOptions, PlanOptions, RecordedModel},
    statistics::Statistics,
    units::{Bytes, Micros},
};

/// A device as its data sheet describes it.
struct DataSheet {
    device: &'static str,
    /// Operations per microsecond.
    flops: f64,
    /// Bytes per microsecond.
    bandwidth: f64,
    /// Minimum time of a kernel, in microseconds.
    launch: f64,
}

const BOARD: [DataSheet; 2] = [
    DataSheet { device: "cpu", flops: 2e5, bandwidth: 2e4, launch: 1.0 },
    DataSheet { device: "gpu0", flops: 2e6, bandwidth: 1e5, launch: 20.0 },
];

impl DataSheet {
    fn cost(&self, item: &Item) -> Option<Cost> {
        let time = (item.flops as f64 / self.flops).max(item.bytes.0 as f64 / self.bandwidth).max(self.launch);
        Some(Cost {
            time: Statistics::of(&[Micros(time)])?,
            cpu: Micros(time),
            kernels: None,
            workspace: Bytes::ZERO,
            held: item.parameter_bytes,
            disturbed: 0.0,
            energy: None,
            conditions: Conditions::default(),
        })
    }

    fn rows(&self, items: &[Item]) -> Vec<ProfileRow> {
        let device = ProfiledDevice {
            server: "board".to_string(),
            device: self.device.to_string(),
            hardware: "data sheet".to_string(),
            engine: EngineId { name: "roofline".to_string(), version: String::new() },
            threads: 1,
        };
        let (mode, granularity) = (MeasurementMode::Isolated, Granularity::Fused);
        let row = |(id, item)| {
            let cost = self.cost(item).ok_or_else(|| "it has no cost".to_string());
            ProfileRow::new(&device, mode, granularity, id, item, &cost)
        };
        items.iter().enumerate().map(row).collect()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: custom_costs MODEL")?;
    let model = Model::open(path, &ModelOptions::default())?;
    let items = items(model.graph(), Granularity::Fused);
    let rows = BOARD.iter().flat_map(|sheet| sheet.rows(&items)).collect();
    let plan = RecordedModel::from_rows(model, rows, None, &Events::default())?.plan(&PlanOptions::default())?;
    for device in &plan.devices {
        println!("{}: {} groups, busy {}", device.device_name(), device.order.len(), device.busy_us);
    }
    println!("latency {}, {:.1} % above the bound", plan.predicted.latency_us, 100.0 * plan.gap);
    Ok(())
}
