//! The printer state, and definitions at the top level of a module.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::{
    doc::{DocId, Docs},
    literal::HEADER,
    names::NameTable,
    task::PrintTask,
};
use crate::ast::{ExprId, List, Module, VarId};

/// Prints `module`: the header, its types and functions by name, and its metadata section as it was read.
///
/// A file without definitions is printed as an expression.
pub fn print(module: &Module<'_>) -> String {
    let mut printer = Printer::new(module);
    let mut text = HEADER.to_string();
    match module.entry {
        Some(entry) => {
            text += &printer.entry(entry);
            text.push('\n');
        }
        None => text += &printer.items(),
    }
    if let Some(metadata) = module.metadata {
        text += "\n#[metadata]\n";
        text += metadata.trim();
        text.push('\n');
    }
    text
}

/// The state of printing one module.
pub(super) struct Printer<'m, 'a> {
    pub(super) module: &'m Module<'a>,
    pub(super) docs: Docs,
    pub(super) names: NameTable,
    pub(super) vars: HashMap<VarId, String, RandomState>,
    /// The reference to each printed expression.
    pub(super) printed: HashMap<ExprId, DocId, RandomState>,
    /// Number of uses of each expression in the current function.
    pub(super) uses: HashMap<ExprId, u32, RandomState>,
    /// The number of the next graph variable.
    pub(super) next: u64,
    /// Texts of the open scopes, which receive definitions.
    pub(super) scopes: Vec<DocId>,
    pub(super) tasks: Vec<PrintTask>,
    pub(super) results: Vec<DocId>,
}

impl<'m, 'a> Printer<'m, 'a> {
    pub(super) fn new(module: &'m Module<'a>) -> Printer<'m, 'a> {
        Printer {
            module,
            docs: Docs::default(),
            names: NameTable::default(),
            vars: HashMap::default(),
            printed: HashMap::default(),
            uses: HashMap::default(),
            next: 0,
            scopes: Vec::new(),
            tasks: Vec::new(),
            results: Vec::new(),
        }
    }

    pub(super) fn entry(&mut self, entry: ExprId) -> String {
        self.count_uses(entry);
        let doc = self.docs.empty();
        for var in &self.module.free_vars {
            let line = self.binding(*var);
            self.docs.text(doc, "free_var ").doc(doc, line).text(doc, ";").line(doc);
        }
        let body = self.scope(entry);
        self.docs.doc(doc, body);
        self.docs.render(doc)
    }

    pub(super) fn items(&mut self) -> String {
        let module = self.module;
        let mut blocks = Vec::new();
        let mut adts: Vec<_> = module.adts.iter().collect();
        adts.sort_by_key(|adt| adt.name);
        for adt in adts {
            blocks.push(self.adt(adt));
        }
        let mut globals: Vec<_> = module.globals.iter().filter(|global| global.function.is_some()).collect();
        globals.sort_by_key(|global| global.name);
        for global in globals {
            let Some(function) = global.function else { continue };
            self.count_uses(module.functions[function.index()].body);
            let doc = self.docs.of(format!("def @{}", global.name));
            let tail = self.function(function);
            self.docs.doc(doc, tail);
            blocks.push(self.docs.render(doc) + "\n");
        }
        blocks.join("\n")
    }

    pub(super) fn adt(&mut self, adt: &super::super::ast::Adt<'_>) -> String {
        let mut text = format!("type {}{} {{\n", adt.name, self.type_params(adt.type_params));
        for constructor in &self.module.constructors[adt.constructors.range()] {
            text += "  ";
            text += constructor.name;
            if constructor.fields.len > 0 {
                let fields = self.module.types_of(constructor.fields).iter().map(|ty| self.type_text(*ty));
                text += &format!("({})", fields.collect::<Vec<_>>().join(", "));
            }
            text += ",\n";
        }
        if adt.constructors.len == 0 {
            text += "  \n";
        }
        text + "}\n"
    }

    pub(super) fn type_params(&self, list: List) -> String {
        match list.len {
            0 => String::new(),
            _ => format!("[{}]", self.module.names_of(list).join(", ")),
        }
    }

    /// Assigns a name to `var`.
    pub(super) fn name(&mut self, var: VarId) -> String {
        let name = self.names.give(self.module.vars[var.index()].name);
        self.vars.insert(var, name.clone());
        name
    }

    /// `%name: type`, where the variable is bound.
    pub(super) fn binding(&mut self, var: VarId) -> DocId {
        let name = match self.vars.get(&var) {
            Some(name) => name.clone(),
            None => self.name(var),
        };
        let var = self.module.vars[var.index()];
        let mut text = format!("%{name}");
        if let Some(ty) = var.ty.filter(|ty| self.has_text(*ty)) {
            text += &format!(": {}", self.type_text(ty));
        }
        if let Some(ty) = var.commented {
            text += &format!(" /* ty={} */", self.type_text(ty));
        }
        self.docs.of(text)
    }
}
