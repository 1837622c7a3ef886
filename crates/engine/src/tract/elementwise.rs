//! Elementwise operators in single precision as one operator: a block of elements passes through all of them while it is
//! in the first-level cache.

use std::fmt;

use multiversion::multiversion;
use tract_core::{
    internal::*,
    ops::{
        binary::{BinMiniOp, TypedBinOp},
        element_wise::ElementWiseMiniOp,
        math,
    },
};
use tract_linalg::{element_wise::ElementWise, multithread::par_chunks_mut};

use edgecut_ops::kernel::{
    contiguous_runs::ContiguousRuns,
    pointwise::{MAXIMUM, MINIMUM},
    routine::{routine, run_keeping_nan},
};

/// Operand of a block: with some registers, half of a first-level cache of 32 KiB.
const BLOCK: usize = 1024;

/// A program on tensors that broadcast to one shape. The last instruction computes the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Elementwise {
    pub shape: TVec<usize>,
    pub instructions: Vec<Instruction>,
}

/// One elementwise operator; its result is the value of this number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Instruction {
    Unary(Box<dyn ElementWiseMiniOp>, Value),
    Binary(BinaryFunction, Value, Value),
}

/// An operand of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    Input(usize),
    /// The result of an instruction.
    Result(usize),
}

/// Functions of two elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BinaryFunction {
    Add,
    Subtract,
    Multiply,
    Divide,
    /// The number, where the other operand is NaN.
    MinNum,
    /// As [`BinaryFunction::MinNum`].
    MaxNum,
    /// `a < b ? a : b`.
    SelectLess,
    /// `a > b ? a : b`.
    SelectGreater,
    /// NaN where either operand is.
    MinOrNan,
    MaxOrNan,
}

impl Instruction {
    /// The vectorised routine of a function of one element, where there is one.
    fn routine(&self) -> Option<Box<dyn ElementWise<f32>>> {
        match self {
            Instruction::Unary(function, _) => routine(&function.name()),
            Instruction::Binary(..) => None,
        }
    }
}

impl BinaryFunction {
    /// The function of `op`, and whether it takes its operands in reverse.
    pub fn of(op: &TypedBinOp) -> Option<(BinaryFunction, bool)> {
        let same_type = op.1.is_none_or(|dtype| dtype == DatumType::F32);
        BinaryFunction::of_mini(&*op.0).filter(|_| same_type)
    }

    /// As [`BinaryFunction::of`].
    pub fn of_mini(op: &dyn BinMiniOp) -> Option<(BinaryFunction, bool)> {
        let function = match op {
            op if op.is::<math::Add>() => BinaryFunction::Add,
            op if op.is::<math::Sub>() || op.is::<math::SubF>() => BinaryFunction::Subtract,
            op if op.is::<math::Mul>() => BinaryFunction::Multiply,
            op if op.is::<math::Div>() => BinaryFunction::Divide,
            op if op.is::<math::Min>() => BinaryFunction::MinNum,
            op if op.is::<math::Max>() => BinaryFunction::MaxNum,
            // Wired by this project's kernels, with the names of Relay's operators.
            op => match op.name() {
                "divide" => BinaryFunction::Divide,
                "minimum" => BinaryFunction::SelectLess,
                "maximum" => BinaryFunction::SelectGreater,
                MINIMUM => BinaryFunction::MinOrNan,
                MAXIMUM => BinaryFunction::MaxOrNan,
                _ => return None,
            },
        };
        Some((function, op.is::<math::SubF>()))
    }
}

/// An operand in a block: a number for each element, or one for all.
#[derive(Clone, Copy)]
enum Operand<'a> {
    Vector(&'a [f32]),
    Splat(f32),
}

/// The inputs of a program. One of them may lie where the result goes.
struct Inputs<'a> {
    slices: &'a [&'a [f32]],
    overwritten: Option<usize>,
}

/// A block of a run, `from` elements after its beginning.
struct Block<'a> {
    inputs: &'a Inputs<'a>,
    contiguous: &'a ContiguousRuns,
    /// By input: where the run begins.
    offsets: &'a [usize],
    from: usize,
    length: usize,
}

