//! Recursive functions: inlined if they terminate during the import, else reported by name.

use std::collections::{HashMap, HashSet};

use super::lowering::Lowering;
use crate::ast::{Expr, ExprId, FunctionId, Module, VarId};

/// A recursive function with at least this many calls may not terminate.
const MANY: u32 = 64;

impl Lowering<'_, '_> {
    /// The last call of the recursive function that was called most often, with its name.
    pub(super) fn endless(&self) -> Option<(ExprId, String)> {
        let often = self.calls.iter().filter(|(_, (count, _))| *count >= MANY);
        let (function, (_, call)) = often
            .filter(|(function, _)| calls_itself(self.module, **function))
            .max_by_key(|(function, (count, _))| (*count, function.0))?;
        let global = self.module.globals.iter().find(|global| global.function == Some(*function));
        Some((*call, global.map_or("a local function".to_string(), |global| format!("`@{}`", global.name))))
    }
}

/// Whether the body of `function` mentions it, directly or through functions that it mentions.
fn calls_itself(module: &Module<'_>, function: FunctionId) -> bool {
    let mut bound: HashMap<VarId, FunctionId> = HashMap::new();
    for expr in &module.exprs {
        if let Expr::Let { var, value, .. } = *expr
            && let Expr::Function(function) = module.expr(value)
        {
            bound.insert(var, function);
        }
    }
    let mut pending = vec![module.functions[function.index()].body];
    let mut seen: HashSet<ExprId> = HashSet::new();
    while let Some(expr) = pending.pop() {
        if !seen.insert(expr) {
            continue;
        }
        let mentioned = match module.expr(expr) {
            Expr::Global(global) => module.globals[global.index()].function,
            Expr::Var(var) => bound.get(&var).copied(),
            _ => None,
        };
        match mentioned {
            Some(mentioned) if mentioned == function => return true,
            Some(mentioned) => pending.push(module.functions[mentioned.index()].body),
            None => module.operands(expr, &mut pending),
        }
    }
    false
}
