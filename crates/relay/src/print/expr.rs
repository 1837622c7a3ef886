//! Expressions in graph normal form, printed with an explicit stack.

use super::{doc::DocId, literal, printer::Printer, task::PrintTask};
use crate::ast::{Expr, ExprId, FunctionId, List, MetaRef, Pattern};

impl Printer<'_, '_> {
    /// Counts the uses of every expression below `root`.
    pub(super) fn count_uses(&mut self, root: ExprId) {
        self.uses.clear();
        let mut pending = vec![root];
        while let Some(expr) = pending.pop() {
            let count = self.uses.entry(expr).or_insert(0);
            *count += 1;
            if *count == 1 {
                self.module.operands(expr, &mut pending);
            }
        }
    }

    /// The text of `expr` with the definitions it needs before it.
    pub(super) fn scope(&mut self, expr: ExprId) -> DocId {
        self.push_scope(expr);
        self.drain()
    }

    fn push_scope(&mut self, expr: ExprId) {
        self.tasks.extend([PrintTask::Close, PrintTask::Print { expr, tail: true }, PrintTask::Open]);
    }

    /// Parameters, attributes, result type and body of a function.
    pub(super) fn function(&mut self, function: FunctionId) -> DocId {
        let body = self.module.functions[function.index()].body;
        let head = self.function_head(function);
        let body = self.scope(body);
        self.docs.block(head, "{", body, "}");
        head
    }

    fn drain(&mut self) -> DocId {
        while let Some(task) = self.tasks.pop() {
            match task {
                PrintTask::Print { expr, tail } => self.print(expr, tail),
                PrintTask::Finish { expr, tail } => self.finish(expr, tail),
                PrintTask::Assemble(expr) => self.assemble(expr),
                PrintTask::Open => {
                    let doc = self.docs.empty();
                    self.scopes.push(doc);
                }
                PrintTask::Close => {
                    let result = self.result();
                    let doc = self.scopes.pop().unwrap_or(result);
                    self.docs.doc(doc, result);
                    self.results.push(doc);
                }
                PrintTask::LetLine(var, expr) => {
                    let value = self.result();
                    let binding = self.binding(var);
                    let scope = self.scopes.last().copied().unwrap_or(value);
                    self.docs.text(scope, "let ").doc(scope, binding).text(scope, " = ");
                    self.value(scope, expr, value);
                }
            }
        }
        self.result()
    }

    /// The text on top; the machine keeps the stack balanced.
    fn result(&mut self) -> DocId {
        match self.results.pop() {
            Some(doc) => doc,
            None => self.docs.empty(),
        }
    }

    fn print(&mut self, expr: ExprId, tail: bool) {
        if let Some(known) = self.printed.get(&expr) {
            self.results.push(*known);
            return;
        }
        let module = self.module;
        self.tasks.push(PrintTask::Finish { expr, tail });
        let meta = |meta: MetaRef<'_>| format!("meta[{}][{}]", meta.key, meta.index);
        let text = match module.expr(expr) {
            Expr::Var(var) => match self.vars.get(&var) {
                Some(name) => format!("%{name}"),
                None => format!("%{}", self.name(var)),
            },
            Expr::Global(global) => format!("@{}", module.globals[global.index()].name),
            Expr::Operator(operator) => module.operators[operator.index()].name.to_string(),
            Expr::Constructor(constructor) => module.constructors[constructor.index()].name.to_string(),
            Expr::Scalar(index) => literal::scalar(module.scalars[index as usize]),
            Expr::Meta(index) => meta(module.metas[index as usize]),
            Expr::Function(function) => {
                let head = self.docs.of("fn ");
                let rest = self.function_head(function);
                self.docs.doc(head, rest);
                self.results.push(head);
                self.tasks.push(PrintTask::Assemble(expr));
                self.push_scope(module.functions[function.index()].body);
                return;
            }
            Expr::Let { .. } => return self.print_lets(expr),
            other => {
                self.tasks.push(PrintTask::Assemble(expr));
                match other {
                    Expr::Tuple(list) => self.print_all(list),
                    Expr::Call { callee, args, .. } => {
                        if !matches!(module.expr(callee), Expr::Constructor(_)) {
                            self.tasks.push(PrintTask::Print { expr: callee, tail: false });
                        }
                        self.print_all(args);
                    }
                    Expr::If { condition, then, otherwise } => {
                        self.push_scope(otherwise);
                        self.push_scope(then);
                        self.tasks.push(PrintTask::Print { expr: condition, tail: false });
                    }
                    Expr::Match(index) => {
                        let arms = module.matches[index as usize];
                        for body in module.exprs_of(arms.bodies).iter().rev() {
                            self.push_scope(*body);
                        }
                        self.tasks.push(PrintTask::Print { expr: arms.scrutinee, tail: false });
                        self.name_patterns(arms.patterns);
                    }
                    Expr::WriteRef(target, value) => {
                        self.tasks.push(PrintTask::Print { expr: value, tail: false });
                        self.tasks.push(PrintTask::Print { expr: target, tail: false });
                    }
                    Expr::Project(inner, _) | Expr::NewRef(inner) | Expr::ReadRef(inner) => {
                        self.tasks.push(PrintTask::Print { expr: inner, tail: false });
                    }
                    _ => {}
                }
                return;
            }
        };
        let doc = self.docs.of(text);
        self.results.push(doc);
    }

