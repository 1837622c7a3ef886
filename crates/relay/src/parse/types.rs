//! Types in annotations and `ty=` comments.

use super::{number::number, parser::Parser};
use crate::{
    Fault, ParseMode, Span,
    ast::{DimExpr, List, MetaRef, Scalar, TypeExpr, TypeId},
    error::Result,
    token::Token,
};
use edgecut_graph::{DType, Shape};

/// Maximum nesting of types and attribute lists; models have at most three levels.
pub(super) const MAX_NESTING: usize = 64;

impl<'a> Parser<'a> {
    /// A type in an annotation. Types with equal text share one entry in the module.
    pub(super) fn type_expr(&mut self) -> Result<TypeId> {
        let start = self.lexer.peek().span.start;
        let (types, dims) = (self.module.types.len(), self.module.dims.len());
        let ty = self.nested_type(0)?;
        let written = self.lexer.slice(Span { start, end: self.lexer.last.end });
        // Only a tensor's type has nothing in other pools.
        let is_tensor = matches!(self.module.types.get(types..), Some([TypeExpr::Tensor(..)]));
        match self.known_types.get(written) {
            Some(Some(known)) if is_tensor => {
                self.module.types.truncate(types);
                self.module.dims.truncate(dims);
                return Ok(*known);
            }
            None if is_tensor => {
                self.known_types.insert(written, Some(ty));
            }
            _ => {}
        }
        Ok(ty)
    }

    fn nested_type(&mut self, depth: usize) -> Result<TypeId> {
        let next = self.lexer.peek();
        if depth > MAX_NESTING {
            return Err(Fault::TooDeep("types are", MAX_NESTING).at(next.span));
        }
        let ty = match next.token {
            Token::Ident => {
                self.lexer.take()?;
                return self.named_type(next.span, depth);
            }
            Token::OpenParen => {
                self.lexer.take()?;
                TypeExpr::Tuple(self.type_list(Token::CloseParen, depth)?)
            }
            Token::Fn => {
                self.lexer.take()?;
                let type_params = match self.mode {
                    ParseMode::Tolerant => self.type_params()?,
                    ParseMode::Strict => List::default(),
                };
                self.lexer.expect(Token::OpenParen, "`(`")?;
                let args = self.type_list(Token::CloseParen, depth)?;
                self.arrow()?;
                let result = self.nested_type(depth + 1)?;
                TypeExpr::Function { type_params, args, result }
            }
            Token::Ref if self.mode == ParseMode::Tolerant => {
                self.lexer.take()?;
                self.lexer.expect(Token::OpenParen, "`(`")?;
                let inner = self.nested_type(depth + 1)?;
                self.lexer.expect(Token::CloseParen, "`)`")?;
                TypeExpr::Ref(inner)
            }
            Token::Meta if self.mode == ParseMode::Tolerant => {
                self.lexer.take()?;
                TypeExpr::Incomplete
            }
            _ => return Err(self.lexer.unexpected("a type, such as `Tensor[(1, 3), float32]`")),
        };
        Ok(self.add_type(ty))
    }

    fn add_type(&mut self, ty: TypeExpr<'a>) -> TypeId {
        self.module.types.push(ty);
        TypeId::new(self.module.types.len() - 1)
    }

    fn named_type(&mut self, span: Span, depth: usize) -> Result<TypeId> {
        let name = self.lexer.slice(span);
        let ty = match name {
            "Tensor" => self.tensor_type()?,
            "_" => TypeExpr::Incomplete,
            _ => {
                let claims_dtype = ["int", "uint", "float", "bool"].iter().any(|prefix| name.starts_with(prefix));
                match name.parse::<DType>() {
                    Ok(dtype) if claims_dtype || self.mode == ParseMode::Tolerant => {
                        TypeExpr::Tensor(List::default(), dtype)
                    }
                    Err(error) if claims_dtype => return Err(Fault::from(error).at(span)),
                    _ => {
                        let args = match self.lexer.eat(Token::OpenBracket)? {
                            true => self.type_list(Token::CloseBracket, depth)?,
                            false => List::default(),
                        };
                        TypeExpr::Named(name, args)
                    }
                }
            }
        };
        Ok(self.add_type(ty))
    }

