//! Type inference of operators as they are added, and folding: what is computed of constants alone is a constant.

use std::collections::{BTreeSet, HashMap};

use edgecut_graph::{
    Arg, Attr, Attrs, DType, Graph, Operator, OperatorId, Origin, Part, Shape, TensorData, TensorId, TensorType, Type,
    units::Bytes,
};
use edgecut_ops as ops;
use edgecut_ops::passes::summary::flops;
use smol_str::{SmolStr, format_smolstr};

use crate::{
    error::{Result, shown},
    lowering::{FOLDED, Lowering},
    tensor,
};

/// Largest folded result of integers or truth values, which shapes are made of, and of floats.
const FOLDED_INTEGERS: Bytes = Bytes(1 << 20);
const FOLDED_FLOATS: Bytes = Bytes(1 << 14);
/// Limits for each unit of the budget: the tensors of what is computed during the import, and its arithmetic.
const COMPUTED_BYTES_PER_UNIT: u64 = 1 << 11;
const FLOPS_PER_UNIT: u64 = 1 << 14;
/// What computing one operator costs before it computes anything, since an engine prepares a model for it: alone, and in a
/// larger graph, which is optimised as a whole.
const FOLDED_UNITS: u64 = 8;
const PREPARED_UNITS: u64 = 24;

