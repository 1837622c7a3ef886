//! Atoms: names, constants and parenthesised forms.

use super::{
    frame::{Frame, Step},
    number::{not_finite, number},
    parser::Parser,
};
use crate::{
    Fault, ParseMode, Span,
    ast::{Expr, ExprId, List, Scalar},
    error::{LocatedFault, Result},
    token::Token,
};

impl Parser<'_> {
    pub(super) fn operand(&mut self) -> Result<Step> {
        let next = self.lexer.peek();
        let start = next.span.start;
        let expr = match next.token {
            Token::Graph => {
                let number = self.graph_number(next.span)?;
                let bound = self.graph_vars.get(&number).copied();
                let expr = bound.ok_or_else(|| self.undefined(next.span, "before this use"))?;
                self.lexer.take()?;
                self.capture(self.level(expr));
                return Ok(Step::Atom { expr, sealed: false });
            }
            Token::Local => return self.local(next.span),
            Token::Ident => return self.name(next.span),
            Token::Number | Token::NotFinite => {
                let read = if next.token == Token::Number { number } else { not_finite };
                let text = self.lexer.slice(next.span);
                let scalar = read(text, self.mode).map_err(|what| self.bad_number(next.span, &what))?;
                self.scalar(scalar, next.span)?
            }
            Token::Meta => {
                let meta = self.meta_ref(next.span)?;
                self.lexer.take()?;
                self.module.metas.push(meta);
                self.add(Expr::Meta(self.module.metas.len() as u32 - 1), next.span, 0)
            }
            Token::Global => {
                self.lexer.take()?;
                let global = self.global(next.span);
                self.add(Expr::Global(global), next.span, 0)
            }
            Token::OpenParen => {
                self.lexer.take()?;
                if self.lexer.eat(Token::CloseParen)? {
                    self.add(Expr::Tuple(List::default()), next.span.to(self.lexer.last), 0)
                } else {
                    self.frames.push(Frame::Paren { start, items: self.items.len() as u32, comma: false });
                    return Ok(Step::Sequence);
                }
            }
            Token::If => {
                self.lexer.take()?;
                self.lexer.expect(Token::OpenParen, "`(` and the condition")?;
                self.frames.push(Frame::Condition { start });
                return Ok(Step::Sequence);
            }
            Token::Fn => {
                self.lexer.take()?;
                self.frames.push(Frame::Body { start });
                self.open_function()?;
                return Ok(Step::Sequence);
            }
            Token::Ref | Token::RefRead | Token::RefWrite => {
                self.lexer.take()?;
                self.lexer.expect(Token::OpenParen, "`(`")?;
                self.frames.push(match next.token {
                    Token::Ref => Frame::NewRef { start },
                    Token::RefRead => Frame::ReadRef { start },
                    _ => Frame::WriteTarget { start },
                });
                return Ok(Step::Sequence);
            }
            _ => return Err(self.lexer.unexpected("an expression")),
        };
        self.annotate(expr);
        Ok(Step::Atom { expr, sealed: false })
    }

    fn scalar(&mut self, scalar: Scalar, span: Span) -> Result<ExprId> {
        self.lexer.take()?;
        self.module.scalars.push(scalar);
        Ok(self.add(Expr::Scalar(self.module.scalars.len() as u32 - 1), span, 0))
    }

    pub(super) fn graph_number(&self, span: Span) -> Result<u64> {
        let digits = &self.lexer.slice(span)[1..];
        digits.parse().map_err(|_| Fault::Token(format!("`%{digits}` does not fit into 64 bits")).at(span))
    }

    fn undefined(&self, span: Span, hint: &'static str) -> Box<LocatedFault> {
        Fault::Undefined { name: self.lexer.slice(span).to_string(), hint }.at(span)
    }

    /// A use of a local variable. The token may be longer than the name; the rest is scanned again.
    fn local(&mut self, span: Span) -> Result<Step> {
        let run = &self.lexer.slice(span)[1..];
        let found = match self.mode {
            ParseMode::Tolerant => self.scopes.longest(run),
            ParseMode::Strict => self.scopes.get(run).map(|var| (var, run.len())),
        };
        let (var, len) =
            found.ok_or_else(|| self.undefined(span, "here: no parameter, `let` or `free_var` binds it"))?;
        self.strict_name(span)?;
        self.lexer.take()?;
        if len < run.len() {
            self.lexer.rewind(span.start + 1 + len as u32)?;
        }
        let level = self.module.vars[var.index()].level;
        let expr = self.add(Expr::Var(var), Span { start: span.start, end: span.start + 1 + len as u32 }, level);
        Ok(Step::Atom { expr, sealed: false })
    }

    /// Rejects in strict mode the names that TVM's lexer splits.
    pub(super) fn strict_name(&self, span: Span) -> Result<()> {
        const KEYWORDS: [&str; 12] =
            ["let", "fn", "def", "if", "else", "type", "match", "extern", "free_var", "ref", "ref_read", "ref_write"];
        let name = &self.lexer.slice(span)[1..];
        if self.mode == ParseMode::Strict && (KEYWORDS.contains(&name) || name.starts_with("inff")) {
            return Err(Fault::Token(format!("TVM cannot read the name `{name}`")).at(span));
        }
        Ok(())
    }

    /// `True`, a constructor or an operator.
    fn name(&mut self, span: Span) -> Result<Step> {
        let mut span = span;
        self.name_start = span.start;
        let first = self.lexer.slice(span);
        let expr = match first {
            "True" | "False" => self.scalar(Scalar::Bool(first == "True"), span)?,
            _ => {
                self.lexer.take()?;
                if let Some(constructor) = self.constructors.get(first).copied() {
                    let bare = self.add(Expr::Constructor(constructor), span, 0);
                    let nullary = self.module.constructors[constructor.index()].fields.len == 0;
                    if nullary && !self.lexer.at(Token::OpenParen) {
                        let (args, attrs) = (List::default(), List::default());
                        self.add(Expr::Call { callee: bare, args, attrs }, span, 0)
                    } else {
                        bare
                    }
                } else {
                    while self.lexer.at(Token::Dot) && self.lexer.second() == Some(Token::Ident) {
                        self.lexer.take()?;
                        span = span.to(self.lexer.take()?.span);
                    }
                    let name = self.lexer.slice(span);
                    let known = self.operator(name, span);
                    if self.mode == ParseMode::Strict && self.operator_def(known).is_none() {
                        return Err(Fault::Undefined { name: name.to_string(), hint: "as an operator" }.at(span));
                    }
                    known
                }
            }
        };
        self.annotate(expr);
        Ok(Step::Atom { expr, sealed: false })
    }
}
