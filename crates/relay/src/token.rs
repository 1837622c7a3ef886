//! Lexer: Relay text → tokens, on demand and without allocation.
//!
//! Comments are skipped, except that a `ty=` comment is attached to the following token: the parser assigns it to the
//! expression that ended before. In tolerant mode, names after `%` may contain dots, colons, dashes and other characters
//! that importers produce; in strict mode they are identifiers.

use logos::{FilterResult, Lexer as Scanner, Logos, Skip};

use crate::{
    Fault, Span,
    error::{Result, shown},
};

/// Whether to accept only what TVM's parser accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ParseMode {
    /// Also accepts what TVM prints but cannot read.
    #[default]
    Tolerant,
    /// Accepts exactly what TVM v0.14 accepts.
    Strict,
}

/// The kind of a token.
#[derive(Logos, Debug, Clone, Copy, PartialEq, Eq)]
#[logos(extras = Context)]
#[logos(skip r"[ \t\n]+")]
#[logos(skip r"\r\n")]
pub enum Token {
    #[token("(")]
    OpenParen,
    #[token(")")]
    CloseParen,
    #[token("[")]
    OpenBracket,
    #[token("]")]
    CloseBracket,
    #[token("{")]
    OpenBrace,
    #[token("}")]
    CloseBrace,
    #[token("<")]
    Less,
    #[token(">")]
    Greater,
    #[token("<=")]
    LessEqual,
    #[token(">=")]
    GreaterEqual,
    #[token("==")]
    Equal,
    #[token("!=")]
    NotEqual,
    #[token("=")]
    Assign,
    #[token("=>")]
    FatArrow,
    #[token(",")]
    Comma,
    #[token(".")]
    Dot,
    #[token(";")]
    Semicolon,
    #[token(":")]
    Colon,
    #[token("+")]
    Plus,
    #[token("-")]
    Minus,
    #[token("*")]
    Star,
    #[token("/")]
    Slash,
    #[token("?")]
    Question,
    #[token("let")]
    Let,
    #[token("fn")]
    Fn,
    #[token("def")]
    Def,
    #[token("if")]
    If,
    #[token("else")]
    Else,
    #[token("type")]
    Type,
    #[token("match")]
    Match,
    #[token("match?")]
    PartialMatch,
    #[token("extern")]
    Extern,
    #[token("free_var")]
    FreeVar,
    #[token("ref")]
    Ref,
    #[token("ref_read")]
    RefRead,
    #[token("ref_write")]
    RefWrite,
    #[regex("[A-Za-z_][A-Za-z0-9_/]*")]
    Ident,
    /// `%12`: a graph variable.
    #[regex("%[0-9]+")]
    Graph,
    /// `%name`: a local variable, with the longest possible name.
    #[token("%", name)]
    Local,
    /// `@name`: a global function.
    #[token("@", name)]
    Global,
    #[regex(r"-*[0-9][0-9.eE+\-]*([if][0-9.eE+\-]*)?")]
    Number,
    /// `inff`, `-inff64`, `nanf`: non-finite constants as printed by TVM.
    #[regex(r"-*(inf|nan)f(16|32|64)?", priority = 8)]
    NotFinite,
    #[token("\"", string)]
    Str,
    /// `'name'`: a global printed as an attribute.
    #[regex(r"'[^'\n]*'")]
    Quoted,
    #[regex(r"meta\[[^\]\n]*\]\[[0-9]+\]")]
    Meta,
    #[regex(r#"#\[version[ \t]*=[ \t]*"[^"\n]*"\]"#)]
    Version,
    #[token("#[metadata]")]
    Metadata,
    #[token("//", line_comment)]
    #[token("/*", comment)]
    Comment,
    /// The end of the text; not produced by the scanner.
    End,
}

/// State of the scanner's callbacks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Context {
    mode: ParseMode,
    /// The `ty=` comment since the last token.
    note: Option<Span>,
}

/// A token with its range and the `ty=` comment before it.
#[derive(Debug, Clone, Copy)]
pub struct Lexeme {
    pub token: Token,
    pub span: Span,
    pub note: Option<Span>,
}

