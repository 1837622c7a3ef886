//! Name resolution: TVM's scopes, and heuristics for names with dots.

use std::collections::{BTreeSet, HashMap};

use foldhash::fast::RandomState;

use crate::ast::VarId;

/// The local variables in scope.
///
/// A scope is opened by a function, a branch, a parenthesis, and by every `let` *after* its binding. An
/// inner scope shadows an outer one; within one scope the first binding of a name stays, as in TVM.
#[derive(Default)]
pub(super) struct Scopes<'a> {
    visible: HashMap<&'a str, (VarId, u32), RandomState>,
    /// The bindings that were shadowed, restored when their scope closes.
    hidden: Vec<(&'a str, Option<(VarId, u32)>)>,
    open: Vec<(usize, u32)>,
    serial: u32,
    /// Lengths of all names ever bound.
    lengths: BTreeSet<usize>,
}

impl<'a> Scopes<'a> {
    /// Number of open scopes.
    pub fn depth(&self) -> usize {
        self.open.len()
    }

    pub fn open(&mut self) {
        self.serial += 1;
        self.open.push((self.hidden.len(), self.serial));
    }

    pub fn close_to(&mut self, depth: usize) {
        while self.open.len() > depth {
            let Some((mark, _)) = self.open.pop() else { return };
            for (name, before) in self.hidden.drain(mark..).rev() {
                match before {
                    Some(before) => self.visible.insert(name, before),
                    None => self.visible.remove(name),
                };
            }
        }
    }

    pub fn bind(&mut self, name: &'a str, var: VarId) {
        let scope = self.open.last().map_or(0, |(_, serial)| *serial);
        let before = self.visible.get(name).copied();
        if before.is_some_and(|(_, owner)| owner == scope) {
            return;
        }
        self.lengths.insert(name.len());
        self.visible.insert(name, (var, scope));
        self.hidden.push((name, before));
    }

    pub fn get(&self, name: &str) -> Option<VarId> {
        self.visible.get(name).map(|(var, _)| *var)
    }

    /// The variable at the start of `run`, the text after `%` up to a delimiter, and the length of its name.
    ///
    /// `x.weight` may be a name, `x.0` the projection of `x`, `x*` the name `x` and an infix operator: the
    /// longest known name that ends where a name can end is taken.
    pub fn longest(&self, run: &str) -> Option<(VarId, usize)> {
        if let Some(var) = self.get(run) {
            return Some((var, run.len()));
        }
        // Only prefixes with the length of a known name are looked up.
        self.lengths.range(..run.len()).rev().find_map(|&at| {
            let (name, rest) = (run.get(..at)?, run.get(at..)?);
            let ends = rest.chars().next().is_some_and(|c| !c.is_ascii_alphanumeric() && c != '_');
            if ends { Some((self.get(name)?, at)) } else { None }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_binding_of_a_scope_stays_and_inner_scopes_shadow() {
        let mut scopes = Scopes::default();
        scopes.bind("x", VarId(0));
        scopes.bind("x", VarId(1));
        assert_eq!(scopes.get("x"), Some(VarId(0)));
        scopes.open();
        scopes.bind("x", VarId(2));
        assert_eq!(scopes.get("x"), Some(VarId(2)));
        scopes.close_to(0);
        assert_eq!(scopes.get("x"), Some(VarId(0)));
    }

    #[test]
    fn names_with_dots_and_projections() {
        let mut scopes = Scopes::default();
        scopes.bind("aten::conv.weight", VarId(0));
        scopes.bind("x", VarId(1));
        assert_eq!(scopes.longest("aten::conv.weight"), Some((VarId(0), 17)));
        assert_eq!(scopes.longest("x.0"), Some((VarId(1), 1)));
        assert_eq!(scopes.longest("x/"), Some((VarId(1), 1)));
        assert_eq!(scopes.longest("xy.0"), None);
    }
}
