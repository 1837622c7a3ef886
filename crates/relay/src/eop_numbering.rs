//! The numbering of a module's expressions in profiles of EOP.
//!
//! The parameters of `main` are numbered first; then a depth-first traversal of the body numbers every expression at its
//! first visit: variables, constants, calls, projections and tuples. Profiles refer to calls and tuples, as `nn.dense-20`
//! or `tuple-38`.

use std::collections::{BTreeMap, HashMap};

use crate::{
    ParseMode, Span,
    ast::{Expr, ExprId, Module},
    parse,
};
use edgecut_graph::{Graph, OperatorId, SourceLocation};

/// A call or a tuple.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbered {
    pub number: usize,
    /// The operator's name, or `tuple`.
    pub name: String,
    /// Numbers of the calls and tuples among its operands, looking through projections, without duplicates.
    pub operands: Vec<usize>,
    /// Its range in the text.
    pub span: Span,
}

/// The calls and tuples of the module in `text` by number, each with its name and the operator of `graph` that it became;
/// `None` of tuples, and of what was computed when the module was read. `graph` is the module's. `None` if it cannot be
/// parsed, or not be numbered.
pub fn operators(text: &str, graph: &Graph) -> Option<BTreeMap<usize, (String, Option<OperatorId>)>> {
    let module = parse("", text.as_bytes(), ParseMode::Tolerant).ok()?;
    let starts: Vec<u32> = (1u32..).zip(text.bytes()).filter(|(_, c)| *c == b'\n').map(|(at, _)| at).collect();
    let place = |span: Span| {
        let before = starts.partition_point(|start| *start <= span.start);
        let start = before.checked_sub(1).and_then(|line| starts.get(line)).copied().unwrap_or(0);
        SourceLocation { line: before as u32 + 1, column: span.start - start + 1 }
    };
    let calls: HashMap<(u32, u32), OperatorId> = graph
        .operators()
        .filter_map(|(id, operator)| operator.location.map(|place| ((place.line, place.column), id)))
        .collect();
    let became = |vertex: &Numbered| {
        let SourceLocation { line, column } = place(vertex.span);
        let same = calls.get(&(line, column)).copied();
        same.filter(|id| graph.operator(*id).name == vertex.name)
    };
    Some(numbered(&module)?.iter().map(|v| (v.number, (v.name.clone(), became(v)))).collect())
}

/// All calls and tuples of `main` by ascending number. `None` if there is no `main`, or it has more than variables,
/// constants, calls, projections and tuples.
pub fn numbered(module: &Module<'_>) -> Option<Vec<Numbered>> {
    let main = module.globals.iter().find(|global| global.name == "main")?;
    let function = module.functions.get(main.function?.index())?;
    let mut next = function.params.len as usize;
    let params: Vec<_> = module.vars_of(function.params).to_vec();
    let mut numbers: HashMap<ExprId, usize> = HashMap::new();
    let mut vertices: Vec<(usize, ExprId)> = Vec::new();
    let mut stack = vec![function.body];
    while let Some(id) = stack.pop() {
        if numbers.contains_key(&id) {
            continue;
        }
        if let Expr::Var(var) = module.expr(id)
            && let Some(number) = params.iter().position(|param| *param == var)
        {
            numbers.insert(id, number);
            continue;
        }
        numbers.insert(id, next);
        match module.expr(id) {
            Expr::Call { args, .. } | Expr::Tuple(args) => {
                vertices.push((next, id));
                stack.extend(module.exprs_of(args).iter().rev());
            }
            Expr::Project(of, _) => stack.push(of),
            Expr::Var(_) | Expr::Scalar(_) | Expr::Meta(_) => {}
            _ => return None,
        }
        next += 1;
    }
    let vertex = |(number, id): &(usize, ExprId)| {
        let (name, args) = match module.expr(*id) {
            Expr::Call { callee, args, .. } => match module.expr(callee) {
                Expr::Operator(op) => (module.operators.get(op.index())?.name, args),
                _ => return None,
            },
            Expr::Tuple(args) => ("tuple", args),
            _ => return None,
        };
        let mut operands: Vec<usize> = Vec::new();
        for arg in module.exprs_of(args) {
            let mut at = *arg;
            while let Expr::Project(of, _) = module.expr(at) {
                at = of;
            }
            let made = matches!(module.expr(at), Expr::Call { .. } | Expr::Tuple(_));
            if let Some(operand) = numbers.get(&at).filter(|n| made && !operands.contains(n)) {
                operands.push(*operand);
            }
        }
        Some(Numbered { number: *number, name: name.to_string(), operands, span: module.note(*id).span })
    };
    vertices.iter().map(vertex).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ParseMode, parse};

    #[test]
    fn parameters_come_first_and_operands_after_what_reads_them() {
        let text = "#[version = \"0.0.5\"]\ndef @main(%x: Tensor[(4, 2), float32], %w: Tensor[(3, 2), float32]) {\n\
                    %0 = split(%x, indices_or_sections=2);\n  %1 = %0.0;\n  %2 = nn.dense(%1, %w, units=3);\n  \
                    %3 = %0.1;\n  %4 = nn.dense(%3, %w, units=3);\n  (%2, %4)\n}\n";
        let module = parse("m", text.as_bytes(), ParseMode::Strict).unwrap();
        let found = numbered(&module).unwrap();
        let named: Vec<(usize, &str, &[usize])> =
            found.iter().map(|n| (n.number, n.name.as_str(), n.operands.as_slice())).collect();
        let want: [(usize, &str, &[usize]); 4] =
            [(2, "tuple", &[3, 6]), (3, "nn.dense", &[5]), (5, "split", &[]), (6, "nn.dense", &[5])];
        assert_eq!(named, want);
    }
}
