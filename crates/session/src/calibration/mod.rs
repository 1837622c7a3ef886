//! Calibration: what runs take beyond isolated profiles, learnt once for a device and used for every model.
//!
//! | module | contents |
//! |---|---|
//! | [`calibrate`] | profiles a small model on every device, runs it on each and on pairs of them, and fits the parameters |
//! | `model` | that model |
//! | `steps` | the steps of a run as samples of the fit |
//! | [`CalibrationTable`] (`table`) | the file `calibration.csv` |

mod calibrate;
mod model;
mod steps;
mod table;

pub(crate) use calibrate::{CalibrationRequest, calibrate};
pub use table::{CalibrationTable, CalibrationTableError, Stale};
