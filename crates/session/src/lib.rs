//! From a model to a run: the verbs of edgecut as functions.
//!
//! Each verb takes a model or a site and a struct of options, and returns its result. The command line and the Python
//! package fill the same structs.
//!
//! ```no_run
//! use edgecut_session::{Events, Model, ModelOptions, PlanOptions, ProfileOptions, RunOptions, Site, SiteOptions};
//!
//! # fn main() -> Result<(), edgecut_session::Error> {
//! let model = Model::open("m.onnx", &ModelOptions::default())?;
//! let site = SiteOptions { cluster: Some("lab.toml".into()), ..SiteOptions::default() };
//! let site = Site::open(&site, &Events::default())?;
//! let profiles = site.profile(&model, &ProfileOptions::default())?;
//! let plan = site.plan(&model, &profiles, &PlanOptions::default())?;
//! for run in site.run(&model, &plan, &RunOptions::default())? {
//!     println!("{} for {}", run.result.outcome.latency.median_us, run.plan.predicted.latency_us);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`model`] | models, read with the contents of inputs and parameters |
//! | [`decoder`] | models with states: the sizes, states and inputs of a step |
//! | [`site`], [`cluster`], [`devices`] | the devices in use: agents of a cluster, or this machine |
//! | [`cluster_check`] | whether each server of a cluster can be used |
//! | [`profile`], [`profile_source`] | what each group costs on each device: measured, or read from files |
//! | [`survey`](mod@survey), [`calibration`] | the profile of a model on all devices; what runs take beyond profiles, learnt once for a device |
//! | [`request`] | requests to the planner |
//! | `pilot` | plans made on agents: replanning, pilot runs, the choice among candidates |
//! | [`plan`], [`plan_file`], [`calibrations`] | plans for a site or for recorded profiles; plan files; calibrations |
//! | [`run`], [`outputs`] | runs of plans on agents, runs of models on this machine; their outputs |
//! | [`export`] | models and plans as files for other tools |
//! | `subjects` | inputs of reports and comparisons, recognised by their content |
//! | [`report`], [`compare`] | HTML pages, cost models; comparisons |
//! | [`profile_import`], `ort_names` | profiles that other tools measured; ONNX Runtime's names of a model's operators |
//! | [`workload`] | device-placement workloads |
//! | [`sharding`] | shardings of an ONNX file as plans, and back |
//! | [`operators`], [`engine`] | the Relay operators that are known; engines, as options choose them |
//! | `failover` | plans for the servers that are left |
//! | [`memory`] | memory of one device: arenas, packings, liveness, schedules within a limit |
//! | [`events`] | progress and cancellation |
//! | [`error`], [`option_text`] | errors, and how their messages name options |
//! | [`file_kind`], [`input`], [`output`], [`located`] | kinds of files; reading, writing; errors with a path |
//! | [`option_values`], [`ineffective`] | deserialisation of options; options without effect |
//! | [`busy`], [`runtime`] | warnings about busy machines; the runtime for network I/O |

pub mod busy;
pub mod calibration;
pub mod calibrations;
pub mod cluster;
pub mod cluster_check;
pub mod compare;
pub mod decoder;
pub mod devices;
pub mod engine;
pub mod error;
pub mod events;
pub mod export;
mod failover;
pub mod file_kind;
pub mod ineffective;
pub mod input;
pub mod located;
pub mod memory;
pub mod model;
pub mod operators;
pub mod option_text;
pub mod option_values;
mod ort_names;
pub mod output;
pub mod outputs;
mod pilot;
pub mod plan;
pub mod plan_file;
pub mod profile;
pub mod profile_import;
pub mod profile_source;
pub mod report;
pub mod request;
pub mod run;
pub mod runtime;
pub mod sharding;
pub mod site;
mod subjects;
pub mod survey;
pub mod workload;

pub use error::Error;
pub use events::{Cancellation, Event, Events};
pub use model::{Model, options::ModelOptions};
pub use plan::{options::PlanOptions, recorded::RecordedModel};
pub use profile::{ProfileOptions, Profiles};
pub use run::{deployed::Deployed, execution::PlanRun, options::RunOptions};
pub use site::{Site, SiteOptions};
