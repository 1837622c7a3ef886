//! Import cycles between the modules of a crate.
//!
//! A module imports another if it names something that is defined there, by a path from the crate, from itself or from
//! its parent. What a module re-exports is defined elsewhere: such paths lead to where it comes from. Code that is
//! compiled for tests alone does not count.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    iter::successors,
    mem,
};

use petgraph::{algo::tarjan_scc, graphmap::DiGraphMap};
use syn::{
    Item, UseTree,
    visit::{self, Visit},
};

use crate::{
    items::is_test,
    source::{Crate, Module},
};

type Path = Vec<String>;

/// Shortest cycles of modules that import each other, each module by its path.
pub fn cycles(found: &Crate) -> Vec<Vec<String>> {
    let modules: BTreeMap<&[String], usize> =
        found.modules.iter().enumerate().map(|(at, module)| (module.path.as_slice(), at)).collect();
    let exports: Vec<BTreeMap<String, Option<Path>>> = found.modules.iter().map(re_exports).collect();
    let mut graph = DiGraphMap::<usize, ()>::new();
    for (from, module) in found.modules.iter().enumerate() {
        for path in named(module) {
            if let Some(to) = definer(&path, &modules, &exports).filter(|to| *to != from) {
                graph.add_edge(from, to, ());
            }
        }
    }
    let shown = |at: usize| match found.modules[at].path.join("::") {
        root if root.is_empty() => "(root)".to_string(),
        path => path,
    };
    let cyclic = tarjan_scc(&graph).into_iter().filter(|group| group.len() > 1).flatten();
    let cycles: BTreeSet<Vec<usize>> = cyclic.filter_map(|start| shortest_cycle(&graph, start)).collect();
    cycles.into_iter().map(|cycle| cycle.into_iter().map(shown).collect()).collect()
}

/// The shortest cycle through `start`, from its smallest module on.
fn shortest_cycle(graph: &DiGraphMap<usize, ()>, start: usize) -> Option<Vec<usize>> {
    let mut reached_from: BTreeMap<usize, usize> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(module) = queue.pop_front() {
        for next in graph.neighbors(module) {
            if next == start {
                let mut cycle: Vec<usize> =
                    successors(Some(module), |at| (*at != start).then(|| reached_from[at])).collect();
                cycle.reverse();
                let smallest = cycle.iter().enumerate().min_by_key(|(_, module)| **module)?.0;
                cycle.rotate_left(smallest);
                return Some(cycle);
            }
            reached_from.entry(next).or_insert_with(|| {
                queue.push_back(next);
                module
            });
        }
    }
    None
}

/// The module that defines what `path` names; re-exports are followed.
fn definer(
    path: &[String],
    modules: &BTreeMap<&[String], usize>,
    exports: &[BTreeMap<String, Option<Path>>],
) -> Option<usize> {
    let mut path = path.to_vec();
    for _ in 0..8 {
        let (length, at) = (0..=path.len()).rev().find_map(|n| Some((n, *modules.get(&path[..n])?)))?;
        let Some(exported) = path.get(length).and_then(|name| exports[at].get(name)) else { return Some(at) };
        path = exported.as_ref()?.iter().chain(&path[length + 1..]).cloned().collect();
    }
    None
}

/// What a module imports, by name, for its descendants see it too: the path of what it stands for, `None` for what other
/// crates define.
fn re_exports(module: &Module) -> BTreeMap<String, Option<Path>> {
    let mut found = BTreeMap::new();
    for item in &module.file.items {
        let Item::Use(item) = item else { continue };
        leaves(&item.tree, &mut Vec::new(), &mut |path, name| {
            found.insert(name.to_string(), absolute(path, &module.path, &declared(module)));
        });
    }
    found
}

/// Calls `leaf` with the path and the local name of everything that a use tree imports.
fn leaves(tree: &UseTree, prefix: &mut Path, leaf: &mut dyn FnMut(&[String], &str)) {
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            leaves(&path.tree, prefix, leaf);
            prefix.pop();
        }
        UseTree::Name(name) if name.ident == "self" => leaf(prefix, prefix.last().map_or("", String::as_str)),
        UseTree::Name(name) => {
            prefix.push(name.ident.to_string());
            leaf(prefix, &name.ident.to_string());
            prefix.pop();
        }
        UseTree::Rename(rename) => {
            if rename.ident != "self" {
                prefix.push(rename.ident.to_string());
            }
            leaf(prefix, &rename.rename.to_string());
            if rename.ident != "self" {
                prefix.pop();
            }
        }
        UseTree::Glob(_) => leaf(prefix, "*"),
        UseTree::Group(group) => group.items.iter().for_each(|tree| leaves(tree, prefix, leaf)),
    }
}

/// A path in the module `within`, which declares `children`, from the crate's root; `None` for what other crates define.
fn absolute(path: &[String], within: &[String], children: &BTreeSet<String>) -> Option<Path> {
    let first = path.first()?.as_str();
    let mut base = match first {
        "crate" => Vec::new(),
        "self" => within.to_vec(),
        "super" => within[..within.len().checked_sub(1)?].to_vec(),
        child if children.contains(child) => {
            return Some(within.iter().chain(path).cloned().collect());
        }
        _ => return None,
    };
    for part in &path[1..] {
        match part.as_str() {
            "super" => drop(base.pop()?),
            part => base.push(part.to_string()),
        }
    }
    Some(base)
}

/// The modules that a file declares.
fn declared(module: &Module) -> BTreeSet<String> {
    let name = |item: &Item| match item {
        Item::Mod(item) if item.content.is_none() => Some(item.ident.to_string()),
        _ => None,
    };
    module.file.items.iter().filter_map(name).collect()
}

/// The paths within the crate that a module names.
fn named(module: &Module) -> BTreeSet<Path> {
    let mut names = Names { within: module.path.clone(), children: declared(module), found: BTreeSet::new() };
    names.visit_file(&module.file);
    names.found
}

struct Names {
    /// The module that is visited: the file's or an inline one.
    within: Path,
    children: BTreeSet<String>,
    found: BTreeSet<Path>,
}

impl<'a> Visit<'a> for Names {
    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if is_test(&item.attrs) {
            return;
        }
        self.within.push(item.ident.to_string());
        let children = mem::take(&mut self.children);
        visit::visit_item_mod(self, item);
        self.children = children;
        self.within.pop();
    }

    // `pub(in crate::agent)` imports nothing.
    fn visit_visibility(&mut self, _: &'a syn::Visibility) {}

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        if is_test(&item.attrs) {
            return;
        }
        let (within, children) = (&self.within, &self.children);
        leaves(&item.tree, &mut Vec::new(), &mut |path, _| self.found.extend(absolute(path, within, children)));
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let parts: Path = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if parts.len() > 1 {
            self.found.extend(absolute(&parts, &self.within, &self.children));
        }
        visit::visit_path(self, path);
    }
}
