//! The energy that a device consumes, where the system tells it.
//!
//! | module | contents |
//! |---|---|
//! | [`EnergyMeter`], [`EnergyReading`] (`meter`) | finds the source of a device; a measurement in progress |
//! | `powercap`, `hwmon`, `nvml` (feature `cuda`) | one source each |
//! | `power_chips` | whose sensors `hwmon` counts |
//! | [`EnergySource`] (`source`), `probe` | the kinds of sources, and what they have in common |
//! | `counter`, `sysfs` | counters that start again from 0; files of one value |
//! | [`NoEnergySource`], [`Absence`], [`EnergyLost`] (`error`) | why there is no source, or no longer one |
//!
//! What a source counts is a whole package, board or GPU, with what it draws when idle and with all processes that use it.

mod counter;
mod error;
mod hwmon;
mod meter;
#[cfg(feature = "cuda")]
mod nvml;
mod power_chips;
mod powercap;
mod probe;
mod source;
mod sysfs;

pub use error::{Absence, AbsentSource, EnergyLost, NoEnergySource};
pub use meter::{EnergyMeter, EnergyReading, MeteredEnergy};
pub use source::EnergySource;
