//! From a parsed module, or from a graph, back to Relay text that TVM reads.
//!
//! The layout is that of TVM's own printer: graph normal form, numbers given when an expression is finished,
//! definitions hoisted to the scope that first needs them. Floats have all their digits and names are legal,
//! so that what is printed is read back the same, here and by TVM.

mod attrs;
mod doc;
mod expr;
mod graph;
mod literal;
mod section;
mod types;

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::ast::{ExprId, List, Module, VarId};
use doc::{DocId, Docs};
pub use graph::{parameter_names, print_graph};

/// The line that every module begins with.
pub(super) const HEADER: &str = "#[version = \"0.0.5\"]\n";

/// Prints `module`: the header, its types and functions by name, and its metadata section as it was read.
///
/// A file that is one expression is printed as one.
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

/// A module on its way to text.
struct Printer<'m, 'a> {
    module: &'m Module<'a>,
    docs: Docs,
    names: literal::Names,
    vars: HashMap<VarId, String, RandomState>,
    /// What each expression that was printed is referred to by.
    printed: HashMap<ExprId, DocId, RandomState>,
    /// How often each expression is used in the function being printed.
    uses: HashMap<ExprId, u32, RandomState>,
    /// The number of the next graph variable; one count for the whole text.
    next: u64,
    /// Where definitions go: the texts of the open scopes.
    scopes: Vec<DocId>,
    tasks: Vec<expr::Task>,
    results: Vec<DocId>,
}

impl<'m, 'a> Printer<'m, 'a> {
    fn new(module: &'m Module<'a>) -> Printer<'m, 'a> {
        Printer {
            module,
            docs: Docs::default(),
            names: literal::Names::default(),
            vars: HashMap::default(),
            printed: HashMap::default(),
            uses: HashMap::default(),
            next: 0,
            scopes: Vec::new(),
            tasks: Vec::new(),
            results: Vec::new(),
        }
    }

    fn entry(&mut self, entry: ExprId) -> String {
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

    fn items(&mut self) -> String {
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

    fn adt(&mut self, adt: &super::ast::Adt<'_>) -> String {
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

    fn type_params(&self, list: List) -> String {
        match list.len {
            0 => String::new(),
            _ => format!("[{}]", self.module.names_of(list).join(", ")),
        }
    }

    /// Gives `var` its name in the text.
    fn name(&mut self, var: VarId) -> String {
        let name = self.names.give(self.module.vars[var.index()].name);
        self.vars.insert(var, name.clone());
        name
    }

    /// `%name: type`, where the variable is bound.
    fn binding(&mut self, var: VarId) -> DocId {
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
