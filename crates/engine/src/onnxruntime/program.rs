//! A graph as programs, each a session or a part for the embedded engine.
//!
//! Which operators ONNX Runtime has no kernel for, with their types, only its own check of a session tells: a session that
//! is refused is divided around the operators that the refusal is about.

use std::{collections::HashSet, path::Path};

use edgecut_graph::{Graph, OperatorId, Part, Parts, TensorData, TensorId};
use edgecut_onnx::{ExportOptions, export, expressible};

use super::{
    context::OrtContext,
    segments::{Segment, segments},
    session::{OrtSession, SessionError},
    shared_weights::SharedWeights,
};
use crate::{Engine, EngineError, Executable, Fallback, ParameterSource, step_tensors::StepTensors};

/// Maximum bytes of weights that a session packs again, unless it cannot be divided further. A session boundary costs
/// microseconds, a step of several tokens milliseconds.
const MAX_PACKED_AGAIN: usize = 64 << 20;

/// Operators that are computed as one.
pub(super) struct Program {
    pub tensors: StepTensors,
    pub computed: Computed,
}

/// What computes a program.
pub(super) enum Computed {
    /// With the operators of the graph by the names of operators in the session's model.
    Session(Box<OrtSession>),
    /// Each operator is a step of its own.
    Embedded { executable: Box<dyn Executable>, operators: Vec<OperatorId>, graph: Box<Graph> },
}

/// The programs of a graph, being prepared.
struct Preparation<'a> {
    context: &'a OrtContext,
    graph: &'a Graph,
    parameter: &'a ParameterSource<'a>,
    /// Where sessions write their profiles.
    profile: Option<&'a Path>,
    /// By operator: why ONNX Runtime cannot compute it.
    refused: Vec<Option<String>>,
    /// The addresses of the weights that sessions had before.
    packed: HashSet<usize>,
}

/// Prepares `graph`: its programs in an order that can be run, and the operators that the embedded engine computes.
pub(super) fn prepare(
    context: &OrtContext,
    graph: &Graph,
    parameter: &ParameterSource<'_>,
    profile: Option<&Path>,
) -> Result<(Vec<Program>, Vec<Fallback>), EngineError> {
    let refused = vec![None; graph.operators().len()];
    let packed = context.shared.as_deref().map(SharedWeights::addresses).unwrap_or_default();
    let mut preparation = Preparation { context, graph, parameter, profile, refused, packed };
    preparation.refuse_inexpressible();
    // Every refusal concerns an operator that was not refused before.
    let programs = loop {
        if let Some(programs) = preparation.programs()? {
            break programs;
        }
    };
    let fallbacks = graph.operators().filter_map(|(id, _)| {
        let reason = preparation.refused[id.0 as usize].clone()?;
        Some(Fallback { operator: graph.unique_name(id).to_string(), reason })
    });
    let fallbacks = fallbacks.collect();
    Ok((programs, fallbacks))
}

impl Preparation<'_> {
    /// The content of the parameter `id` of the whole graph. Generating it is no memory of this engine.
    fn content(&self, id: TensorId) -> Result<Option<TensorData>, String> {
        let content = crate::AllocationMeter::pause(|| (self.parameter)(id));
        content.map(Some).map_err(|error| error.to_string())
    }

    /// Refuses the operators that cannot be written as ONNX.
    fn refuse_inexpressible(&mut self) {
        let parts = Parts::of(self.graph);
        for (id, _) in self.graph.operators() {
            // What depends on the content of a parameter is decided with it.
            let Err(unsupported) = expressible(self.graph, id) else { continue };
            let alone = parts.cut(&[id]);
            let content = |t: TensorId| self.content(alone.whole_tensor[t.0 as usize]);
            if export(&alone.graph, &ExportOptions::new(&content)).is_err() {
                self.refused[id.0 as usize] = Some(unsupported.reason);
            }
        }
    }

    /// All programs; `None` if more operators have been refused.
    fn programs(&mut self) -> Result<Option<Vec<Program>>, EngineError> {
        let is_embedded: Vec<bool> = self.refused.iter().map(Option::is_some).collect();
        let (mut programs, parts) = (Vec::new(), Parts::of(self.graph));
        for segment in self.divided(segments(self.graph, &is_embedded)) {
            let part = parts.cut(&segment.operators);
            if part.graph.outputs.is_empty() {
                continue;
            }
            let computed = match segment.is_embedded {
                true => self.embedded(&part)?,
                false => match self.session(&part, self.profile) {
                    Ok(session) => Computed::Session(Box::new(session)),
                    Err(error) => {
                        self.refuse(&part, error);
                        return Ok(None);
                    }
                },
            };
            programs.push(Program { tensors: StepTensors::of(&part), computed });
        }
        Ok(Some(programs))
    }

    /// The segments, those of ONNX Runtime divided where an earlier session has their weights: it packs all weights of a session
    /// again before it drops those that it has packed before.
    fn divided(&self, segments: Vec<Segment>) -> Vec<Segment> {
        let is_packed = |content: &TensorData| self.packed.contains(&content.bytes().as_ptr().addr());
        segments.into_iter().flat_map(|segment| segment.divided(self.graph, &is_packed, MAX_PACKED_AGAIN)).collect()
    }

    /// The session of `part`; its operators are those of the whole graph.
    fn session(&self, part: &Part, profile: Option<&Path>) -> Result<OrtSession, SessionError> {
        let content = |t: TensorId| self.content(part.whole_tensor[t.0 as usize]);
        let whole = |operators: &mut Vec<OperatorId>| {
            operators.iter_mut().for_each(|id| *id = part.whole_operator[id.0 as usize]);
        };
        match OrtSession::new(self.context, &part.graph, &content, profile) {
            Ok(mut session) => {
                session.operators.values_mut().for_each(whole);
                Ok(session)
            }
            Err(mut error) => {
                whole(&mut error.operators);
                Err(error)
            }
        }
    }

    fn embedded(&self, part: &Part) -> Result<Computed, EngineError> {
        for (id, operator) in part.graph.operators() {
            let why = &self.refused[part.whole_operator[id.0 as usize].0 as usize];
            self.context.embedded.supports(&part.graph, id).map_err(|unsupported| {
                let ours = why.as_deref().unwrap_or("not supported");
                EngineError::Operator {
                    operator: operator.name.to_string(),
                    what: format!("ONNX Runtime: {ours}; tract: {}", unsupported.reason),
                }
            })?;
        }
        let steps: Vec<Vec<OperatorId>> = part.graph.operators().map(|(id, _)| vec![id]).collect();
        let parameter = |t: TensorId| (self.parameter)(part.whole_tensor[t.0 as usize]);
        let executable = self.context.embedded.load_steps(&part.graph, &steps, &parameter)?;
        Ok(Computed::Embedded {
            executable,
            operators: part.whole_operator.clone(),
            graph: Box::new(part.graph.clone()),
        })
    }

    /// Refuses the operators that a refused session is about: those that it names, else those without a session of their
    /// own, else all.
    fn refuse(&mut self, part: &Part, error: SessionError) {
        let mut found = error.operators;
        if found.is_empty() && part.whole_operator.len() > 1 {
            let alone = |id: &&OperatorId| self.session(&Part::cut(self.graph, &[**id]), None).is_err();
            found = part.whole_operator.iter().filter(alone).copied().collect();
        }
        if found.is_empty() {
            found.clone_from(&part.whole_operator);
        }
        for id in found {
            self.refused[id.0 as usize] = Some(error.what.clone());
        }
    }
}
