//! Parenthesised lists: fields of tuples, operands and attributes of calls.

use super::{
    frame::{Frame, Step},
    parser::Parser,
};
use crate::{
    Span,
    ast::{AttrValue, Attribute, Expr, ExprId, List},
    error::Result,
    token::Token,
};

impl<'a> Parser<'a> {
    /// After a field of `(…)`: more fields, or its end. One field without a comma is grouping.
    pub(super) fn after_field(&mut self, field: ExprId, start: u32, items: u32, comma: bool) -> Result<Step> {
        let comma = self.lexer.eat(Token::Comma)? || comma;
        if !comma {
            self.lexer.expect(Token::CloseParen, "`,` or `)`")?;
            if self.module.notes[field.index()].ty.is_none() {
                self.annotate(field);
            }
            return Ok(Step::Atom { expr: field, sealed: false });
        }
        self.items.push(field);
        if self.lexer.eat(Token::CloseParen)? {
            let (fields, level) = self.take_items(items);
            return self.atom(Expr::Tuple(fields), start, level);
        }
        self.frames.push(Frame::Paren { start, items, comma });
        Ok(Step::Sequence)
    }

    /// Moves the pending items from `mark` on to the module's pool; also returns the largest of their levels.
    pub(super) fn take_items(&mut self, mark: u32) -> (List, u32) {
        let start = self.module.expr_pool.len() as u32;
        let level = self.items[mark as usize..].iter().map(|item| self.level(*item)).max().unwrap_or(0);
        self.module.expr_pool.extend(self.items.drain(mark as usize..));
        (List { start, len: self.module.expr_pool.len() as u32 - start }, level)
    }

    /// Inside a call's parentheses: an operand, the attributes, or the end.
    pub(super) fn next_operand(&mut self) -> Result<Step> {
        let closed = self.lexer.eat(Token::CloseParen)?;
        if !closed && !self.at_attribute() {
            return Ok(Step::Sequence);
        }
        let Some(Frame::Args { start, callee, items, .. }) = self.frames.pop() else {
            return Err(self.lexer.unexpected("the end of the call"));
        };
        let mut attrs = if closed { List::default() } else { self.call_attributes(callee)? };
        if let Some(object) = self.attrs_object(items) {
            attrs = List { start: self.module.attrs.len() as u32, len: 1 };
            self.module.attrs.push(object);
        }
        let (args, level) = self.take_items(items);
        let level = level.max(self.level(callee));
        let span = Span { start, end: self.lexer.last.end };
        let expr = self.add(Expr::Call { callee, args, attrs }, span, level);
        self.annotate(expr);
        Ok(Step::Atom { expr, sealed: true })
    }

    /// Removes and returns the last operand of a call if it is an attribute object of the metadata section.
    fn attrs_object(&mut self, items: u32) -> Option<Attribute<'a>> {
        let last = *self.items.get(items as usize..)?.last()?;
        let Expr::Meta(index) = self.module.expr(last) else { return None };
        let meta = self.module.metas[index as usize];
        if !meta.key.starts_with("relay.attrs.") && meta.key != "DictAttrs" {
            return None;
        }
        self.items.pop();
        Some(Attribute { key: "", value: AttrValue::Meta(meta), span: self.span(last) })
    }
}