/// The token stream, with one token of lookahead.
pub struct Lexer<'a> {
    text: &'a str,
    scanner: Scanner<'a, Token>,
    next: Lexeme,
    /// The range of the last consumed token.
    pub last: Span,
}

/// Bytes that end a name after `%` or `@` in tolerant mode.
const ENDS_NAME: [bool; 256] = {
    let mut table = [false; 256];
    let ends = b" \t\r\n,()[]{};=<>\"#%@\x7f";
    let mut i = 0;
    while i < b' ' as usize {
        table[i] = true;
        i += 1;
    }
    i = 0;
    while i < ends.len() {
        table[ends[i] as usize] = true;
        i += 1;
    }
    table
};

fn name(scanner: &mut Scanner<'_, Token>) -> bool {
    let rest = scanner.remainder().as_bytes();
    let len = match scanner.extras.mode {
        ParseMode::Strict => identifier_len(rest),
        ParseMode::Tolerant => {
            let mut len = 0;
            while let Some(&byte) = rest.get(len) {
                if ENDS_NAME[usize::from(byte)] || byte == b'/' && matches!(rest.get(len + 1), Some(b'*' | b'/')) {
                    break;
                }
                len += 1;
            }
            len
        }
    };
    scanner.bump(len);
    len > 0
}

/// Length of the identifier at the start of `bytes`; 0 if there is none.
pub fn identifier_len(bytes: &[u8]) -> usize {
    match bytes.first() {
        Some(b'A'..=b'Z' | b'a'..=b'z' | b'_') => bytes
            .iter()
            .position(|b| !matches!(b, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'/'))
            .unwrap_or(bytes.len()),
        _ => 0,
    }
}

fn string(scanner: &mut Scanner<'_, Token>) -> bool {
    let rest = scanner.remainder().as_bytes();
    let mut at = 0;
    let end = match scanner.extras.mode {
        ParseMode::Strict => memchr::memchr(b'"', rest),
        ParseMode::Tolerant => loop {
            match memchr::memchr2(b'"', b'\\', rest.get(at..).unwrap_or_default()) {
                Some(found) if rest[at + found] == b'"' => break Some(at + found),
                Some(found) => at += found + 2,
                None => break None,
            }
        },
    };
    scanner.bump(end.map_or(0, |end| end + 1));
    end.is_some()
}

fn line_comment(scanner: &mut Scanner<'_, Token>) -> Skip {
    let rest = scanner.remainder();
    scanner.bump(memchr::memchr(b'\n', rest.as_bytes()).unwrap_or(rest.len()));
    Skip
}

fn comment(scanner: &mut Scanner<'_, Token>) -> FilterResult<(), ()> {
    let start = scanner.span().start;
    let rest = scanner.remainder().as_bytes();
    let (mut at, mut depth) = (0, 1usize);
    while let Some(found) = memchr::memchr2(b'*', b'/', &rest[at..]) {
        at += found + 1;
        match (rest[at - 1], rest.get(at)) {
            (b'/', Some(b'*')) => {
                depth += 1;
                at += 1;
            }
            (b'*', Some(b'/')) => {
                depth -= 1;
                at += 1;
                if depth == 0 {
                    if rest.starts_with(b" ty=") {
                        scanner.extras.note = Some(Span::new(start, start + 2 + at));
                    }
                    scanner.bump(at);
                    return FilterResult::Skip;
                }
            }
            // TVM consumes stars in pairs: `**/` does not close a comment.
            (b'*', Some(b'*')) if scanner.extras.mode == ParseMode::Strict => at += 1,
            _ => {}
        }
    }
    FilterResult::Error(())
}

