//! The agent itself: it owns this server's devices and serves clients and peers.
//!
//! | module | contents |
//! |---|---|
//! | [`host`] | [`Host`]: devices, sessions, clock; called directly by an embedded agent, through `service` by others |
//! | [`machine`], [`device`] | the hardware as the operating system reports it; a device's thread, engines and lease |
//! | [`logged_engine`] | notes what is computed, for when it kills the process |
//! | [`run`] | one run: admit, load, connect, serve inferences |
//! | [`session`], [`run_state`] | a loaded run: a lock around a state machine that has no clock, thread or socket |
//! | [`execute`], [`transfer`] | what computes a session's stages, and what moves its values between agents |
//! | [`run_energy`], [`run_load`] | the energy meters of a server, and the load of its machine, during a run |
//! | [`profile`], [`probe`] | measurements of operators and of links |
//! | [`measurement_lock`] | makes measurements of all processes on this machine take turns |
//! | [`service`], [`serve`], [`accept`] | the gRPC service, its server, and which connections reach it |
//! | [`open_connections`], [`counted_requests`], [`closable`] | which connections are in use, and which is closed for a new one |
//! | [`client_id`], [`connection_info`], [`authorization`] | who is at the other end of a connection, and what it may do |
//! | [`concurrency_limit`] | how many runs, profiles and measurements are served at the same time |
//! | [`setup_limits`] | limits on the lists and numbers of a setup |
//! | [`received`] | the bytes that clients have sent and the agent still has |
//! | [`weight_store`] | the large constants that clients have sent, held between their calls |
//! | [`job_log`], [`device_user`] | the log of connections, jobs and leases |
//! | [`metrics`], [`http`] | what is counted, and how it is read |

mod accept;
mod authorization;
mod client_id;
mod closable;
mod concurrency_limit;
mod connection_info;
mod counted_requests;
mod device;
mod device_user;
mod error;
mod execute;
mod host;
mod http;
mod job_log;
mod limited_listener;
mod lingering;
mod logged_engine;
mod machine;
mod measurement_lock;
mod metrics;
mod open_connections;
mod probe;
mod profile;
mod received;
mod run;
mod run_energy;
mod run_load;
mod run_state;
mod serve;
mod service;
mod session;
mod setup_limits;
mod shared_memory;
mod transfer;
mod weight_store;

pub use error::HostError;
pub use host::{Host, HostOptions, OfferedGpus};
pub use http::serve_metrics;
pub use machine::total_memory;

pub use serve::{ServeError, serve};
pub use transfer::receive_recorded;
