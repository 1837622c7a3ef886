//! The parser state, and definitions at the top level of a file.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

use super::{attribute_lists::AttributeListCache, frame::Frame, scope::Scopes};
use crate::{
    Fault, ParseMode, Span,
    ast::{
        Adt, Constructor, ConstructorId, Expr, ExprId, Function, Global, GlobalId, List, Module, Note, OpId, OpRef,
        Pattern, TypeId, VarId,
    },
    error::{LocatedFault, Result, shown},
    token::{Lexer, Token},
};
use edgecut_ops as ops;
use edgecut_ops::OpDef;

/// The only version of the text format.
const VERSION: &str = "0.0.5";

/// Parses `text` up to its end or the metadata section.
pub(crate) fn parse_module(text: &str, mode: ParseMode) -> Result<Module<'_>> {
    let mut parser = Parser::new(text, mode)?;
    parser.file()?;
    let mut module = parser.module;
    module.shrink();
    Ok(module)
}

/// Length of the prefix that is not part of the text: a byte order mark, and the line that `PrintIR` writes into logs.
fn preamble(text: &str, mode: ParseMode) -> usize {
    if mode == ParseMode::Strict {
        return 0;
    }
    let rest = text.trim_start_matches('\u{feff}');
    let line = if rest.starts_with("PrintIR(") { rest.find('\n').unwrap_or(0) } else { 0 };
    text.len() - rest.len() + line
}