    fn print_all(&mut self, list: List) {
        let exprs = self.module.exprs_of(list);
        self.tasks.extend(exprs.iter().rev().map(|expr| PrintTask::Print { expr: *expr, tail: false }));
    }

    /// A chain of lets is one scope: each line follows the definitions that its value needs.
    fn print_lets(&mut self, first: ExprId) {
        let at = self.tasks.len();
        self.tasks.push(PrintTask::Open);
        let mut expr = first;
        while let Expr::Let { var, value, body } = self.module.expr(expr) {
            self.name(var);
            self.tasks.push(PrintTask::Print { expr: value, tail: true });
            self.tasks.push(PrintTask::LetLine(var, value));
            expr = body;
        }
        self.tasks.push(PrintTask::Print { expr, tail: true });
        self.tasks.push(PrintTask::Close);
        self.tasks[at..].reverse();
    }

    fn always_in_line(&self, expr: ExprId) -> bool {
        matches!(
            self.module.expr(expr),
            Expr::Var(_) | Expr::Global(_) | Expr::Operator(_) | Expr::Constructor(_) | Expr::Scalar(_) | Expr::Meta(_)
        )
    }

    fn finish(&mut self, expr: ExprId, tail: bool) {
        let text = self.result();
        if let Some(ty) = self.module.note(expr).ty {
            let comment = format!(" /* ty={} */", self.type_text(ty));
            self.docs.text(text, comment);
        }
        let used_once = self.uses.get(&expr).is_none_or(|uses| *uses <= 1);
        if self.always_in_line(expr) || tail && used_once {
            self.printed.insert(expr, text);
            self.results.push(text);
            return;
        }
        let name = self.docs.of(format!("%{}", self.next));
        self.next += 1;
        let scope = self.scopes.last().copied().unwrap_or(text);
        self.docs.doc(scope, name).text(scope, " = ");
        self.value(scope, expr, text);
        self.printed.insert(expr, name);
        self.results.push(name);
    }

    /// Appends the value of a binding and ends its line. A let is parenthesised, since its end would be ambiguous.
    fn value(&mut self, scope: DocId, expr: ExprId, text: DocId) {
        match self.module.expr(expr) {
            Expr::Let { .. } => self.docs.block(scope, "(", text, ")"),
            _ => self.docs.doc(scope, text),
        };
        self.docs.text(scope, ";").line(scope);
    }

