//! Requests to the planner, from a model, devices and profiles.
//!
//! | module | contents |
//! |---|---|
//! | `plan_settings` | the request, and what it is made of |
//! | `recorded` | devices and profiles that were read from files |
//! | `costs`, `network` | tables of the request: groups, devices and links |
//! | `shards` | costs of shards, measured as plans ask for them |
//! | `idle_power`, `unknown_energy` | the idle power of devices; the refusal of a request for energy without energy |

mod costs;
mod idle_power;
mod network;
mod plan_settings;
pub(crate) mod recorded;
pub(crate) mod shards;
mod unknown_energy;

pub use network::{NetworkError, network};
pub use plan_settings::{DeviceRows, ModelGroups, RequestError};
pub(crate) use plan_settings::{Like, PlanSettings, energy_warnings};
pub use unknown_energy::UnknownEnergy;
