//! Import cycles between the modules of a crate.
//!
//! A module imports another if it names something that is defined there, by a path from the crate, from itself or from
//! its parent. What a module re-exports is defined elsewhere: such paths lead to where it comes from. Code that is
//! compiled for tests alone does not count.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::{algo::tarjan_scc, graphmap::DiGraphMap};
use syn::{
    Item, UseTree, Visibility,
    visit::{self, Visit},
};

use crate::{
    items::is_test,
    source::{Crate, Module},
};

type Path = Vec<String>;

/// Groups of modules that import each other, each by its path.
pub fn cycles(found: &Crate) -> Vec<Vec<String>> {
    let modules: BTreeMap<&[String], usize> =
        found.modules.iter().enumerate().map(|(at, module)| (module.path.as_slice(), at)).collect();
    let exports: Vec<BTreeMap<String, Path>> = found.modules.iter().map(re_exports).collect();
    let mut graph = DiGraphMap::<usize, ()>::new();
    for (from, module) in found.modules.iter().enumerate() {
        for path in named(module) {
            if let Some(to) = definer(&path, &modules, &exports).filter(|to| *to != from) {
                graph.add_edge(from, to, ());
            }
        }
    }
    let shown = |at: &usize| match found.modules[*at].path.join("::") {
        root if root.is_empty() => "(root)".to_string(),
        path => path,
    };
    tarjan_scc(&graph).iter().filter(|group| group.len() > 1).map(|group| group.iter().map(shown).collect()).collect()
}

/// The module that defines what `path` names; re-exports are followed.
fn definer(path: &[String], modules: &BTreeMap<&[String], usize>, exports: &[BTreeMap<String, Path>]) -> Option<usize> {
    let mut path = path.to_vec();
    for _ in 0..8 {
        let (length, at) = (0..=path.len()).rev().find_map(|n| Some((n, *modules.get(&path[..n])?)))?;
        let Some(exported) = path.get(length).and_then(|name| exports[at].get(name)) else { return Some(at) };
        path = exported.iter().chain(&path[length + 1..]).cloned().collect();
    }
    None
}

/// What a module re-exports, by name: the path of what it stands for.
fn re_exports(module: &Module) -> BTreeMap<String, Path> {
    let mut found = BTreeMap::new();
    for item in &module.file.items {
        let Item::Use(item) = item else { continue };
        if matches!(item.vis, Visibility::Inherited) {
            continue;
        }
        leaves(&item.tree, &mut Vec::new(), &mut |path, name| {
            if let Some(path) = absolute(path, module) {
                found.insert(name.to_string(), path);
            }
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

/// A path from the crate's root; `None` for what other crates define.
fn absolute(path: &[String], module: &Module) -> Option<Path> {
    let first = path.first()?.as_str();
    let children = declared(module);
    let mut base = match first {
        "crate" => Vec::new(),
        "self" => module.path.clone(),
        "super" => module.path[..module.path.len().checked_sub(1)?].to_vec(),
        child if children.contains(child) => {
            return Some(module.path.iter().chain(path).cloned().collect());
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
    let mut names = Names { module, found: BTreeSet::new() };
    names.visit_file(&module.file);
    names.found
}

struct Names<'a> {
    module: &'a Module,
    found: BTreeSet<Path>,
}

impl<'a> Visit<'a> for Names<'_> {
    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        if is_test(&item.attrs) {
            return;
        }
        let module = self.module;
        leaves(&item.tree, &mut Vec::new(), &mut |path, _| self.found.extend(absolute(path, module)));
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let parts: Path = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if parts.len() > 1 {
            self.found.extend(absolute(&parts, self.module));
        }
        visit::visit_path(self, path);
    }
}