impl<'a> Block<'a> {
    fn elements(&self, value: Value, registers: &'a Registers) -> Operand<'a> {
        match value {
            Value::Input(index) if self.inputs.overwritten == Some(index) => {
                Operand::Vector(&registers.before[..self.length])
            }
            Value::Input(index) => {
                let (slice, offset) = (self.inputs.slices[index], self.offsets[index]);
                match self.contiguous.inputs[index].0 {
                    true => Operand::Splat(slice[offset]),
                    false => Operand::Vector(&slice[offset + self.from..][..self.length]),
                }
            }
            Value::Result(index) => Operand::Vector(&registers.results[index][..self.length]),
        }
    }
}

/// What instructions compute for one block.
struct Registers {
    results: Vec<Vec<f32>>,
    /// The input that is overwritten.
    before: Vec<f32>,
    /// By instruction: the vectorised routine of a function of one element.
    routines: Vec<Option<Box<dyn ElementWise<f32>>>>,
    /// Operands of functions without one, which take whole tensors: one for each length of a block.
    tensors: Vec<Tensor>,
}

impl Registers {
    fn new(instructions: &[Instruction]) -> Registers {
        let results = vec![vec![0.0; BLOCK]; instructions.len().saturating_sub(1)];
        let routines = instructions.iter().map(Instruction::routine).collect();
        Registers { results, before: vec![0.0; BLOCK], routines, tensors: Vec::new() }
    }

    /// A tensor of `length` elements, whose contents do not matter.
    fn tensor(&mut self, length: usize) -> TractResult<&mut Tensor> {
        let index = match self.tensors.iter().position(|tensor| tensor.len() == length) {
            Some(index) => index,
            None => {
                self.tensors.push(Tensor::zero::<f32>(&[length])?);
                self.tensors.len() - 1
            }
        };
        Ok(&mut self.tensors[index])
    }
}

impl Elementwise {
    fn compute(&self, contiguous: &ContiguousRuns, inputs: &Inputs<'_>, output: &mut [f32]) -> TractResult<()> {
        // A single run is divided anywhere between threads, several between runs.
        let (runs, elements) = (output.len() / contiguous.length, output.len());
        let row = if runs == 1 { 1 } else { contiguous.length };
        par_chunks_mut(output, row, elements, |first, chunk| {
            let mut registers = Registers::new(&self.instructions);
            let length = if runs == 1 { chunk.len() } else { contiguous.length };
            for (index, run) in chunk.chunks_mut(length).enumerate() {
                let (index, skip) = if runs == 1 { (0, first) } else { (first + index, 0) };
                let offsets = contiguous.offsets(index);
                for (number, to) in run.chunks_mut(BLOCK).enumerate() {
                    let (from, length) = (skip + number * BLOCK, to.len());
                    let block = Block { inputs, contiguous, offsets: &offsets, from, length };
                    self.compute_block(&block, &mut registers, to)?;
                }
            }
            Ok(())
        })
    }

    fn compute_block(&self, block: &Block<'_>, registers: &mut Registers, result: &mut [f32]) -> TractResult<()> {
        if block.inputs.overwritten.is_some() {
            registers.before[..block.length].copy_from_slice(result);
        }
        let last = self.instructions.len() - 1;
        for (number, instruction) in self.instructions.iter().enumerate() {
            // Moved out, because operands lie in other registers.
            let mut register = if number < last { std::mem::take(&mut registers.results[number]) } else { Vec::new() };
            let to: &mut [f32] = if number < last { &mut register[..block.length] } else { &mut *result };
            match instruction {
                Instruction::Binary(function, a, b) => {
                    zip(*function, block.elements(*a, registers), block.elements(*b, registers), to);
                }
                Instruction::Unary(function, operand) => {
                    match block.elements(*operand, registers) {
                        Operand::Vector(from) => to.copy_from_slice(from),
                        Operand::Splat(from) => to.fill(from),
                    }
                    if let Some(routine) = &registers.routines[number] {
                        run_keeping_nan(&**routine, to)?;
                    } else {
                        let tensor = registers.tensor(block.length)?;
                        tensor.try_as_plain_ram_mut()?.as_slice_mut::<f32>()?.copy_from_slice(to);
                        function.eval_in_place(tensor, None)?;
                        to.copy_from_slice(tensor.try_as_plain_ram()?.as_slice::<f32>()?);
                    }
                }
            }
            if number < last {
                registers.results[number] = register;
            }
        }
        Ok(())
    }
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw+avx512dq", "x86_64+avx2+fma", "aarch64+neon"))]
fn zip(function: BinaryFunction, a: Operand<'_>, b: Operand<'_>, to: &mut [f32]) {
    match function {
        BinaryFunction::Add => each(a, b, to, |a, b| a + b),
        BinaryFunction::Subtract => each(a, b, to, |a, b| a - b),
        BinaryFunction::Multiply => each(a, b, to, |a, b| a * b),
        BinaryFunction::Divide => each(a, b, to, |a, b| a / b),
        BinaryFunction::MinNum => each(a, b, to, f32::min),
        BinaryFunction::MaxNum => each(a, b, to, f32::max),
        BinaryFunction::SelectLess => each(a, b, to, |a, b| if a < b { a } else { b }),
        BinaryFunction::SelectGreater => each(a, b, to, |a, b| if a > b { a } else { b }),
        BinaryFunction::MinOrNan => each(a, b, to, |a, b| if a < b || a.is_nan() { a } else { b }),
        BinaryFunction::MaxOrNan => each(a, b, to, |a, b| if a > b || a.is_nan() { a } else { b }),
    }
}

#[inline(always)]
fn each(a: Operand<'_>, b: Operand<'_>, to: &mut [f32], function: impl Fn(f32, f32) -> f32) {
    match (a, b) {
        (Operand::Vector(a), Operand::Vector(b)) => {
            to.iter_mut().zip(a).zip(b).for_each(|((to, a), b)| *to = function(*a, *b));
        }
        (Operand::Vector(a), Operand::Splat(b)) => to.iter_mut().zip(a).for_each(|(to, a)| *to = function(*a, b)),
        (Operand::Splat(a), Operand::Vector(b)) => to.iter_mut().zip(b).for_each(|(to, b)| *to = function(a, *b)),
        (Operand::Splat(a), Operand::Splat(b)) => to.fill(function(a, b)),
    }
}

impl fmt::Display for BinaryFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Op for Elementwise {
    fn name(&self) -> StaticName {
        "Elementwise".into()
    }