    /// What follows `Tensor`.
    fn tensor_type(&mut self) -> Result<TypeExpr<'a>> {
        self.lexer.expect(Token::OpenBracket, "`[`")?;
        self.lexer.expect(Token::OpenParen, "`(` and the shape")?;
        let start = self.module.dims.len() as u32;
        let mut commas = false;
        while !self.lexer.eat(Token::CloseParen)? {
            let here = self.module.dims.len() as u32;
            if here > start && self.lexer.eat(Token::Comma)? {
                commas = true;
                if self.lexer.eat(Token::CloseParen)? {
                    break;
                }
            } else if here > start && !commas {
                return Err(self.lexer.unexpected("`,` or `)`"));
            }
            let dim = self.dim()?;
            self.module.dims.push(dim);
        }
        let dims = List { start, len: self.module.dims.len() as u32 - start };
        if dims.len as usize > Shape::MAX_DIMS {
            let what = format!("a tensor of {} dimensions; at most {} are read", dims.len, Shape::MAX_DIMS);
            return Err(Fault::Other(what).at(self.lexer.last));
        }
        self.lexer.expect(Token::Comma, "`,` and the dtype")?;
        let name = self.lexer.expect(Token::Ident, "a dtype, such as `float32`")?;
        let text = self.lexer.slice(name.span);
        let dtype = text.parse::<DType>().map_err(|error| Fault::from(error).at(name.span))?;
        self.lexer.expect(Token::CloseBracket, "`]`")?;
        Ok(TypeExpr::Tensor(dims, dtype))
    }

    fn dim(&mut self) -> Result<DimExpr<'a>> {
        let next = self.lexer.peek();
        let dim = match next.token {
            Token::Question => DimExpr::Any,
            Token::Meta => DimExpr::Meta(self.meta_ref(next.span)?),
            Token::Number => match number(self.lexer.slice(next.span), ParseMode::Strict) {
                Ok(Scalar::Int(n @ 0.., width)) => DimExpr::Known(n as u64, width),
                Ok(Scalar::Int(..)) => return Err(Fault::Other("a dimension is negative".to_string()).at(next.span)),
                Ok(_) => return Err(self.lexer.unexpected("a dimension: an integer or `?`")),
                Err(what) => return Err(self.bad_number(next.span, &what)),
            },
            _ => return Err(self.lexer.unexpected("a dimension: an integer or `?`")),
        };
        self.lexer.take()?;
        Ok(dim)
    }

    /// Types separated by commas up to `close`; a comma may stand after the last.
    pub(super) fn type_list(&mut self, close: Token, depth: usize) -> Result<List> {
        let mut items = Vec::new();
        while !self.lexer.eat(close)? {
            items.push(self.nested_type(depth + 1)?);
            if !self.lexer.eat(Token::Comma)? && !self.lexer.at(close) {
                return Err(self.lexer.unexpected(if close == Token::CloseParen {
                    "`,` or `)`"
                } else {
                    "`,` or `]`"
                }));
            }
        }
        let start = self.module.type_pool.len() as u32;
        self.module.type_pool.extend(&items);
        Ok(List { start, len: items.len() as u32 })
    }

    /// `-> ` in front of a result type; TVM allows a blank inside.
    pub(super) fn arrow(&mut self) -> Result<()> {
        self.lexer.expect(Token::Minus, "`->` and the result type")?;
        self.lexer.expect(Token::Greater, "`->` and the result type")?;
        Ok(())
    }

    /// Optional `[A, B]`.
    pub(super) fn type_params(&mut self) -> Result<List> {
        let start = self.module.name_pool.len() as u32;
        if self.lexer.eat(Token::OpenBracket)? {
            while !self.lexer.eat(Token::CloseBracket)? {
                let name = self.lexer.expect(Token::Ident, "a type parameter or `]`")?;
                let name = self.lexer.slice(name.span);
                self.module.name_pool.push(name);
                if !self.lexer.eat(Token::Comma)? && !self.lexer.at(Token::CloseBracket) {
                    return Err(self.lexer.unexpected("`,` or `]`"));
                }
            }
        }
        Ok(List { start, len: self.module.name_pool.len() as u32 - start })
    }

    /// Splits `meta[KEY][N]`.
    pub(super) fn meta_ref(&self, span: Span) -> Result<MetaRef<'a>> {
        let text = self.lexer.slice(span);
        let parts = text.strip_prefix("meta[").and_then(|t| t.strip_suffix(']')).and_then(|t| t.split_once("]["));
        match parts.and_then(|(key, index)| Some(MetaRef { key, index: index.parse().ok()? })) {
            Some(meta) => Ok(meta),
            None => Err(Fault::Metadata(format!("`{text}` has an index above 2^32")).at(span)),
        }
    }

    /// The type in a `ty=` comment; `None`, without an error, if it cannot be parsed.
    pub(super) fn commented_type(&mut self, note: Option<Span>) -> Option<TypeId> {
        const PREFIX: usize = "/* ty=".len();
        let note = note?;
        let (start, end) = (note.start as usize + PREFIX, note.end as usize - "*/".len());
        let comment = self.text.get(start..end)?;
        let comment = comment.find(" span=").map_or(comment, |at| &comment[..at]).trim_end();
        if let Some(known) = self.known_types.get(comment) {
            return *known;
        }
        let sub = super::super::token::Lexer::within(self.text, start, start + comment.len(), ParseMode::Tolerant);
        let ty = sub.ok().and_then(|sub| {
            let lexer = std::mem::replace(&mut self.lexer, sub);
            let mode = std::mem::replace(&mut self.mode, ParseMode::Tolerant);
            let ty = self.type_expr().ok().filter(|_| self.lexer.at(Token::End));
            self.lexer = lexer;
            self.mode = mode;
            ty
        });
        self.known_types.insert(comment, ty);
        ty
    }

    /// The layer in a `ty=` comment: a span that is no place in a text, at line and column 0 (`span=aten::relu_3:0:0`).
    pub(super) fn commented_layer(&self, note: Option<Span>) -> Option<&'a str> {
        const NOWHERE: &str = ":0:0";
        let note = note?;
        let comment = self.text.get(note.start as usize..note.end as usize)?;
        let span = comment.get(comment.find(" span=")? + " span=".len()..)?.strip_suffix("*/")?.trim_end();
        span.strip_suffix(NOWHERE).filter(|layer| !layer.is_empty() && !layer.contains([' ', ',', '\n']))
    }
}