/// The state of parsing one text.
pub(super) struct Parser<'a> {
    pub(super) text: &'a str,
    pub(super) mode: ParseMode,
    pub(super) lexer: Lexer<'a>,
    pub(super) module: Module<'a>,
    pub(super) scopes: Scopes<'a>,
    /// The first binding of each graph variable; one namespace for the whole file.
    pub(super) graph_vars: HashMap<u64, ExprId, RandomState>,
    pub(super) globals: HashMap<&'a str, GlobalId, RandomState>,
    /// The expression of each operator, shared by all uses.
    pub(super) operators: HashMap<&'a str, ExprId, RandomState>,
    /// Attribute lists parsed before, by operator.
    pub(super) attribute_lists: AttributeListCache<'a>,
    pub(super) adts: HashSet<&'a str, RandomState>,
    pub(super) constructors: HashMap<&'a str, ConstructorId, RandomState>,
    /// The types of annotations and `ty=` comments by their text; `None` for a text that is no type.
    pub(super) known_types: HashMap<&'a str, Option<TypeId>, RandomState>,
    /// For each open function, the largest level of its captured variables.
    pub(super) captured: Vec<u32>,
    /// The open functions, each with the number of scopes before it.
    pub(super) open_functions: Vec<(Function, usize)>,
    pub(super) frames: Vec<Frame>,
    /// Start of the last parsed name.
    pub(super) name_start: u32,
    /// Bindings of the open sequences.
    pub(super) lets: Vec<(VarId, ExprId)>,
    /// Operands and fields of the open calls and tuples.
    pub(super) items: Vec<ExprId>,
    /// Patterns of the open `match`es.
    pub(super) pending_patterns: Vec<Pattern>,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str, mode: ParseMode) -> Result<Parser<'a>> {
        Ok(Parser {
            text,
            mode,
            lexer: Lexer::within(text, preamble(text, mode), text.len(), mode)?,
            module: Module::default(),
            scopes: Scopes::default(),
            graph_vars: HashMap::default(),
            globals: HashMap::default(),
            operators: HashMap::default(),
            attribute_lists: AttributeListCache::default(),
            adts: HashSet::default(),
            constructors: HashMap::default(),
            known_types: HashMap::default(),
            captured: Vec::new(),
            open_functions: Vec::new(),
            frames: Vec::new(),
            name_start: 0,
            lets: Vec::new(),
            items: Vec::new(),
            pending_patterns: Vec::new(),
        })
    }

    pub(super) fn file(&mut self) -> Result<()> {
        self.header()?;
        if self.lexer.at(Token::End) {
            let what = "the file is empty; expected Relay text, as `mod.astext()` prints it";
            return Err(Fault::Other(what.to_string()).at(self.lexer.peek().span));
        }
        let is_module = match self.lexer.peek().token {
            Token::Def | Token::Type | Token::Extern => true,
            Token::Global => self.lexer.second() == Some(Token::Assign),
            _ => false,
        };
        if is_module {
            if self.mode == ParseMode::Strict && !self.module.header {
                let start = self.lexer.peek().span;
                return Err(Fault::Syntax {
                    expected: format!("the header `#[version = \"{VERSION}\"]` before the first definition"),
                    found: format!("`{}`", self.lexer.slice(start)),
                }
                .at(start));
            }
            self.definitions()?;
        } else {
            let entry = self.expression()?;
            self.module.entry = Some(entry);
        }
        match self.lexer.peek().token {
            Token::End => Ok(()),
            Token::Metadata => {
                self.module.metadata = Some(self.lexer.rest());
                Ok(())
            }
            _ if is_module => Err(self.lexer.unexpected("a definition (`def`, `type`) or the end of the file")),
            _ => Err(self.lexer.unexpected("an operator, `;` or the end of the file")),
        }
    }

    pub(super) fn header(&mut self) -> Result<()> {
        if self.lexer.at(Token::Version) {
            let token = self.lexer.take()?;
            let text = self.lexer.slice(token.span);
            let version = text.split('"').nth(1).unwrap_or_default();
            if version != VERSION {
                return Err(Fault::Syntax {
                    expected: format!("version \"{VERSION}\""),
                    found: format!("\"{version}\""),
                }
                .at(token.span));
            }
            self.module.header = true;
        }
        Ok(())
    }

    pub(super) fn definitions(&mut self) -> Result<()> {
        let mut after_extern = false;
        loop {
            let next = self.lexer.peek();
            if after_extern && self.mode == ParseMode::Strict && matches!(next.token, Token::Def | Token::Type) {
                return Err(self.lexer.unexpected("the end of the file: TVM reads no definition after an extern type"));
            }
            match next.token {
                Token::Def => self.definition()?,
                Token::Type => {
                    self.lexer.take()?;
                    self.adt(false)?;
                }
                Token::Extern => {
                    self.lexer.take()?;
                    self.lexer.expect(Token::Type, "`type`")?;
                    self.adt(true)?;
                    after_extern = true;
                }
                Token::Global if self.lexer.second() == Some(Token::Assign) => {
                    let reason = "this module was lowered to tensor-level functions; print it before lowering";
                    return Err(Fault::Other(reason.to_string()).at(next.span));
                }
                _ => return Ok(()),
            }
        }
    }

    pub(super) fn definition(&mut self) -> Result<()> {
        self.lexer.expect(Token::Def, "`def`")?;
        let name = self.lexer.expect(Token::Global, "the name of a global, such as `@main`")?;
        let global = self.global(name.span);
        self.open_function()?;
        let body = self.expression()?;
        let (function, _) = self.close_function(body)?;
        self.module.globals[global.index()].function = Some(function);
        self.module.globals[global.index()].span = name.span;
        Ok(())
    }

    pub(super) fn adt(&mut self, is_extern: bool) -> Result<()> {
        let name = self.lexer.expect(Token::Ident, "the name of a type")?;
        let span = name.span;
        let name = self.lexer.slice(span);
        if !self.adts.insert(name) {
            return Err(Fault::Duplicate { name: name.to_string() }.at(span));
        }
        let type_params = self.type_params()?;
        let start = self.module.constructors.len() as u32;
        if !is_extern && self.lexer.eat(Token::OpenBrace)? {
            while !self.lexer.eat(Token::CloseBrace)? {
                self.constructor()?;
                if !self.lexer.eat(Token::Comma)? && !self.lexer.at(Token::CloseBrace) {
                    return Err(self.lexer.unexpected("`,` or `}`"));
                }
            }
        }
        let constructors = List { start, len: self.module.constructors.len() as u32 - start };
        self.module.adts.push(Adt { name, type_params, constructors, is_extern });
        Ok(())
    }

    pub(super) fn constructor(&mut self) -> Result<()> {
        let token = self.lexer.expect(Token::Ident, "a constructor or `}`")?;
        let name = self.lexer.slice(token.span);
        let id = ConstructorId(self.module.constructors.len() as u32);
        if self.constructors.insert(name, id).is_some() {
            return Err(Fault::Duplicate { name: name.to_string() }.at(token.span));
        }
        let fields = match self.lexer.eat(Token::OpenParen)? {
            true => self.type_list(Token::CloseParen, 0)?,
            false => List::default(),
        };
        let adt = self.module.adts.len() as u32;
        self.module.constructors.push(Constructor { name, fields, adt });
        Ok(())
    }

    /// The global named at `span`, which starts with `@`.
    pub(super) fn global(&mut self, span: Span) -> GlobalId {
        let name = &self.lexer.slice(span)[1..];
        *self.globals.entry(name).or_insert_with(|| {
            self.module.globals.push(Global { name, function: None, span });
            GlobalId(self.module.globals.len() as u32 - 1)
        })
    }

    /// The operator `name`; `span` is its range if this is the first use.
    pub(super) fn operator(&mut self, name: &'a str, span: Span) -> ExprId {
        if let Some(known) = self.operators.get(name) {
            return *known;
        }
        self.module.operators.push(OpRef { name, def: ops::lookup(name) });
        let expr = self.add(Expr::Operator(OpId(self.module.operators.len() as u32 - 1)), span, 0);
        self.operators.insert(name, expr);
        expr
    }

    pub(super) fn operator_def(&self, operator: ExprId) -> Option<&'static OpDef> {
        match self.module.expr(operator) {
            Expr::Operator(operator) => self.module.operators[operator.index()].def,
            _ => None,
        }
    }

    /// Adds an expression; `level` is the largest level of its variables and operands.
    pub(super) fn add(&mut self, expr: Expr, span: Span, level: u32) -> ExprId {
        self.capture(level);
        self.module.exprs.push(expr);
        self.module.notes.push(Note { span, ty: None, layer: None, level });
        ExprId(self.module.exprs.len() as u32 - 1)
    }

    /// Records that the innermost open function uses a value of this level, which may be captured.
    pub(super) fn capture(&mut self, level: u32) {
        let here = self.function_depth();
        if let Some(captured) = self.captured.last_mut()
            && level < here
        {
            *captured = level.max(*captured);
        }
    }

    /// Number of open functions.
    pub(super) fn function_depth(&self) -> u32 {
        self.captured.len() as u32
    }

    /// Attaches the type (`ty=`) and the layer (`span=`) of the comment before the next token to `expr`.
    pub(super) fn annotate(&mut self, expr: ExprId) {
        let note = self.lexer.peek().note;
        if let Some(ty) = self.commented_type(note) {
            self.module.notes[expr.index()].ty = Some(ty);
        }
        let Some(layer) = self.commented_layer(note) else { return };
        // Consecutive expressions of one layer share an entry.
        if self.module.layers.last().is_none_or(|last| last != layer) {
            self.module.layers.push(layer.into());
        }
        self.module.notes[expr.index()].layer = Some(self.module.layers.len() as u32 - 1);
    }

    pub(super) fn bad_number(&self, span: Span, what: &str) -> Box<LocatedFault> {
        Fault::Token(format!("the number `{}` {what}", shown(self.lexer.slice(span)))).at(span)
    }
}