    fn info(&self) -> TractResult<Vec<String>> {
        let name = |instruction: &Instruction| match instruction {
            Instruction::Unary(function, _) => function.name(),
            Instruction::Binary(function, ..) => function.to_string(),
        };
        Ok(self.instructions.iter().map(name).collect())
    }

    op_as_typed_op!();
}

impl EvalOp for Elementwise {
    op_out_of_plan!();

    fn eval(&self, _ctx: &EvalContext, mut inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        let contiguous = {
            let shapes: TVec<&[usize]> = inputs.iter().map(|input| input.shape()).collect();
            ContiguousRuns::new(&self.shape, &shapes)
        };
        // A tensor that nothing else uses is overwritten: its elements are in a cache, those of a new one are not.
        let overwritten = inputs.iter().position(|input| input.is_exclusive() && *input.shape() == *self.shape);
        let mut output = match overwritten {
            Some(index) => {
                std::mem::replace(&mut inputs[index], Tensor::zero::<f32>(&[0])?.into_tvalue()).into_tensor()
            }
            // SAFETY: every element is written before any is read: the runs cover the output, and each block is the
            // result of the last instruction.
            None => unsafe { Tensor::uninitialized::<f32>(&self.shape)? },
        };
        if output.len() > 0 {
            let plain = inputs.iter().map(|t| t.try_as_plain_ram()).collect::<TractResult<TVec<_>>>()?;
            let slices = plain.iter().map(|t| t.as_slice::<f32>()).collect::<TractResult<TVec<_>>>()?;
            let inputs = Inputs { slices: &slices, overwritten };
            self.compute(&contiguous, &inputs, output.try_as_plain_ram_mut()?.as_slice_mut::<f32>()?)?;
        }
        Ok(tvec![output.into_tvalue()])
    }
}

impl TypedOp for Elementwise {
    fn output_facts(&self, _inputs: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        Ok(tvec![f32::fact(&*self.shape)])
    }

    as_op!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numbers(shape: &[usize]) -> Tensor {
        let count = shape.iter().product::<usize>() as i64;
        let values: Vec<f32> = (0..count).map(|i| (i * 37 % 101) as f32 / 25.0 - 2.0).collect();
        Tensor::from_shape(shape, &values).unwrap()
    }

