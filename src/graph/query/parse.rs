//! The text of a query as a tree.
//!
//! Parentheses may be nested to a depth that is fixed here, so the tree can be walked by recursion.

use std::ops::Range;

use super::QueryError;

/// Parentheses within parentheses at most.
const MOST_NESTED: usize = 24;
/// The largest `{n}`.
const MOST_REPEATED: usize = 64;

/// All sequences of a query.
pub(super) type Tree = Vec<Sequence>;

/// Elements, each but the first with the edge that leads to it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sequence {
    pub first: Element,
    pub rest: Vec<(Edge, Element)>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Element {
    pub body: Body,
    pub often: Often,
    pub span: Range<usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Body {
    Operator(Pattern),
    Sequence(Box<Sequence>),
    /// `&`: every branch.
    All(Vec<Element>),
    /// `|`: the first branch that leads to a match.
    Any(Vec<Element>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Often {
    Once,
    Optional,
    Any,
    Some,
    Times(usize),
}

/// What an operator is wanted to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
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

/// How two operators are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Edge {
    pub way: Way,
    /// Whether nothing else may read the output.
    pub alone: bool,
    /// `None` is any.
    pub output: Option<u32>,
    pub operand: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The right one reads the left one.
    Down,
    /// The left one reads the right one.
    Up,
}

impl Edge {
    /// `->`.
    pub const PLAIN: Edge = Edge { way: Way::Down, alone: true, output: Some(0), operand: Some(0) };
}

impl Element {
    /// Whether it may stand for nothing at all.
    pub fn may_be_absent(&self) -> bool {
        let inside = match &self.body {
            Body::Operator(_) => false,
            Body::Sequence(s) => s.first.may_be_absent() && s.rest.iter().all(|(_, e)| e.may_be_absent()),
            Body::All(branches) => branches.iter().all(Element::may_be_absent),
            Body::Any(branches) => branches.iter().any(Element::may_be_absent),
        };
        inside || matches!(self.often, Often::Optional | Often::Any)
    }

    /// Whether it is something at which a sequence ends.
    fn is_outside(&self) -> bool {
        matches!(&self.body, Body::Operator(p) if matches!(p.kind, Kind::Nothing | Kind::Parameter | Kind::Input))
    }
}

/// Parses a whole query.
pub(super) fn parse(text: &str) -> Result<Tree, QueryError> {
    let mut parser = Parser { text, at: 0, anchors: Vec::new() };
    let mut sequences = vec![parser.sequence(0)?];
    if sequences[0].first.may_be_absent() {
        let span = sequences[0].first.span.clone();
        return Err(error(span, "the first operator of a query must be there: no `?` or `*`"));
    }
    while parser.eat(';') {
        if parser.peek().is_none() {
            break;
        }
        let met = parser.anchors.clone();
        let sequence = parser.sequence(0)?;
        let first = &sequence.first;
        let anchored = matches!(&first.body, Body::Operator(p) if p.anchor.is_some() && met.contains(&key(p)));
        if !anchored || first.often != Often::Once {
            return Err(error(first.span.clone(), "expected an anchor of a sequence before, such as `add#1`"));
        }
        sequences.push(sequence);
    }
    match parser.peek() {
        None => Ok(sequences),
        Some(found) => Err(parser.wrong(&format!("expected an edge such as `->`, `;` or the end, found `{found}`"))),
    }
}

/// What an anchor is known by: its name and its operator's.
pub(super) fn key(pattern: &Pattern) -> String {
    let name = match &pattern.kind {
        Kind::Named(name) => name.as_str(),
        _ => ".",
    };
    format!("{name}#{}", pattern.anchor.as_deref().unwrap_or_default())
}

fn error(span: Range<usize>, message: &str) -> QueryError {
    QueryError { message: message.to_string(), span }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    /// The keys of all anchors met so far.
    anchors: Vec<String>,
}

impl<'a> Parser<'a> {
    /// The next character that is no white space.
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
    fn wrong(&mut self, message: &str) -> QueryError {
        let length = self.peek().map_or(0, char::len_utf8);
        error(self.at..self.at + length, message)
    }

    fn found(&mut self) -> String {
        self.peek().map_or("the end".to_string(), |c| format!("`{c}`"))
    }

    fn sequence(&mut self, depth: usize) -> Result<Sequence, QueryError> {
        let first = self.element(depth)?;
        let mut sequence = Sequence { first, rest: Vec::new() };
        while matches!(self.peek(), Some('-' | '~' | '<')) {
            let last = sequence.rest.last().map_or(&sequence.first, |(_, element)| element);
            if last.is_outside() {
                return Err(self.wrong("a sequence ends here: nothing can follow what lies outside"));
            }
            let start = self.at;
            let edge = self.edge()?;
            let end = self.at;
            let element = self.element(depth)?;
            if let Body::Operator(Pattern { kind: Kind::Parameter | Kind::Input, .. }) = &element.body
                && edge.way == Way::Down
            {
                return Err(error(start..end, "parameters and inputs read nothing: expected `<-` or `<~` before them"));
            }
            sequence.rest.push((edge, element));
        }
        if sequence.first.is_outside() {
            let span = sequence.first.span.clone();
            return Err(error(span, "expected an operator here: what lies outside is met at the end of a sequence"));
        }
        Ok(sequence)
    }

    fn element(&mut self, depth: usize) -> Result<Element, QueryError> {
        self.peek();
        let start = self.at;
        let body = if self.eat('(') { self.block(depth + 1, start)? } else { Body::Operator(self.operator()?) };
        let often = self.quantifier()?;
        let element = Element { body, often, span: start..self.at };
        let bare = Element { often: Often::Once, ..element.clone() };
        match often {
            Often::Once => {}
            _ if element.is_outside() => {
                return Err(error(element.span, "what lies outside is met once: no quantifier"));
            }
            Often::Any | Often::Some if bare.may_be_absent() => {
                return Err(error(element.span, "what may be absent cannot be repeated without end"));
            }
            _ => {}
        }
        Ok(element)
    }

    fn block(&mut self, depth: usize, start: usize) -> Result<Body, QueryError> {
        if depth > MOST_NESTED {
            let message = format!("more than {MOST_NESTED} parentheses within each other");
            return Err(error(start..start + 1, &message));
        }
        let sequence = self.sequence(depth)?;
        let body = match self.peek() {
            Some(sign @ ('&' | '|')) => {
                if !sequence.rest.is_empty() {
                    return Err(self.wrong("a branch of several operators needs parentheses of its own"));
                }
                let mut branches = vec![sequence.first];
                while self.eat(sign) {
                    branches.push(self.element(depth)?);
                }
                if branches.iter().any(Element::is_outside) {
                    return Err(error(start..self.at, "a branch is an operator or a block, not what lies outside"));
                }
                if sign == '&' { Body::All(branches) } else { Body::Any(branches) }
            }
            _ => Body::Sequence(Box::new(sequence)),
        };
        if !self.eat(')') {
            let found = self.found();
            return Err(self.wrong(&format!("expected `)`, found {found}")));
        }
        Ok(body)
    }

    fn operator(&mut self) -> Result<Pattern, QueryError> {
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
                    return Err(self.wrong(&format!(
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
                return Err(self.wrong("expected the name of a condition and `]`"));
            }
            condition = Some(name);
        }
        let anchor = self.eat('#').then(|| self.word(is_word).to_string());
        let pattern = Pattern { kind, condition, anchor, taken };
        if pattern.anchor.is_some() {
            self.anchors.push(key(&pattern));
        }
        Ok(pattern)
    }

    fn quantifier(&mut self) -> Result<Often, QueryError> {
        let often = match self.peek() {
            Some('?') => Often::Optional,
            Some('*') => Often::Any,
            Some('+') => Often::Some,
            Some('{') => {
                self.at += 1;
                let number = self.number();
                let Some(times) = number.filter(|n| (1..=MOST_REPEATED).contains(n)) else {
                    return Err(self.wrong(&format!("expected a number from 1 to {MOST_REPEATED} and `}}`")));
                };
                if self.peek() != Some('}') {
                    return Err(self.wrong("expected `}`"));
                }
                Often::Times(times)
            }
            _ => return Ok(Often::Once),
        };
        self.at += 1;
        Ok(often)
    }

    fn edge(&mut self) -> Result<Edge, QueryError> {
        let sign = |c: char| (c == '-').then_some(true).or((c == '~').then_some(false));
        let (way, mut alone) = match self.peek() {
            Some('<') => (Way::Up, None),
            Some(c) => (Way::Down, sign(c)),
            None => return Err(self.wrong("expected an edge")),
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
                    && after.starts_with(if way == Way::Up { ['-', '~'] } else { ['>', '>'] })
            });
            if second && self.eat('-') {
                indices.extend(self.index()?);
            }
        }
        match way {
            Way::Up => {
                alone = self.peek().and_then(sign);
                if alone.is_none() {
                    return Err(self.wrong("expected `-` or `~` at the end of the edge, as in `<-` or `<1-0~`"));
                }
                self.at += 1;
            }
            Way::Down if !self.eat('>') => {
                return Err(self.wrong("expected `>` at the end of the edge, as in `->`, `~>` or `-0-1>`"));
            }
            Way::Down => {}
        }
        let (output, operand) = match (way, indices.as_slice()) {
            (_, []) => (Some(0), Some(0)),
            (_, [operand]) => (Some(0), *operand),
            (Way::Down, [output, operand, ..]) | (Way::Up, [operand, output, ..]) => (*output, *operand),
        };
        Ok(Edge { way, alone: alone.unwrap_or(true), output, operand })
    }

    /// An index, if one follows: `Some(None)` is `*`.
    fn index(&mut self) -> Result<Option<Option<u32>>, QueryError> {
        match self.peek() {
            Some('*') => {
                self.at += 1;
                Ok(Some(None))
            }
            Some(c) if c.is_ascii_digit() => match self.number().and_then(|n| u32::try_from(n).ok()) {
                Some(number) => Ok(Some(Some(number))),
                None => Err(self.wrong("expected an index of an operand or output below 2^32")),
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
        let down = |alone, output, operand| Edge { way: Way::Down, alone, output, operand };
        let up = |alone, output, operand| Edge { way: Way::Up, alone, output, operand };
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
    fn what_is_wrong_is_said_where() {
        for (text, at, what) in [
            ("", 0, "expected an operator"),
            ("a->", 3, "found the end"),
            ("a->>b", 3, "found `>`"),
            ("a-b", 2, "expected `>`"),
            ("a<1b", 3, "expected `-` or `~`"),
            ("a?->b", 0, "must be there"),
            ("(a?->b*)->c", 0, "must be there"),
            ("a->(b?)*", 3, "cannot be repeated"),
            ("a->(b->c|d)", 8, "parentheses of its own"),
            ("a->(b|c", 7, "expected `)`"),
            ("a->b; c->d", 6, "an anchor of a sequence before"),
            ("a#1->b; b#1->d", 8, "an anchor of a sequence before"),
            ("a->$->b", 4, "a sequence ends here"),
            ("a->Parameter", 1, "read nothing"),
            ("$->a", 1, "a sequence ends here"),
            ("$", 0, "expected an operator here"),
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
        assert!(parse(&deep).unwrap_err().message.contains("parentheses within each other"));
    }
}
