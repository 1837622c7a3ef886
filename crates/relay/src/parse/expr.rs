//! Expressions: a pushdown automaton with an explicit stack of [`Frame`]s instead of recursion.
//!
//! A sequence (`let …; %0 = …; result`) is allowed wherever an expression is; an infix expression is the right-hand side
//! of `=`. The frame on top receives finished infix expressions as *values* and finished sequences as *results*.

use super::{
    frame::{Frame, Step},
    parser::Parser,
};
use crate::{
    ParseMode, Span,
    ast::{Expr, ExprId, List},
    error::Result,
    token::Token,
};

/// Precedence and Relay operator of an infix operator.
fn infix(token: Token) -> Option<(u8, &'static str)> {
    Some(match token {
        Token::Star => (12, "multiply"),
        Token::Slash => (12, "divide"),
        Token::Plus => (10, "add"),
        Token::Minus => (10, "subtract"),
        Token::Less => (8, "less"),
        Token::LessEqual => (8, "less_equal"),
        Token::Greater => (8, "greater"),
        Token::GreaterEqual => (8, "greater_equal"),
        Token::Equal => (7, "equal"),
        Token::NotEqual => (7, "not_equal"),
        _ => return None,
    })
}

impl<'a> Parser<'a> {
    /// Parses a sequence up to the first token that cannot belong to it.
    pub(super) fn expression(&mut self) -> Result<ExprId> {
        let base = self.frames.len();
        let mut step = Step::Sequence;
        loop {
            step = match step {
                Step::Sequence => {
                    let (lets, scopes) = (self.lets.len() as u32, self.scopes.depth() as u32);
                    if let Some(Frame::Block | Frame::Then { .. } | Frame::Otherwise { .. }) = self.frames.last() {
                        self.scopes.open();
                    }
                    self.frames.push(Frame::Sequence { lets, scopes });
                    Step::Statement
                }
                Step::Statement => self.statement()?,
                Step::Operand => self.operand()?,
                Step::Atom { expr, sealed } => self.after_atom(expr, sealed)?,
                Step::Value(expr) => self.after_value(expr)?,
                Step::Result(expr) if self.frames.len() == base => return Ok(expr),
                Step::Result(expr) => self.after_result(expr)?,
            };
        }
    }

    fn statement(&mut self) -> Result<Step> {
        let next = self.lexer.peek();
        match next.token {
            Token::Let => {
                self.lexer.take()?;
                let var = self.binding()?;
                self.lexer.expect(Token::Assign, "`=`")?;
                self.frames.push(Frame::LetValue(var));
                if self.lexer.at(Token::Let) {
                    return Err(self.lexer.unexpected("a `let` in parentheses: without them its end is ambiguous"));
                }
                self.operand_or_match()
            }
            Token::Graph if self.lexer.second() == Some(Token::Assign) => {
                self.lexer.take()?;
                self.lexer.take()?;
                let number = self.graph_number(next.span)?;
                self.frames.push(Frame::GraphValue(number));
                self.operand_or_match()
            }
            Token::FreeVar => {
                self.lexer.take()?;
                let var = self.binding()?;
                self.module.free_vars.push(var);
                self.lexer.expect(Token::Semicolon, "`;`")?;
                Ok(Step::Statement)
            }
            Token::OpenBrace => {
                self.lexer.take()?;
                self.frames.push(Frame::Block);
                Ok(Step::Sequence)
            }
            _ => self.operand_or_match(),
        }
    }

    /// `match` cannot be an operand of an infix expression.
    fn operand_or_match(&mut self) -> Result<Step> {
        let next = self.lexer.peek();
        match next.token {
            Token::Match | Token::PartialMatch => {
                let bound = matches!(self.frames.last(), Some(Frame::LetValue(_) | Frame::GraphValue(_)));
                if bound && self.mode == ParseMode::Strict {
                    return Err(self.lexer.unexpected("an operand: TVM reads no `match` right after `=`"));
                }
                self.lexer.take()?;
                let complete = next.token == Token::Match;
                self.frames.push(Frame::Scrutinee { start: next.span.start, complete });
                Ok(Step::Operand)
            }
            _ => Ok(Step::Operand),
        }
    }