    /// The same, one operator after the other, on tensors of the whole shape.
    fn reference(op: &Elementwise, inputs: &[Tensor]) -> Tensor {
        let mut results: Vec<Tensor> = Vec::new();
        for instruction in &op.instructions {
            let value = |value: &Value| match value {
                Value::Input(index) => inputs[*index].clone(),
                Value::Result(index) => results[*index].clone(),
            };
            results.push(match instruction {
                Instruction::Unary(function, x) => {
                    let mut x = value(x).broadcast_to_shape(&op.shape).unwrap();
                    function.eval_in_place(&mut x, None).unwrap();
                    x
                }
                Instruction::Binary(function, a, b) => {
                    let [a, b] = [a, b].map(|operand| value(operand).broadcast_to_shape(&op.shape).unwrap());
                    let floats = |t: &Tensor| t.try_as_plain_ram().unwrap().as_slice::<f32>().unwrap().to_vec();
                    let pairs = floats(&a).into_iter().zip(floats(&b));
                    let made: Vec<f32> = pairs
                        .map(|(a, b)| match function {
                            BinaryFunction::Add => a + b,
                            BinaryFunction::Subtract => a - b,
                            BinaryFunction::Multiply => a * b,
                            BinaryFunction::Divide => a / b,
                            BinaryFunction::MinNum => a.min(b),
                            BinaryFunction::MaxNum => a.max(b),
                            BinaryFunction::SelectLess => [b, a][usize::from(a < b)],
                            BinaryFunction::SelectGreater => [b, a][usize::from(a > b)],
                            BinaryFunction::MinOrNan => [b, a][usize::from(a < b || a.is_nan())],
                            BinaryFunction::MaxOrNan => [b, a][usize::from(a > b || a.is_nan())],
                        })
                        .collect();
                    Tensor::from_shape(&op.shape, &made).unwrap()
                }
            });
        }
        results.pop().unwrap()
    }

    proptest! {
        #[test]
        fn a_program_equals_its_operators_one_by_one(
            shape in prop::collection::vec(1usize..6, 1..5),
            last in prop_oneof![Just(1usize), Just(7), Just(3000)],
            broadcast in prop::collection::vec(any::<u8>(), 2),
            functions in prop::collection::vec((0usize..10, any::<u8>(), any::<u8>()), 1..6),
            threads in 1usize..3,
            is_owned in any::<bool>(),
        ) {
            let shape: TVec<usize> = shape.into_iter().chain([last]).collect();
            let narrowed = |mask: u8| -> Vec<usize> {
                shape.iter().enumerate().map(|(axis, n)| if mask >> axis & 1 == 1 { 1 } else { *n }).collect()
            };
            let inputs =
                [numbers(&shape), numbers(&narrowed(broadcast[0])), numbers(&narrowed(broadcast[1]))];
            let all = [
                BinaryFunction::Add, BinaryFunction::Subtract, BinaryFunction::Multiply, BinaryFunction::Divide, BinaryFunction::MinNum,
                BinaryFunction::MaxNum, BinaryFunction::SelectLess, BinaryFunction::SelectGreater,
                BinaryFunction::MinOrNan, BinaryFunction::MaxOrNan,
            ];
            let mut instructions = vec![Instruction::Unary(math::exp().0, Value::Input(0))];
            for (number, (function, a, b)) in functions.into_iter().enumerate() {
                let value = |choice: u8| match choice as usize % (4 + number) {
                    input @ 0..3 => Value::Input(input),
                    result => Value::Result(result - 3),
                };
                // One operand has the whole shape, as every result must.
                let (a, b) = (value(a), if a % 2 == 0 { Value::Result(number) } else { value(b) });
                let whole = |value| matches!(value, Value::Input(0) | Value::Result(_));
                let a = if whole(a) || whole(b) { a } else { Value::Input(0) };
                instructions.push(Instruction::Binary(all[function], a, b));
            }
            let op = Elementwise { shape, instructions };
            let want = reference(&op, &inputs);
            // Of a value with another owner nothing is overwritten.
            let values: TVec<TValue> = inputs.iter().map(|t| t.clone().into_tvalue()).collect();
            let _owner = is_owned.then(|| values.clone());
            let pool = tract_linalg::multithread::Executor::multithread(threads);
            let got = tract_linalg::multithread::multithread_tract_scope(pool, || {
                op.eval(&EvalContext::out_of_plan(), values)
            }).unwrap();
            let bits = |t: &Tensor| -> Vec<u32> {
                t.try_as_plain_ram().unwrap().as_slice::<f32>().unwrap().iter().map(|x| x.to_bits()).collect()
            };
            let same = bits(&want).iter().zip(bits(&got[0])).all(|(want, got)| {
                *want == got || (f32::from_bits(*want).is_nan() && f32::from_bits(got).is_nan())
                    || (f32::from_bits(*want) == 0.0 && f32::from_bits(got) == 0.0)
            });
            prop_assert!(same);
        }
    }
}
