//! Profiles: what every operator of a model costs on a device, measured.
//!
//! | module | what it does |
//! |---|---|
//! | [`items`] | what is measured as one: operators or fused groups, each with its [`Signature`] |
//! | [`measure`] | the measuring: each signature alone, the model in order, the model as a whole |
//! | [`Sampling`] | when there are enough samples |
//! | [`Row`], [`Store`] | the CSV table, written as rows come, resumed and reused |
//! | [`eop`], [`tvmdbg`], [`import`] | profiles that EOP's tool and TVM's debug executor took, as rows |
//! | [`files`] | profiles that somebody names, read with what is wrong in them |
//! | [`model`] | what was measured and estimates of what was not, with their errors |
//! | [`growth`] | how times grow with the work, fitted to measurements |
//! | [`Summary`] | time per kind of operator, and the check against the whole model |
//!
//! Measuring needs an engine and nothing else: the caller says where rows go, so that the same code serves
//! the command line and an agent that streams rows to somebody else.

pub mod eop;
pub mod files;
pub mod growth;
pub mod import;
mod item;
pub mod measure;
pub mod model;
mod sampling;
mod signature;
mod store;
mod summary;
mod surroundings;
mod table;
pub mod tvmdbg;

pub use item::{Item, fusion_class, items};
pub use sampling::Sampling;
pub use signature::Signature;
pub use store::{Key, Store, StoreError};
pub use summary::{Kind, Summary, Whole};
pub use surroundings::Surroundings;
pub use table::{Mode, Place, Row, Share};
