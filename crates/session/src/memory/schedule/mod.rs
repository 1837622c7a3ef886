//! Schedules that need less memory, of models and of other planners' graphs: by another order of operators,
//! recomputation, segments in parts with halos, and copies to a host or a neighbour.
//!
//! | module | what it does |
//! |---|---|
//! | [`options`] | what a schedule must keep, and how it is searched |
//! | [`model`], [`row`] | schedules of a model, with their arenas, run on this machine; rows of them |
//! | [`offload`] | schedules whose tensors wait on another server, run on agents |
//! | [`graph`], [`seeds`] | schedules of a DLMO or MAGIS graph; the results of several seeds |
//! | [`batch`] | many graphs, each under its limit |
//! | `search` | reads a DLMO or MAGIS graph and searches its schedules |

pub mod batch;
pub mod graph;
pub mod model;
pub mod offload;
pub mod options;
pub mod row;
mod search;
pub mod seeds;

use std::path::Path;

use edgecut_interop::network::Network;

use super::subject::NETWORK;
use crate::{Error, Events, file_kind::is_json_object, ineffective::refuse, input as file};
pub use batch::schedule_batch;
use graph::{GraphFront, GraphSchedule};
use model::ModelSchedules;
use options::ScheduleOptions;
use seeds::SeedRow;

/// The schedules of an input, by its kind and the options.
pub enum Scheduled {
    /// Of a model or of a network of bare tensors.
    Model(Box<ModelSchedules>),
    /// Of a DLMO or MAGIS graph, under a target.
    Graph(Box<GraphSchedule>),
    /// Of such a graph, without a target.
    Front(GraphFront),
    /// Of such a graph from several seeds, under a target.
    Seeds(Vec<SeedRow>),
}

/// Finds schedules of `input`: an ONNX model, Relay text, a DLMO or MAGIS graph (JSON), or a network of bare tensors
/// (JSON).
///
/// # Errors
/// If a file cannot be read, the options contradict each other or have no effect, or no schedule keeps the target. The
/// run of a schedule is checked by [`ModelSchedules::check`].
pub fn schedule(input: &Path, options: &ScheduleOptions, events: &Events) -> Result<Scheduled, Error> {
    options.check()?;
    let (bytes, subject) = (file::read(input)?, &options.subject);
    let subject = if !is_json_object(&bytes) {
        refuse(&[options.of_seeds()], &subject.defaults, "a model")?;
        subject.read_model(input, events)?
    } else if Network::states_elementwise(&bytes) {
        let mut given = subject.of_models();
        given.extend(options.of_execution());
        given.push(options.of_seeds());
        refuse(&given, &subject.defaults, NETWORK)?;
        subject.read_network(input, &bytes)?
    } else {
        let mut given = subject.all();
        given.extend(options.of_execution());
        refuse(&given, &subject.defaults, "a graph of DLMO or MAGIS")?;
        return of_graph(input, &bytes, options, events);
    };
    Ok(Scheduled::Model(Box::new(model::schedules(&subject, options, events)?)))
}

/// The schedules of a DLMO or MAGIS graph, which is the content `bytes` of the file `input`.
fn of_graph(input: &Path, bytes: &[u8], options: &ScheduleOptions, events: &Events) -> Result<Scheduled, Error> {
    let (workload, target) = (search::parse(input, bytes)?, options.target());
    if let (Some(count), Some(target)) = (options.seeds, target) {
        return seeds::search_seeds(&workload, target, &options.search(), count, events).map(Scheduled::Seeds);
    }
    let solved = search::solve(&workload, &options.search(), events)?;
    Ok(match target {
        Some(target) => Scheduled::Graph(Box::new(graph::best(&workload, &solved, target)?)),
        None => Scheduled::Front(graph::front(&solved)),
    })
}
