//! Parses the text of a query to a syntax tree. The nesting depth is limited, so that recursion over the tree is safe.

use std::ops::Range;

use super::error::QueryError;

/// Maximum nesting depth of parentheses.
const MAX_DEPTH: usize = 24;
/// Maximum `n` of `{n}`.
const MAX_REPETITIONS: usize = 64;

/// The sequences of a query.
pub(super) type Tree = Vec<Sequence>;

/// Elements, each but the first with the edge from its predecessor.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sequence {
    pub first: Element,
    pub rest: Vec<(Edge, Element)>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Element {
    pub body: Body,
    pub repetition: Repetition,
    pub span: Range<usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Body {
    Operator(OperatorPattern),
    Sequence(Box<Sequence>),
    /// `&`: every branch.
    All(Vec<Element>),
    /// `|`: the first branch that leads to a match.
    Any(Vec<Element>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repetition {
    Once,
    Optional,
    Any,
    Some,
    Times(usize),
}

/// The conditions on an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OperatorPattern {
    pub kind: Kind,
    pub condition: Option<String>,
    pub anchor: Option<String>,
    /// Whether it becomes part of the match.
    pub taken: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Named(String),
    Anything,
    /// `$`.
    Nothing,
    Parameter,
    Input,
}

/// A connection of two operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Edge {
    pub direction: Direction,
    /// Whether the output must have no other reader.
    pub exclusive: bool,
    /// `None` matches any index.
    pub output: Option<u32>,
    pub operand: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// From producer to reader.
    Down,
    /// From reader to producer.
    Up,
}

impl Edge {
    /// `->`.
    pub const PLAIN: Edge = Edge { direction: Direction::Down, exclusive: true, output: Some(0), operand: Some(0) };
}

impl Element {
    /// Whether it matches the empty sequence.
    fn is_nullable(&self) -> bool {
        let inside = match &self.body {
            Body::Operator(_) => false,
            Body::Sequence(s) => s.first.is_nullable() && s.rest.iter().all(|(_, e)| e.is_nullable()),
            Body::All(branches) => branches.iter().all(Element::is_nullable),
            Body::Any(branches) => branches.iter().any(Element::is_nullable),
        };
        inside || matches!(self.repetition, Repetition::Optional | Repetition::Any)
    }

    /// Whether it is a tensor, which ends a sequence.
    fn is_tensor(&self) -> bool {
        matches!(&self.body, Body::Operator(p) if matches!(p.kind, Kind::Nothing | Kind::Parameter | Kind::Input))
    }
}

/// Parses a whole query.
pub(super) fn parse(text: &str) -> Result<Tree, QueryError> {
    let mut parser = Parser { text, at: 0, anchors: Vec::new() };
    let mut sequences = vec![parser.sequence(0)?];
    if sequences[0].first.is_nullable() {
        let span = sequences[0].first.span.clone();
        return Err(QueryError::new(span, "the first operator of a query must not be optional"));
    }
    while parser.eat(';') {
        if parser.peek().is_none() {
            break;
        }
        let earlier = parser.anchors.clone();
        let sequence = parser.sequence(0)?;
        let first = &sequence.first;
        let anchored = matches!(&first.body, Body::Operator(p) if p.anchor.is_some() && earlier.contains(&key(p)));
        if !anchored || first.repetition != Repetition::Once {
            return Err(QueryError::new(
                first.span.clone(),
                "expected an anchor of an earlier sequence, such as `add#1`",
            ));
        }
        sequences.push(sequence);
    }
    match parser.peek() {
        None => Ok(sequences),
        Some(found) => Err(parser.error(&format!("expected an edge such as `->`, `;` or the end, found `{found}`"))),
    }
}

/// The identity of an anchor: the operator's name and its own.
pub(super) fn key(pattern: &OperatorPattern) -> String {
    let name = match &pattern.kind {
        Kind::Named(name) => name.as_str(),
        _ => ".",
    };
    format!("{name}#{}", pattern.anchor.as_deref().unwrap_or_default())
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    /// The keys of all anchors so far.
    anchors: Vec<String>,
}

impl<'a> Parser<'a> {
    /// The next non-whitespace character.
    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.text[self.at..].chars().next()
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    /// An error at the next character.
    fn error(&mut self, message: &str) -> QueryError {
        let length = self.peek().map_or(0, char::len_utf8);
        QueryError::new(self.at..self.at + length, message)
    }

    fn found(&mut self) -> String {
        self.peek().map_or("the end".to_string(), |c| format!("`{c}`"))
    }

    fn sequence(&mut self, depth: usize) -> Result<Sequence, QueryError> {
        let first = self.element(depth)?;
        let mut sequence = Sequence { first, rest: Vec::new() };
        while matches!(self.peek(), Some('-' | '~' | '<')) {
            let last = sequence.rest.last().map_or(&sequence.first, |(_, element)| element);
            if last.is_tensor() {
                return Err(self.error("expected the end of the sequence: nothing can follow a tensor"));
            }
            let start = self.at;
            let edge = self.edge()?;
            let end = self.at;
            let element = self.element(depth)?;
            if let Body::Operator(OperatorPattern { kind: Kind::Parameter | Kind::Input, .. }) = &element.body
                && edge.direction == Direction::Down
            {
                return Err(QueryError::new(
                    start..end,
                    "parameters and inputs have no operands: expected `<-` or `<~` before them",
                ));
            }
            sequence.rest.push((edge, element));
        }
        if sequence.first.is_tensor() {
            let span = sequence.first.span.clone();
            return Err(QueryError::new(span, "expected an operator: a tensor can only end a sequence"));
        }
        Ok(sequence)
    }

    fn element(&mut self, depth: usize) -> Result<Element, QueryError> {
        self.peek();
        let start = self.at;
        let body = if self.eat('(') { self.block(depth + 1, start)? } else { Body::Operator(self.operator()?) };
        let repetition = self.quantifier()?;
        let element = Element { body, repetition, span: start..self.at };
        let bare = Element { repetition: Repetition::Once, ..element.clone() };
        match repetition {
            Repetition::Once => {}
            _ if element.is_tensor() => {
                return Err(QueryError::new(element.span, "a tensor cannot have a quantifier"));
            }
            Repetition::Any | Repetition::Some if bare.is_nullable() => {
                return Err(QueryError::new(element.span, "an optional element cannot be repeated without a limit"));
            }
            _ => {}
        }
        Ok(element)
    }

    fn block(&mut self, depth: usize, start: usize) -> Result<Body, QueryError> {
        if depth > MAX_DEPTH {
            let message = format!("parentheses are nested deeper than {MAX_DEPTH}");
            return Err(QueryError::new(start..start + 1, message));
        }
        let sequence = self.sequence(depth)?;
        let body = match self.peek() {
            Some(sign @ ('&' | '|')) => {
                if !sequence.rest.is_empty() {
                    return Err(self.error("expected parentheses around a branch of several operators"));
                }
                let mut branches = vec![sequence.first];
                while self.eat(sign) {
                    branches.push(self.element(depth)?);
                }
                if branches.iter().any(Element::is_tensor) {
                    return Err(QueryError::new(start..self.at, "a branch is an operator or a block, not a tensor"));
                }
                if sign == '&' { Body::All(branches) } else { Body::Any(branches) }
            }
            _ => Body::Sequence(Box::new(sequence)),
        };
        if !self.eat(')') {
            let found = self.found();
            return Err(self.error(&format!("expected `)`, found {found}")));
        }
        Ok(body)
    }

    fn operator(&mut self) -> Result<OperatorPattern, QueryError> {
        let taken = !self.eat('^');
        let kind = match self.peek() {
            Some('$') => {
                self.at += 1;
                Kind::Nothing
            }
            Some('.') => {
                self.at += 1;
                Kind::Anything
            }
            Some('[') => Kind::Anything,
            _ => match self.word(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.') {
                "" => {
                    let found = self.found();
                    return Err(self.error(&format!(
                        "expected an operator such as `nn.relu`, `.` for any, `$` for none, or `(`; found {found}"
                    )));
                }
                "Parameter" | "Producer" => Kind::Parameter,
                "Input" => Kind::Input,
                name => Kind::Named(name.to_string()),
            },
        };
        let mut condition = None;
        if self.eat('[') {
            let name = self.word(is_word).to_string();
            if name.is_empty() || !self.eat(']') {
                return Err(self.error("expected the name of a condition and `]`"));
            }
            condition = Some(name);
        }
        let anchor = self.eat('#').then(|| self.word(is_word).to_string());
        let pattern = OperatorPattern { kind, condition, anchor, taken };
        if pattern.anchor.is_some() {
            self.anchors.push(key(&pattern));
        }
        Ok(pattern)
    }

    fn quantifier(&mut self) -> Result<Repetition, QueryError> {
        let repetition = match self.peek() {
            Some('?') => Repetition::Optional,
            Some('*') => Repetition::Any,
            Some('+') => Repetition::Some,
            Some('{') => {
                self.at += 1;
                let number = self.number();
                let Some(times) = number.filter(|n| (1..=MAX_REPETITIONS).contains(n)) else {
                    return Err(self.error(&format!("expected a number from 1 to {MAX_REPETITIONS} and `}}`")));
                };
                if self.peek() != Some('}') {
                    return Err(self.error("expected `}`"));
                }
                Repetition::Times(times)
            }
            _ => return Ok(Repetition::Once),
        };
        self.at += 1;
        Ok(repetition)
    }

    fn edge(&mut self) -> Result<Edge, QueryError> {
        let sign = |c: char| (c == '-').then_some(true).or((c == '~').then_some(false));
        let (direction, mut exclusive) = match self.peek() {
            Some('<') => (Direction::Up, None),
            Some(c) => (Direction::Down, sign(c)),
            None => return Err(self.error("expected an edge")),
        };
        self.at += 1;
        let mut indices = Vec::new();
        if let Some(index) = self.index()? {
            indices.push(index);
            let rest = self.text[self.at..].trim_start();
            // `<1-` ends after one index, `<1-0-` and `-1-0>` go on.
            let second = rest.strip_prefix('-').is_some_and(|r| {
                let after = r.trim_start().trim_start_matches(|c: char| c.is_ascii_digit() || c == '*').trim_start();
                r.trim_start().starts_with(|c: char| c.is_ascii_digit() || c == '*')
                    && after.starts_with(if direction == Direction::Up { ['-', '~'] } else { ['>', '>'] })
            });
            if second && self.eat('-') {
                indices.extend(self.index()?);
            }
        }
        match direction {
            Direction::Up => {
                exclusive = self.peek().and_then(sign);
                if exclusive.is_none() {
                    return Err(self.error("expected `-` or `~` at the end of the edge, as in `<-` or `<1-0~`"));
                }
                self.at += 1;
            }
            Direction::Down if !self.eat('>') => {
                return Err(self.error("expected `>` at the end of the edge, as in `->`, `~>` or `-0-1>`"));
            }
            Direction::Down => {}
        }
        let (output, operand) = match (direction, indices.as_slice()) {
            (_, []) => (Some(0), Some(0)),
            (_, [operand]) => (Some(0), *operand),
            (Direction::Down, [output, operand, ..]) | (Direction::Up, [operand, output, ..]) => (*output, *operand),
        };
        Ok(Edge { direction, exclusive: exclusive.unwrap_or(true), output, operand })
    }

    /// An optional index; `Some(None)` is `*`.
    fn index(&mut self) -> Result<Option<Option<u32>>, QueryError> {
        match self.peek() {
            Some('*') => {
                self.at += 1;
                Ok(Some(None))
            }
            Some(c) if c.is_ascii_digit() => match self.number().and_then(|n| u32::try_from(n).ok()) {
                Some(number) => Ok(Some(Some(number))),
                None => Err(self.error("expected an index of an operand or output below 2^32")),
            },
            _ => Ok(None),
        }
    }

    fn number(&mut self) -> Option<usize> {
        self.word(|c| c.is_ascii_digit()).parse().ok()
    }

    fn word(&mut self, letter: impl Fn(char) -> bool) -> &'a str {
        self.peek();
        let rest = &self.text[self.at..];
        let length = rest.find(|c| !letter(c)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_have_indices() {
        let down = |exclusive, output, operand| Edge { direction: Direction::Down, exclusive, output, operand };
        let up = |exclusive, output, operand| Edge { direction: Direction::Up, exclusive, output, operand };
        for (text, edge) in [
            ("->", Edge::PLAIN),
            ("~>", down(false, Some(0), Some(0))),
            ("-1>", down(true, Some(0), Some(1))),
            ("~*>", down(false, Some(0), None)),
            ("-2-1>", down(true, Some(2), Some(1))),
            ("- * - 1 >", down(true, None, Some(1))),
            ("<-", up(true, Some(0), Some(0))),
            ("<1~", up(false, Some(0), Some(1))),
            ("<1-", up(true, Some(0), Some(1))),
            ("<*-2-", up(true, Some(2), None)),
        ] {
            let tree = parse(&format!("a{text}b")).unwrap();
            assert_eq!(tree[0].rest[0].0, edge, "{text}");
        }
    }

    #[test]
    fn errors_have_their_position() {
        for (text, at, what) in [
            ("", 0, "expected an operator"),
            ("a->", 3, "found the end"),
            ("a->>b", 3, "found `>`"),
            ("a-b", 2, "expected `>`"),
            ("a<1b", 3, "expected `-` or `~`"),
            ("a?->b", 0, "must not be optional"),
            ("(a?->b*)->c", 0, "must not be optional"),
            ("a->(b?)*", 3, "without a limit"),
            ("a->(b->c|d)", 8, "parentheses around a branch"),
            ("a->(b|c", 7, "expected `)`"),
            ("a->b; c->d", 6, "an anchor of an earlier sequence"),
            ("a#1->b; b#1->d", 8, "an anchor of an earlier sequence"),
            ("a->$->b", 4, "nothing can follow"),
            ("a->Parameter", 1, "have no operands"),
            ("$->a", 1, "nothing can follow"),
            ("$", 0, "can only end a sequence"),
            ("a->b{0}", 6, "from 1 to 64"),
            ("a->b[", 5, "name of a condition"),
            ("a b", 2, "expected an edge"),
            ("a->é", 3, "expected an operator"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.message.contains(what), "{text}: {error}");
            assert_eq!(error.span.start, at, "{text}: {error}");
        }
        let deep = format!("{}a{}", "(".repeat(1000), ")".repeat(1000));
        assert!(parse(&deep).unwrap_err().message.contains("nested deeper"));
    }
}
