//! Why a model could not be imported, and where: every error knows its line and column and shows the line.

use std::{borrow::Cow, fmt};

use super::suggest;
use crate::{
    graph::{DTypeError, TensorError},
    ops::{self, TypeError},
};

/// A range of bytes in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    pub start: u32,
    pub end: u32,
}

/// Why a file could not be imported. Displays as `file:line:column: what is wrong`.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportError {
    pub fault: Fault,
    /// The file, as the caller named it.
    pub file: String,
    /// `None` where no single place is to blame (an empty file, a `.params` file).
    pub spot: Option<Box<Spot>>,
}

/// A place in a file with the line around it, cut to a width that a person can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot {
    /// Counted from 1.
    pub line: u32,
    /// In characters, counted from 1.
    pub column: u32,
    /// The line, or the part of it around the place.
    pub excerpt: String,
    /// Where the fault begins in `excerpt`, and how long it is, in bytes.
    pub at: usize,
    pub len: usize,
    /// Characters of the line that `excerpt` leaves out at its beginning.
    pub skipped: u32,
}

/// What is wrong, and what was expected.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Fault {
    #[error("the file is no UTF-8 text; a Relay file is what `mod.astext()` prints")]
    NotText,
    #[error("the file is {0} bytes long; at most 4 GiB can be read")]
    TooLong(usize),
    #[error("expected {expected}, found {found}")]
    Syntax { expected: String, found: String },
    #[error("{0}")]
    Token(String),
    #[error("`{}` is not defined {hint}", shown(name))]
    Undefined { name: String, hint: &'static str },
    #[error("`{}` is defined twice", shown(name))]
    Duplicate { name: String },
    #[error("unknown operator `{}`{like}, and no `ty=` comment gives the type of its result", shown(name))]
    UnknownOperator {
        name: String,
        /// A question after a known operator that is written alike.
        like: String,
    },
    #[error("{0}")]
    Type(#[from] TypeError),
    #[error("the type of `{0}` is not known: annotate it, as in `{0}: Tensor[(1, 3), float32]`", shown(name))]
    Untyped { name: String },
    #[error("{construct} cannot become part of a fixed graph: {reason}")]
    ControlFlow { construct: &'static str, reason: String },
    #[error("{0} nested deeper than {1} levels")]
    TooDeep(&'static str, usize),
    #[error("inlining this makes the graph larger than {0} operators, out of proportion to the file")]
    TooLarge(usize),
    #[error("metadata section: {0}")]
    Metadata(String),
    #[error("tensor record: {0}")]
    Record(String),
    #[error("{0}")]
    DType(#[from] DTypeError),
    #[error("{0}")]
    Tensor(#[from] TensorError),
    #[error("parameter file: {0}")]
    Params(String),
    #[error("{0}")]
    Other(String),
}

/// A fault with its place in the text, before the text is at hand to make a [`Spot`] of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Located {
    pub fault: Fault,
    pub span: Option<Span>,
}

pub(super) type Result<T> = std::result::Result<T, Box<Located>>;

impl Span {
    pub fn new(start: usize, end: usize) -> Span {
        Span { start: start as u32, end: end as u32 }
    }

    pub fn to(self, end: Span) -> Span {
        Span { start: self.start, end: end.end }
    }
}

impl Fault {
    pub(super) fn unknown_operator(name: &str) -> Fault {
        let like = match suggest::closest(name, ops::all().map(|def| def.name)) {
            Some(known) => format!(" (did you mean `{known}`?)"),
            None => String::new(),
        };
        Fault::UnknownOperator { name: name.to_string(), like }
    }

    pub(super) fn at(self, span: Span) -> Box<Located> {
        Box::new(Located { fault: self, span: Some(span) })
    }

    pub(super) fn nowhere(self) -> Box<Located> {
        Box::new(Located { fault: self, span: None })
    }
}

impl Located {
    pub(super) fn in_file(self, file: &str, text: &[u8]) -> ImportError {
        ImportError {
            fault: self.fault,
            file: file.to_string(),
            spot: self.span.map(|span| Box::new(Spot::new(text, span))),
        }
    }
}

/// Characters of a message that are shown; what is quoted from a file may be of any length.
const LONGEST_MESSAGE: usize = 1000;

/// The beginning of a word of the file, for a message.
pub(super) fn shown(word: &str) -> Cow<'_, str> {
    match word.char_indices().nth(60) {
        Some((end, _)) => Cow::Owned(format!("{}…", &word[..end])),
        None => Cow::Borrowed(word),
    }
}

/// Characters of a long line that are shown before and after a fault.
const AROUND: usize = 60;

impl Spot {
    /// Finds line and column of `span` in `text` and cuts the line around it.
    pub fn new(text: &[u8], span: Span) -> Spot {
        let start = (span.start as usize).min(text.len());
        let before = &text[..start];
        let line = memchr::memchr_iter(b'\n', before).count() as u32 + 1;
        let line_start = memchr::memrchr(b'\n', before).map_or(0, |i| i + 1);
        let line_end = memchr::memchr(b'\n', &text[start..]).map_or(text.len(), |i| start + i);
        let left = String::from_utf8_lossy(&text[line_start..start]);
        let right = String::from_utf8_lossy(&text[start..line_end.min(start + 8 * AROUND)]);
        let column = left.chars().count();
        let skipped = column.saturating_sub(AROUND);
        // What a terminal would act on is not shown to it.
        let visible = |c: char| if c.is_control() && c != '\t' { char::REPLACEMENT_CHARACTER } else { c };
        let shown: String = left.chars().skip(skipped).map(visible).collect();
        let rest: String = right.trim_end_matches('\r').chars().take(AROUND).map(visible).collect();
        let len = ((span.end as usize).saturating_sub(start)).clamp(1, rest.len().max(1));
        Spot {
            line,
            column: column as u32 + 1,
            at: shown.len(),
            len,
            skipped: skipped as u32,
            excerpt: format!("{shown}{rest}"),
        }
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut what = self.fault.to_string();
        if let Some((end, _)) = what.char_indices().nth(LONGEST_MESSAGE) {
            what.truncate(end);
            what.push('…');
        }
        match &self.spot {
            Some(spot) => write!(f, "{}:{}:{}: {what}", self.file, spot.line, spot.column),
            None => write!(f, "{}: {what}", self.file),
        }
    }
}

impl std::error::Error for ImportError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spot_shows_the_line_around_the_fault() {
        let spot = Spot::new("first\nsecond line\n".as_bytes(), Span::new(13, 17));
        assert_eq!((spot.line, spot.column, spot.at, spot.len), (2, 8, 7, 4));
        assert_eq!(spot.excerpt, "second line");
    }

    #[test]
    fn a_long_line_is_cut_and_a_span_past_the_end_is_harmless() {
        let text = "x".repeat(10_000);
        let spot = Spot::new(text.as_bytes(), Span::new(5000, 5001));
        assert_eq!((spot.column, spot.at, spot.excerpt.len(), spot.skipped), (5001, 60, 120, 4940));
        assert_eq!(Spot::new(b"ab", Span::new(90, 99)).column, 3);
    }
}
