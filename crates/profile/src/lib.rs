//! Profiles: measured costs of a model's operators on a device, and the cost model fitted to them.
//!
//! | module | contents |
//! |---|---|
//! | [`items`], [`Signature`] | what is measured as one unit (an operator or a fused group), and what makes two units cost the same |
//! | [`measure`] | measurements: each signature in isolation, the model in order, the model as a whole |
//! | [`Sampling`], [`Cost`] | stopping criterion of a measurement, and its result |
//! | [`Energy`], [`MeteredDevice`] | what a run of an item consumes, where the device's server tells it; how that is measured |
//! | [`DevicePower`] | mean power of a device that computes, and its idle power |
//! | [`Conditions`], [`MachineLoad`] | when and how undisturbed it was measured; how busy this process and others keep the machine |
//! | `cache_flush` | [`CacheFlush`]: evicts an operator's data between two isolated runs |
//! | [`ProfileRow`], [`ProfiledDevice`], [`ProfiledShard`] | one line of the CSV table; its device; its shard, where it covers only part of an operator |
//! | [`ProfileStore`], [`ProfileKey`] | profiles on disk: appended while measuring, resumed and reused |
//! | [`reader`] | profile files given by the user, with errors by line and column |
//! | [`growth`] | time as a function of work, fitted to measurements |
//! | [`model`] | [`model::CostModel`]: measured costs, and estimates for signatures that were not measured |
//! | [`Calibration`], [`CalibrationRow`] | what runs take beyond isolated times, as parameters of a device |
//! | [`ProfileSummary`] | time by kind of operator, and its sum against the time of the whole model |
//!
//! A measurement needs an engine and a graph; the caller decides where results go. The command line writes them to a
//! [`ProfileStore`], an agent streams them. This crate does not know clusters, plans or the network.

mod cache_flush;
mod calibration;
mod conditions;
mod cost;
mod csv_file;
mod device;
mod device_power;
mod energy;
mod error;
mod family;
mod family_fit;
pub mod growth;
mod item;
mod key;
mod machine_load;
pub mod measure;
mod metering;
pub mod model;
mod prediction_error;
pub mod reader;
mod row;
mod sampling;
mod shard;
mod shard_overhead;
mod signature;
mod store;
mod summary;
mod warm_up_copy;

pub use cache_flush::CacheFlush;
pub use calibration::{Calibration, CalibrationRow, StepSample};
pub use conditions::{Conditions, Governor};
pub use cost::{Cost, Measurement};
pub use device::ProfiledDevice;
pub use device_power::DevicePower;
pub use energy::Energy;
pub use error::ProfileError;
pub use item::{Item, items, representatives};
pub use key::{ProfileKey, ProfiledBinding};
pub use machine_load::{BusyProcessors, MachineLoad};
pub use metering::MeteredDevice;
pub use prediction_error::FamilyError;
pub use row::{MeasurementMode, ProfileRow};
pub use sampling::{Sampling, SamplingError};
pub use shard::ProfiledShard;
pub use signature::Signature;
pub use store::ProfileStore;
pub use summary::{ModelTime, OperatorTotal, ProfileSummary, TotalKind};
