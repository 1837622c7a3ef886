//! `match`: its arms and their patterns.

use super::{
    frame::{Frame, Step},
    parser::Parser,
    types::MAX_NESTING,
};
use crate::{
    Fault, Span,
    ast::{Expr, ExprId, List, Match, Pattern},
    error::Result,
    token::Token,
};

impl<'a> Parser<'a> {
    /// After the scrutinee: `{` and the arms.
    pub(super) fn open_match(&mut self, start: u32, complete: bool, scrutinee: ExprId) -> Result<Step> {
        self.lexer.expect(Token::OpenBrace, "`{` and the arms")?;
        let (items, patterns) = (self.items.len() as u32, self.pending_patterns.len() as u32);
        self.next_arm(start, complete, scrutinee, items, patterns)
    }

    pub(super) fn next_arm(
        &mut self,
        start: u32,
        complete: bool,
        scrutinee: ExprId,
        items: u32,
        patterns: u32,
    ) -> Result<Step> {
        if !self.lexer.at(Token::CloseBrace) {
            let scopes = self.scopes.depth() as u32;
            self.scopes.open();
            let pattern = self.pattern(0)?;
            self.pending_patterns.push(pattern);
            self.lexer.expect(Token::FatArrow, "`=>`")?;
            self.frames.push(Frame::Arm { start, complete, scrutinee, items, patterns, scopes });
            return Ok(Step::Sequence);
        }
        self.lexer.take()?;
        let (bodies, level) = self.take_items(items);
        let level = level.max(self.level(scrutinee)).max(self.function_depth());
        let patterns = self.take_patterns(patterns);
        self.module.matches.push(Match { scrutinee, complete, patterns, bodies });
        let expr = Expr::Match(self.module.matches.len() as u32 - 1);
        let span = Span { start, end: self.lexer.last.end };
        let expr = self.add(expr, span, level);
        self.annotate(expr);
        Ok(Step::Value(expr))
    }

    fn take_patterns(&mut self, mark: u32) -> List {
        let start = self.module.patterns.len() as u32;
        self.module.patterns.extend(self.pending_patterns.drain(mark as usize..));
        List { start, len: self.module.patterns.len() as u32 - start }
    }

    fn pattern(&mut self, depth: usize) -> Result<Pattern> {
        let next = self.lexer.peek();
        if depth > MAX_NESTING {
            return Err(Fault::TooDeep("patterns are", MAX_NESTING).at(next.span));
        }
        match next.token {
            Token::Local => Ok(Pattern::Var(self.binding()?)),
            Token::OpenParen => Ok(Pattern::Tuple(self.pattern_list(depth)?)),
            Token::Ident => {
                self.lexer.take()?;
                let name = self.lexer.slice(next.span);
                if name == "_" {
                    return Ok(Pattern::Wildcard);
                }
                let Some(constructor) = self.constructors.get(name).copied() else {
                    return Err(Fault::Undefined { name: name.to_string(), hint: "as a constructor" }.at(next.span));
                };
                let fields = match self.lexer.at(Token::OpenParen) {
                    true => self.pattern_list(depth)?,
                    false => List::default(),
                };
                Ok(Pattern::Constructor(constructor, fields))
            }
            _ => Err(self.lexer.unexpected("a pattern")),
        }
    }

    fn pattern_list(&mut self, depth: usize) -> Result<List> {
        self.lexer.expect(Token::OpenParen, "`(`")?;
        let mark = self.pending_patterns.len() as u32;
        while !self.lexer.eat(Token::CloseParen)? {
            let pattern = self.pattern(depth + 1)?;
            self.pending_patterns.push(pattern);
            if !self.lexer.eat(Token::Comma)? && !self.lexer.at(Token::CloseParen) {
                return Err(self.lexer.unexpected("`,` or `)`"));
            }
        }
        Ok(self.take_patterns(mark))
    }
}