impl<'a> Lexer<'a> {
    /// Scans `text` from byte `start` to byte `end`; spans are relative to the start of `text`.
    ///
    /// # Errors
    /// If the text does not start with a token.
    pub fn within(text: &'a str, start: usize, end: usize, mode: ParseMode) -> Result<Lexer<'a>> {
        let text = text.get(..end).unwrap_or(text);
        let mut scanner = Token::lexer_with_extras(text, Context { mode, note: None });
        scanner.bump(start);
        let last = Span::new(start, start);
        let mut lexer = Lexer { text, scanner, next: Lexeme { token: Token::End, span: last, note: None }, last };
        lexer.next = lexer.scan()?;
        Ok(lexer)
    }

    fn scan(&mut self) -> Result<Lexeme> {
        self.scanner.extras.note = None;
        let token = match self.scanner.next() {
            Some(Ok(token)) => token,
            None => Token::End,
            Some(Err(())) => return Err(self.bad_token()),
        };
        let span = self.scanner.span();
        Ok(Lexeme { token, span: Span::new(span.start, span.end), note: self.scanner.extras.note })
    }

    #[cold]
    fn bad_token(&self) -> Box<super::error::LocatedFault> {
        let span = self.scanner.span();
        let slice = self.scanner.slice();
        let text = match slice.bytes().next() {
            Some(b'/') => "this comment does not end: expected `*/`".to_string(),
            Some(b'"') => "this string does not end: expected `\"`".to_string(),
            Some(b'%' | b'@') => format!("expected a name after `{slice}`"),
            Some(b'#') => "expected `#[version = \"0.0.5\"]` or `#[metadata]`".to_string(),
            Some(b'\r') => "a carriage return must precede a line feed".to_string(),
            _ => format!("`{}` does not start a Relay token", shown(slice).escape_debug()),
        };
        Fault::Token(text).at(Span::new(span.start, span.end))
    }

    /// The next token, without consuming it.
    pub fn peek(&self) -> Lexeme {
        self.next
    }

    pub fn at(&self, token: Token) -> bool {
        self.next.token == token
    }

    /// The kind of the token after the next one.
    pub fn second(&self) -> Option<Token> {
        self.scanner.clone().next()?.ok()
    }

    /// Whether the next token, an identifier, starts an attribute: `name =` or `name.more =`.
    pub fn key_ahead(&self) -> bool {
        let mut scanner = self.scanner.clone();
        loop {
            match scanner.next() {
                Some(Ok(Token::Assign)) => return true,
                Some(Ok(Token::Dot)) => {}
                _ => return false,
            }
            if !matches!(scanner.next(), Some(Ok(Token::Ident))) {
                return false;
            }
        }
    }

    /// Consumes the next token.
    pub fn take(&mut self) -> Result<Lexeme> {
        let taken = self.next;
        self.last = taken.span;
        self.next = self.scan()?;
        Ok(taken)
    }

    /// Consumes the next token if it is `token`.
    pub fn eat(&mut self, token: Token) -> Result<bool> {
        let there = self.at(token);
        if there {
            self.take()?;
        }
        Ok(there)
    }

    /// Consumes `token`, which must be next.
    pub fn expect(&mut self, token: Token, expected: &str) -> Result<Lexeme> {
        if self.at(token) { self.take() } else { Err(self.unexpected(expected)) }
    }

    /// Continues scanning at `position`, within or right after the last consumed token.
    pub fn rewind(&mut self, position: u32) -> Result<()> {
        self.last.end = position;
        let mut scanner = Token::lexer_with_extras(self.text, self.scanner.extras);
        scanner.bump(position as usize);
        self.scanner = scanner;
        self.next = self.scan()?;
        Ok(())
    }

    /// Skips text up to `position`, where a token of one byte ends.
    pub fn skip(&mut self, position: u32) -> Result<()> {
        self.last = Span { start: position.saturating_sub(1), end: position };
        self.scanner.bump((position as usize).saturating_sub(self.scanner.span().end));
        self.next = self.scan()?;
        Ok(())
    }

    pub fn slice(&self, span: Span) -> &'a str {
        self.text.get(span.start as usize..span.end as usize).unwrap_or_default()
    }

    /// Everything after the next token.
    pub fn rest(&self) -> &'a str {
        self.scanner.remainder()
    }

    #[cold]
    pub fn unexpected(&self, expected: &str) -> Box<super::error::LocatedFault> {
        let found = match self.next.token {
            Token::End => "the end of the file".to_string(),
            _ => format!("`{}`", shown(self.slice(self.next.span))),
        };
        Fault::Syntax { expected: expected.to_string(), found }.at(self.next.span)
    }
}