    fn assemble(&mut self, expr: ExprId) {
        let module = self.module;
        let doc = self.docs.empty();
        match module.expr(expr) {
            Expr::Tuple(list) => {
                let fields = self.take(list.len);
                self.docs.text(doc, "(").list(doc, &fields).text(doc, if list.len == 1 { ",)" } else { ")" });
            }
            Expr::Project(inner, index) => {
                let tuple = self.result();
                // After a number, the dot would be a decimal point.
                let is_number = matches!(module.expr(inner), Expr::Scalar(_));
                let (open, close) = if is_number { ("(", ")") } else { ("", "") };
                self.docs.text(doc, open).doc(doc, tuple).text(doc, format!("{close}.{index}"));
            }
            Expr::Call { callee, args, attrs } => {
                let constructor = match module.expr(callee) {
                    Expr::Constructor(constructor) => Some(module.constructors[constructor.index()].name),
                    _ => None,
                };
                match constructor {
                    Some(name) => self.docs.text(doc, name),
                    None => {
                        let callee = self.result();
                        self.docs.doc(doc, callee)
                    }
                };
                let mut operands = self.take(args.len);
                for attr in self.call_attrs(callee, attrs) {
                    operands.push(self.docs.of(attr));
                }
                if constructor.is_none() || !operands.is_empty() {
                    self.docs.text(doc, "(").list(doc, &operands).text(doc, ")");
                }
            }
            Expr::Function(_) => {
                let body = self.result();
                let head = self.result();
                self.docs.doc(doc, head).block(doc, "{", body, "}");
            }
            Expr::If { .. } => {
                let (otherwise, then, condition) = (self.result(), self.result(), self.result());
                self.docs.text(doc, "if (").doc(doc, condition).text(doc, ") ");
                self.docs.block(doc, "{", then, "}").text(doc, " else ").block(doc, "{", otherwise, "}");
            }
            Expr::Match(index) => self.assemble_match(doc, index),
            Expr::NewRef(_) | Expr::ReadRef(_) => {
                let inner = self.result();
                let name = if matches!(module.expr(expr), Expr::NewRef(_)) { "ref(" } else { "ref_read(" };
                self.docs.text(doc, name).doc(doc, inner).text(doc, ")");
            }
            Expr::WriteRef(..) => {
                let (value, target) = (self.result(), self.result());
                self.docs.text(doc, "ref_write(").list(doc, &[target, value]).text(doc, ")");
            }
            _ => {}
        }
        self.results.push(doc);
    }

    fn assemble_match(&mut self, doc: DocId, index: u32) {
        let arms = self.module.matches[index as usize];
        let bodies = self.take(arms.bodies.len);
        let scrutinee = self.result();
        let inner = self.docs.empty();
        for (at, body) in bodies.iter().enumerate() {
            if at > 0 {
                self.docs.line(inner);
            }
            let pattern = self.pattern_text(self.module.patterns_of(arms.patterns)[at]);
            self.docs.text(inner, pattern).text(inner, " => ").block(inner, "{", *body, "}").text(inner, ",");
        }
        self.docs.text(doc, if arms.complete { "match (" } else { "match? (" }).doc(doc, scrutinee).text(doc, ") ");
        self.docs.block(doc, "{", inner, "}");
    }

    /// The topmost `len` texts, oldest first.
    fn take(&mut self, len: u32) -> Vec<DocId> {
        let at = self.results.len().saturating_sub(len as usize);
        self.results.split_off(at)
    }

    /// `[A](%x: T, key=value) -> T `, up to the brace.
    fn function_head(&mut self, function: FunctionId) -> DocId {
        let module = self.module;
        let function = module.functions[function.index()];
        let doc = self.docs.of(self.type_params(function.type_params));
        let mut params: Vec<DocId> = module.vars_of(function.params).iter().map(|var| self.binding(*var)).collect();
        for attr in self.function_attrs(function.attrs) {
            params.push(self.docs.of(attr));
        }
        self.docs.text(doc, "(").list(doc, &params).text(doc, ") ");
        if let Some(ty) = function.result.filter(|ty| self.has_text(*ty)) {
            let ty = self.type_text(ty);
            self.docs.text(doc, format!("-> {ty} "));
        }
        doc
    }

    fn name_patterns(&mut self, patterns: List) {
        let mut pending = vec![patterns];
        while let Some(list) = pending.pop() {
            for pattern in self.module.patterns_of(list) {
                match *pattern {
                    Pattern::Var(var) => {
                        self.name(var);
                    }
                    Pattern::Constructor(_, fields) | Pattern::Tuple(fields) => pending.push(fields),
                    Pattern::Wildcard => {}
                }
            }
        }
    }

    /// Recursion is bounded by the parser's limit on the nesting of patterns.
    fn pattern_text(&mut self, pattern: Pattern) -> String {
        let fields = |printer: &mut Self, list: List| -> String {
            let module = printer.module;
            let fields: Vec<String> = module.patterns_of(list).iter().map(|p| printer.pattern_text(*p)).collect();
            fields.join(", ")
        };
        match pattern {
            Pattern::Wildcard => "_".to_string(),
            Pattern::Var(var) => {
                let binding = self.binding(var);
                self.docs.render(binding)
            }
            Pattern::Constructor(constructor, list) => {
                let name = self.module.constructors[constructor.index()].name;
                match list.len {
                    0 => name.to_string(),
                    _ => format!("{name}({})", fields(self, list)),
                }
            }
            Pattern::Tuple(list) => format!("({})", fields(self, list)),
        }
    }
}