    fn after_atom(&mut self, expr: ExprId, sealed: bool) -> Result<Step> {
        let next = self.lexer.peek();
        match next.token {
            Token::OpenParen if !matches!(self.frames.last(), Some(Frame::Scrutinee { .. })) || sealed => {
                self.lexer.take()?;
                let start = match self.module.expr(expr) {
                    Expr::Operator(_) => self.name_start,
                    _ => self.span(expr).start,
                };
                self.frames.push(Frame::Args { start, callee: expr, items: self.items.len() as u32, comma: false });
                self.next_operand()
            }
            Token::Dot if !sealed => {
                let start = self.lexer.last.start;
                self.lexer.take()?;
                self.projections(expr, start)
            }
            token => {
                if let Some(Frame::Scrutinee { start, complete }) = self.frames.last().copied() {
                    self.frames.pop();
                    return self.open_match(start, complete, expr);
                }
                let tightness = infix(token).map(|(tightness, _)| tightness);
                let mut expr = expr;
                while let Some(&Frame::Infix { left, operator }) = self.frames.last() {
                    let Some((pending, name)) = infix(operator) else { break };
                    if tightness.is_some_and(|tightness| pending < tightness) {
                        break;
                    }
                    self.frames.pop();
                    expr = self.infix_call(name, left, expr);
                }
                match tightness {
                    Some(_) => {
                        self.lexer.take()?;
                        self.frames.push(Frame::Infix { left: expr, operator: token });
                        Ok(Step::Operand)
                    }
                    None => Ok(Step::Value(expr)),
                }
            }
        }
    }

    fn infix_call(&mut self, name: &'static str, left: ExprId, right: ExprId) -> ExprId {
        let span = self.span(left).to(self.span(right));
        let callee = self.operator(name, span);
        let start = self.module.expr_pool.len() as u32;
        self.module.expr_pool.extend([left, right]);
        let level = self.level(left).max(self.level(right));
        let call = Expr::Call { callee, args: List { start, len: 2 }, attrs: List::default() };
        self.add(call, span, level)
    }

    /// After `.`: an index; in tolerant mode also `.0.1`, whose digits the scanner took for one number.
    fn projections(&mut self, tuple: ExprId, start: u32) -> Result<Step> {
        let token = self.lexer.expect(Token::Number, "a tuple index")?;
        let text = self.lexer.slice(token.span);
        let strict = self.mode == ParseMode::Strict;
        let mut expr = tuple;
        for digits in text.split('.') {
            let index = digits.parse().ok().filter(|_| !strict || digits.len() == text.len());
            let Some(index) = index else {
                return Err(self.bad_number(token.span, "is not a valid tuple index"));
            };
            expr = self.add(Expr::Project(expr, index), Span { start, end: token.span.end }, self.level(expr));
        }
        self.annotate(expr);
        Ok(Step::Atom { expr, sealed: strict })
    }

    fn after_value(&mut self, value: ExprId) -> Result<Step> {
        match self.frames.pop() {
            Some(Frame::LetValue(var)) => {
                self.lets.push((var, value));
                self.scopes.open();
                self.lexer.expect(Token::Semicolon, "an operator or `;`")?;
                Ok(Step::Statement)
            }
            Some(Frame::GraphValue(number)) => {
                self.graph_vars.entry(number).or_insert(value);
                self.lexer.expect(Token::Semicolon, "an operator or `;`")?;
                Ok(Step::Statement)
            }
            Some(Frame::Sequence { lets, scopes }) => {
                if self.lexer.eat(Token::Semicolon)? {
                    let var = self.add_var("", self.span(value), None, None);
                    self.lets.push((var, value));
                    self.scopes.open();
                    self.frames.push(Frame::Sequence { lets, scopes });
                    return Ok(Step::Statement);
                }
                let mut body = value;
                while self.lets.len() > lets as usize {
                    let Some((var, value)) = self.lets.pop() else { break };
                    let level = self.level(value).max(self.level(body)).max(self.module.vars[var.index()].level);
                    let span = self.module.vars[var.index()].span.to(self.span(body));
                    body = self.add(Expr::Let { var, value, body }, span, level);
                }
                self.scopes.close_to(scopes as usize);
                Ok(Step::Result(body))
            }
            // Other frames receive results, never values.
            _ => Err(self.lexer.unexpected("the end of the expression")),
        }
    }

