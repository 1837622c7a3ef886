//! Functions: parameters, attributes and result type; bindings of variables.

use super::parser::Parser;
use crate::{
    Fault, ParseMode, Span,
    ast::{ExprId, Function, FunctionId, List, TypeId, Var, VarId},
    error::Result,
    token::{Token, identifier_len},
};
use edgecut_graph::DType;

/// Maximum nesting of functions: resolving a variable visits the enclosing functions.
const MAX_FUNCTIONS: usize = 256;

impl<'a> Parser<'a> {
    /// From after `fn` or the global's name to after `{`.
    pub(super) fn open_function(&mut self) -> Result<()> {
        if self.captured.len() >= MAX_FUNCTIONS {
            return Err(Fault::TooDeep("functions are", MAX_FUNCTIONS).at(self.lexer.last));
        }
        let type_params = self.type_params()?;
        self.captured.push(0);
        let scopes = self.scopes.depth();
        self.scopes.open();
        self.lexer.expect(Token::OpenParen, "`(` and the parameters")?;
        let mut params = smallvec::SmallVec::<[VarId; 8]>::new();
        let mut attrs = List::default();
        loop {
            if self.lexer.eat(Token::CloseParen)? {
                break;
            }
            if self.at_attribute() {
                attrs = self.attributes(Token::CloseParen)?;
                break;
            }
            params.push(self.binding()?);
            if !self.lexer.eat(Token::Comma)? && !self.lexer.at(Token::CloseParen) {
                return Err(self.lexer.unexpected("`,` or `)`"));
            }
        }
        let start = self.module.var_pool.len() as u32;
        self.module.var_pool.extend(&params);
        let params = List { start, len: params.len() as u32 };
        let result = match self.lexer.at(Token::Minus) {
            true => {
                self.arrow()?;
                Some(self.type_expr()?)
            }
            false => None,
        };
        self.lexer.expect(Token::OpenBrace, "`{`")?;
        let level = self.function_depth();
        self.open_functions.push((Function { type_params, params, attrs, result, body: ExprId(0), level }, scopes));
        Ok(())
    }

    /// From `}` on. Also returns the largest level of the captured variables.
    pub(super) fn close_function(&mut self, body: ExprId) -> Result<(FunctionId, u32)> {
        self.lexer.expect(Token::CloseBrace, "an operator, `;` or `}`")?;
        let Some((mut function, scopes)) = self.open_functions.pop() else {
            return Err(self.lexer.unexpected("the end of the file"));
        };
        self.scopes.close_to(scopes);
        let level = self.captured.pop().unwrap_or(0);
        function.body = body;
        self.module.functions.push(function);
        Ok((FunctionId(self.module.functions.len() as u32 - 1), level))
    }

    /// `%name {attributes}: type` where a variable is bound.
    pub(super) fn binding(&mut self) -> Result<VarId> {
        let token = self.lexer.expect(Token::Local, "a variable, such as `%x`")?;
        self.strict_name(token.span)?;
        let run = &self.lexer.slice(token.span)[1..];
        let len = match self.mode {
            ParseMode::Strict => run.len(),
            ParseMode::Tolerant => name_len(run),
        };
        if len < run.len() {
            self.lexer.rewind(token.span.start + 1 + len as u32)?;
        }
        if self.lexer.at(Token::OpenBrace) {
            self.lexer.take()?;
            self.attributes(Token::CloseBrace)?;
        }
        let mut commented = self.commented_type(self.lexer.peek().note);
        let ty = match self.lexer.eat(Token::Colon)? {
            true => {
                let ty = self.type_expr()?;
                commented = commented.or_else(|| self.commented_type(self.lexer.peek().note));
                Some(ty)
            }
            false => None,
        };
        let span = Span { start: token.span.start, end: token.span.start + 1 + len as u32 };
        let name = &run[..len];
        let var = self.add_var(name, span, ty, commented);
        self.scopes.bind(name, var);
        Ok(var)
    }

    pub(super) fn add_var(
        &mut self,
        name: &'a str,
        span: Span,
        ty: Option<TypeId>,
        commented: Option<TypeId>,
    ) -> VarId {
        let level = self.function_depth();
        self.module.vars.push(Var { name, span, ty, commented, level });
        VarId(self.module.vars.len() as u32 - 1)
    }
}

/// Length of the name after `%` at a binding, without the colon before an annotation.
fn name_len(run: &str) -> usize {
    if let Some(name) = run.strip_suffix(':') {
        return name.len();
    }
    let identifier = identifier_len(run.as_bytes());
    let rest = &run[identifier..];
    match rest.strip_prefix(':') {
        Some(ty) if ["Tensor", "fn", "_"].contains(&ty) || ty.parse::<DType>().is_ok() => identifier,
        _ => run.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::name_len;

    #[test]
    fn names_end_before_the_annotation() {
        for (run, name) in [
            ("x", "x"),
            ("x:", "x"),
            ("x:float32", "x"),
            ("x:Tensor", "x"),
            ("aten::conv.weight:", "aten::conv.weight"),
            ("Placeholder:0:", "Placeholder:0"),
            ("Placeholder:0", "Placeholder:0"),
        ] {
            assert_eq!(&run[..name_len(run)], name, "{run}");
        }
    }
}
