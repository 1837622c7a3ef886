//! Attributes of calls and functions: `key=value` pairs.

use super::{
    number::{not_finite, number},
    parser::Parser,
    types::MAX_NESTING,
};
use crate::{
    Fault, ParseMode, Span,
    ast::{AttrValue, Attribute, ExprId, List, Scalar},
    error::Result,
    token::Token,
};

impl<'a> Parser<'a> {
    /// The attributes of a call of `callee`, up to and including its closing parenthesis.
    pub(super) fn call_attributes(&mut self, callee: ExprId) -> Result<List> {
        let start = self.lexer.peek().span.start;
        let ahead = self.text.get(start as usize..).unwrap_or_default();
        if let Some((written, list)) = self.attribute_lists.find(callee, ahead) {
            self.lexer.skip(start + written.len() as u32)?;
            return Ok(list);
        }
        let list = self.attributes(Token::CloseParen)?;
        let written = self.lexer.slice(Span { start, end: self.lexer.last.end });
        self.attribute_lists.keep(callee, written, list);
        Ok(list)
    }

    /// Whether `key=` is next, rather than an expression.
    pub(super) fn at_attribute(&self) -> bool {
        self.lexer.at(Token::Ident) && self.lexer.key_ahead()
    }

    /// Attributes up to and including `close`. Commas between them are optional.
    pub(super) fn attributes(&mut self, close: Token) -> Result<List> {
        let start = self.module.attrs.len() as u32;
        while !self.lexer.eat(close)? {
            if !self.at_attribute() {
                let expected = match self.lexer.peek().token {
                    Token::Ident | Token::End => "`key=value` or `)`",
                    _ => "`key=value` or `)`: operands precede attributes",
                };
                return Err(self.lexer.unexpected(expected));
            }
            let first = self.lexer.take()?;
            while self.lexer.eat(Token::Dot)? {
                self.lexer.expect(Token::Ident, "the rest of an attribute's name")?;
            }
            let span = first.span.to(self.lexer.last);
            let key = self.lexer.slice(span);
            if self.mode == ParseMode::Strict && key.contains('.') && self.module.attrs.len() as u32 == start {
                return Err(
                    Fault::Other(format!("TVM cannot read the dotted attribute `{key}` as the first one")).at(span)
                );
            }
            self.lexer.expect(Token::Assign, "`=`")?;
            let value = self.attr_value(0)?;
            self.module.attrs.push(Attribute { key, value, span });
            self.lexer.eat(Token::Comma)?;
        }
        Ok(List { start, len: self.module.attrs.len() as u32 - start })
    }

    fn attr_value(&mut self, depth: usize) -> Result<AttrValue<'a>> {
        let next = self.lexer.peek();
        let text = self.lexer.slice(next.span);
        if depth > MAX_NESTING {
            return Err(Fault::TooDeep("attribute lists are", MAX_NESTING).at(next.span));
        }
        let value = match next.token {
            Token::Number | Token::NotFinite => {
                let read = if next.token == Token::Number { number } else { not_finite };
                match read(text, self.mode).map_err(|what| self.bad_number(next.span, &what))? {
                    Scalar::Int(value, width) => AttrValue::Int(value, width),
                    Scalar::Float(value, width) => AttrValue::Float(value, width),
                    Scalar::Bool(value) => AttrValue::Bool(value),
                }
            }
            Token::Str => AttrValue::Str(&text[1..text.len() - 1]),
            Token::Meta => AttrValue::Meta(self.meta_ref(next.span)?),
            Token::Ident => match text {
                "True" => AttrValue::Bool(true),
                "False" => AttrValue::Bool(false),
                "None" | "nullptr" => AttrValue::None,
                _ if self.mode == ParseMode::Tolerant => return self.word(),
                _ => return Err(self.lexer.unexpected("a value; strings must be quoted")),
            },
            Token::Quoted | Token::Global if self.mode == ParseMode::Tolerant => AttrValue::Word(text),
            Token::OpenBracket => {
                self.lexer.take()?;
                return Ok(AttrValue::List(self.value_list(depth)?));
            }
            Token::OpenParen => {
                self.lexer.take()?;
                let value = self.attr_value(depth + 1)?;
                self.lexer.expect(Token::CloseParen, "`)`; a list is written in `[…]`")?;
                return Ok(value);
            }
            _ => return Err(self.lexer.unexpected("an attribute's value")),
        };
        self.lexer.take()?;
        Ok(value)
    }

    fn value_list(&mut self, depth: usize) -> Result<List> {
        let mut items = smallvec::SmallVec::<[AttrValue<'a>; 8]>::new();
        while !self.lexer.eat(Token::CloseBracket)? {
            items.push(self.attr_value(depth + 1)?);
            if !self.lexer.eat(Token::Comma)? && !self.lexer.at(Token::CloseBracket) {
                return Err(self.lexer.unexpected("`,` or `]`"));
            }
        }
        let start = self.module.values.len() as u32;
        self.module.values.extend(items);
        Ok(List { start, len: self.module.values.len() as u32 - start })
    }

    /// An unquoted word, with the parenthesised suffix of TVM's debugging output.
    fn word(&mut self) -> Result<AttrValue<'a>> {
        let first = self.lexer.take()?;
        while self.lexer.at(Token::Dot) && self.lexer.second() == Some(Token::Ident) {
            self.lexer.take()?;
            self.lexer.take()?;
        }
        let mut depth = 0usize;
        while depth > 0 || self.lexer.at(Token::OpenParen) {
            match self.lexer.take()?.token {
                Token::OpenParen => depth += 1,
                Token::CloseParen => depth -= 1,
                Token::End | Token::Metadata => return Err(self.lexer.unexpected("`)`")),
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        Ok(AttrValue::Word(self.lexer.slice(first.span.to(self.lexer.last))))
    }
}