impl Lowering<'_> {
    /// Adds a call of the operator `name`, or folds it.
    ///
    /// # Errors
    /// If the operator does not accept its operands, or a shape depends on data.
    pub fn add(
        &mut self,
        name: &'static str,
        args: Vec<Arg>,
        attrs: Vec<(&'static str, Attr)>,
    ) -> Result<Vec<TensorId>> {
        let def = ops::lookup(name).ok_or_else(|| format!("operator {name} is not defined"))?;
        let semantics = def.has_onnx_semantics.then(|| (ops::SEMANTICS, Attr::Str(ops::ONNX.into())));
        let attrs: Attrs =
            attrs.into_iter().chain(semantics).map(|(key, value)| (SmolStr::new_static(key), value)).collect();
        let operator = Operator::new(name, args).with_attrs(attrs).with_layer(self.layer.clone());
        let types = self.graph.arg_types(&operator);
        let constants: Vec<Option<TensorData>> = operator.args.iter().map(|arg| self.constant(arg)).collect();
        let values: Vec<Option<&TensorData>> = constants.iter().map(Option::as_ref).collect();
        let ty = (def.infer)(&ops::Call { def, attrs: &operator.attrs, args: &types, values: &values })
            .map_err(|error| error.to_string())?;
        let results: Vec<TensorType> = ty.tensors().into_iter().cloned().collect();
        if let Some(result) = results.iter().find(|result| result.shape.rank() > Shape::MAX_DIMS) {
            return Err(format!(
                "a result of {} dimensions; at most {} are read",
                result.shape.rank(),
                Shape::MAX_DIMS
            ));
        }
        let operator = operator.with_tuple_result(matches!(ty, Type::Tuple(_)));
        if self.is_folded(&operator, &results)
            && let Some(folded) = self.fold(&operator, &results)
        {
            return Ok(folded);
        }
        self.check_operators(1)?;
        let id = self.graph.add_operator(operator, &results);
        Ok(self.graph.operator(id).outputs.clone())
    }

    fn constant(&self, arg: &Arg) -> Option<TensorData> {
        match arg {
            Arg::Tensor(tensor) => self.known(*tensor).cloned(),
            Arg::Tuple(_) => None,
        }
    }

    /// The content of a constant, or of an operand of the current composite operator that is a constant outside of it.
    pub fn known(&self, tensor: TensorId) -> Option<&TensorData> {
        match &self.graph.tensor(tensor).origin {
            Origin::Constant(data) => Some(data),
            _ => self.operand_contents.get(&tensor),
        }
    }

    fn is_folded(&self, operator: &Operator, results: &[TensorType]) -> bool {
        let limit = |ty: &TensorType| if ty.dtype.is_float() { FOLDED_FLOATS } else { FOLDED_INTEGERS };
        // Random numbers are drawn by every run, and operands of a composite operator stay operands of its decomposition.
        !operator.name.starts_with("random_")
            && operator.operands().all(|tensor| matches!(self.graph.tensor(tensor).origin, Origin::Constant(_)))
            && results.iter().all(|ty| ty.bytes().is_some_and(|bytes| bytes <= limit(ty)))
    }

    fn fold(&mut self, operator: &Operator, results: &[TensorType]) -> Option<Vec<TensorId>> {
        let mut part = Graph::new();
        let mut moved: HashMap<TensorId, TensorId> = HashMap::new();
        for tensor in operator.operands() {
            let source = self.graph.tensor(tensor);
            moved
                .entry(tensor)
                .or_insert_with(|| part.add_tensor(source.name.clone(), source.ty.clone(), source.origin.clone()));
        }
        let args = operator.args.iter().map(|arg| match arg {
            Arg::Tensor(tensor) => Arg::Tensor(moved[tensor]),
            Arg::Tuple(tensors) => Arg::Tuple(tensors.iter().map(|tensor| moved[tensor]).collect()),
        });
        let copy = Operator::new(operator.name.clone(), args).with_attrs(operator.attrs.clone());
        let id = part.add_operator(copy.with_tuple_result(operator.tuple_result), results);
        part.outputs = part.operator(id).outputs.clone();
        let bytes: Bytes = results.iter().filter_map(TensorType::bytes).sum();
        self.charge_computation(&part).ok()?;
        self.charge_constant(bytes.0).ok()?;
        let contents = (self.options.evaluate)(&part, &|_| None).ok()?;
        Some(contents.into_iter().map(|data| self.add_constant(data)).collect())
    }

    pub fn add_constant(&mut self, data: TensorData) -> TensorId {
        let name = format_smolstr!("{FOLDED}{}", self.graph.tensors().len());
        self.graph.add_tensor(name, data.ty(), Origin::Constant(data))
    }

    /// A scalar constant; equal ones are one tensor.
    pub fn scalar(&mut self, value: f64, dtype: DType) -> Result<TensorId> {
        let key = (dtype, value.to_bits());
        if let Some(known) = self.scalars.get(&key) {
            return Ok(*known);
        }
        let bytes =
            tensor::element(value, dtype).ok_or_else(|| format!("elements of type {dtype} are not supported"))?;
        let data = TensorData::new(dtype, [], bytes).map_err(|error| error.to_string())?;
        let tensor = self.add_constant(data);
        self.scalars.insert(key, tensor);
        Ok(tensor)
    }

    /// The content of a tensor that must be known now: a constant, or computed of inputs whose content is given. Only this
    /// content is folded: the inputs stay inputs of the graph.
    ///
    /// # Errors
    /// If it depends on inputs that are not given; the message names `what` it determines.
    pub fn content(&self, tensor: TensorId, what: &str) -> Result<TensorData> {
        if let Some(data) = self.known(tensor) {
            return Ok(data.clone());
        }
        let (part, sources) = self.computing(tensor);
        if let Some(name) = sources.iter().find(|name| self.given(name).is_none()) {
            let name = shown(name);
            return Err(format!(
                "{what} depends on `{name}`: give its content with option `inputs` (array `in_{name}`)"
            ));
        }
        let data = self.compute(&part, what)?;
        if !sources.is_empty() {
            self.decided(what, sources, false);
        }
        Ok(data)
    }

    /// The same for what depends on data, such as a condition: inputs that are not given have their generated contents.
    ///
    /// # Errors
    /// If it cannot be computed.
    pub fn content_of_run(&mut self, tensor: TensorId, what: &str) -> Result<TensorData> {
        if let Some(data) = self.known(tensor) {
            return Ok(data.clone());
        }
        let (part, sources) = self.computing(tensor);
        let data = self.compute(&part, what)?;
        if !sources.is_empty() {
            let is_generated = sources.iter().any(|name| self.given(name).is_none());
            self.decided(what, sources, is_generated);
        }
        Ok(data)
    }

    fn compute(&self, part: &Graph, what: &str) -> Result<TensorData> {
        self.charge_computation(part).map_err(|error| format!("{what} cannot be computed: {error}"))?;
        let results = (self.options.evaluate)(part, &|name| self.given(name));
        let results = results.map_err(|error| format!("{what} cannot be computed: {error}"))?;
        results.into_iter().next().ok_or_else(|| format!("{what} has no content"))
    }

    /// Refuses computations that are large for a file of this size: a few bytes can demand any amount.
    fn charge_computation(&self, part: &Graph) -> Result<()> {
        let sizes = part.tensors().map(|(_, tensor)| tensor.ty.bytes().map_or(u64::MAX, |bytes| bytes.0));
        let bytes = sizes.fold(0, u64::saturating_add);
        let flops = part.operators().map(|(_, operator)| flops(part, operator)).fold(0, u64::saturating_add);
        let units = match part.operators().len() as u64 {
            0 | 1 => FOLDED_UNITS,
            count => count * PREPARED_UNITS,
        };
        let is_in_budget = self.charge_flops(flops.saturating_add(units * FLOPS_PER_UNIT));
        match is_in_budget && bytes <= COMPUTED_BYTES_PER_UNIT * self.budget as u64 {
            true => Ok(()),
            false => Err(format!("{bytes} bytes and {flops} operations are too many for a file of its size")),
        }
    }

    /// Refuses to prepare an engine's model of one operator, where a file of this size has too many.
    pub fn charge_preparation(&self) -> Result<()> {
        match self.charge_flops(PREPARED_UNITS * FLOPS_PER_UNIT) {
            true => Ok(()),
            false => Err("too many different operators for a file of its size".to_string()),
        }
    }

    /// Counts `flops`; `false` if the total is too large for a file of this size.
    fn charge_flops(&self, flops: u64) -> bool {
        let total = self.flops.get().saturating_add(flops);
        self.flops.set(total);
        total <= FLOPS_PER_UNIT * self.budget as u64
    }

    /// The graph that computes `tensor`, and the inputs that it reads.
    fn computing(&self, tensor: TensorId) -> (Graph, Vec<SmolStr>) {
        let mut found: BTreeSet<OperatorId> = BTreeSet::new();
        let mut pending = vec![tensor];
        while let Some(tensor) = pending.pop() {
            if let Some(operator) = self.graph.producer(tensor)
                && found.insert(operator)
            {
                pending.extend(self.graph.operator(operator).operands());
            }
        }
        let operators: Vec<OperatorId> = found.into_iter().collect();
        let mut part = Part::cut(&self.graph, &operators);
        let output = match part.whole_tensor.iter().position(|whole| *whole == tensor) {
            Some(at) => TensorId(at as u32),
            None => {
                let source = self.graph.tensor(tensor);
                part.graph.add_tensor(source.name.clone(), source.ty.clone(), source.origin.clone())
            }
        };
        part.graph.outputs = vec![output];
        let sources = part.graph.inputs().map(|id| part.graph.tensor(id).name.clone()).collect();
        (part.graph, sources)
    }
}