    fn after_result(&mut self, result: ExprId) -> Result<Step> {
        let Some(frame) = self.frames.pop() else {
            return Err(self.lexer.unexpected("the end of the expression"));
        };
        match frame {
            Frame::Block => {
                self.lexer.expect(Token::CloseBrace, "an operator, `;` or `}`")?;
                Ok(Step::Value(result))
            }
            Frame::Paren { start, items, comma } => self.after_field(result, start, items, comma),
            Frame::Args { start, callee, items, comma } => {
                self.items.push(result);
                let comma = self.lexer.eat(Token::Comma)? || comma;
                if !comma && !self.lexer.at(Token::CloseParen) {
                    return Err(self.lexer.unexpected("`,` or `)`"));
                }
                self.frames.push(Frame::Args { start, callee, items, comma });
                self.next_operand()
            }
            Frame::Condition { start } => {
                self.lexer.expect(Token::CloseParen, "`)`")?;
                self.lexer.expect(Token::OpenBrace, "`{`")?;
                self.frames.push(Frame::Then { start, condition: result });
                Ok(Step::Sequence)
            }
            Frame::Then { start, condition } => {
                self.lexer.expect(Token::CloseBrace, "an operator, `;` or `}`")?;
                self.lexer.expect(Token::Else, "`else`: an `if` has two branches")?;
                self.lexer.expect(Token::OpenBrace, "`{`")?;
                self.frames.push(Frame::Otherwise { start, condition, then: result });
                Ok(Step::Sequence)
            }
            Frame::Otherwise { start, condition, then } => {
                self.lexer.expect(Token::CloseBrace, "an operator, `;` or `}`")?;
                let level = self.level(condition).max(self.level(then)).max(self.level(result));
                self.atom(Expr::If { condition, then, otherwise: result }, start, level)
            }
            Frame::Body { start } => {
                let (function, level) = self.close_function(result)?;
                self.atom(Expr::Function(function), start, level)
            }
            Frame::NewRef { start } => {
                self.lexer.expect(Token::CloseParen, "`)`")?;
                self.atom(Expr::NewRef(result), start, self.level(result))
            }
            Frame::ReadRef { start } => {
                self.lexer.expect(Token::CloseParen, "`)`")?;
                self.atom(Expr::ReadRef(result), start, self.level(result))
            }
            Frame::WriteTarget { start } => {
                self.lexer.expect(Token::Comma, "`,` and the new value")?;
                self.frames.push(Frame::WriteValue { start, target: result });
                Ok(Step::Sequence)
            }
            Frame::WriteValue { start, target } => {
                self.lexer.expect(Token::CloseParen, "`)`")?;
                let level = self.level(target).max(self.level(result));
                self.atom(Expr::WriteRef(target, result), start, level)
            }
            Frame::Arm { start, complete, scrutinee, items, patterns, scopes } => {
                self.items.push(result);
                self.scopes.close_to(scopes as usize);
                self.lexer.eat(Token::Comma)?;
                self.next_arm(start, complete, scrutinee, items, patterns)
            }
            _ => Err(self.lexer.unexpected("the end of the expression")),
        }
    }

    /// Finishes an expression that ends at the last consumed token.
    pub(super) fn atom(&mut self, expr: Expr, start: u32, level: u32) -> Result<Step> {
        let span = Span { start, end: self.lexer.last.end };
        let expr = self.add(expr, span, level);
        self.annotate(expr);
        Ok(Step::Atom { expr, sealed: false })
    }

    pub(super) fn span(&self, expr: ExprId) -> Span {
        self.module.notes[expr.index()].span
    }

    pub(super) fn level(&self, expr: ExprId) -> u32 {
        self.module.notes[expr.index()].level
    }
}
