//! Surveys: the profile of one model on the devices of a cluster.
//!
//! | module | contents |
//! |---|---|
//! | [`survey`] (`devices`) | profiles every device by its own agent and stores the rows as they arrive |
//! | [`SurveyRequest`] (`request`) | what to measure, progress, errors |
//! | `shard_costs`, `shard` | shards of the items, for planning splits; one shard on one device |

mod devices;
mod request;
mod shard;
mod shard_costs;

pub(crate) use devices::profiled_device;
pub use devices::{DeviceProfile, survey};
pub use request::{MissingPolicy, SurveyError, SurveyProgress, SurveyRequest};
pub(crate) use shard::measure_shard;
