//! A document builder: pieces of text that refer to others, rendered in one traversal.
//!
//! Nested text is referenced instead of copied, so that deep nesting costs neither quadratic time nor recursion.

/// Index of a piece of text in [`Docs`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DocId(u32);

#[derive(Debug, Clone)]
enum Atom {
    Text(String),
    Line,
    Indent,
    Dedent,
    Doc(DocId),
}

/// All pieces of a text.
#[derive(Default)]
pub(super) struct Docs {
    docs: Vec<Vec<Atom>>,
}

impl Docs {
    pub fn empty(&mut self) -> DocId {
        self.docs.push(Vec::new());
        DocId(self.docs.len() as u32 - 1)
    }

    pub fn of(&mut self, text: impl Into<String>) -> DocId {
        self.docs.push(vec![Atom::Text(text.into())]);
        DocId(self.docs.len() as u32 - 1)
    }

    pub fn text(&mut self, doc: DocId, text: impl Into<String>) -> &mut Self {
        self.push(doc, Atom::Text(text.into()))
    }

    /// Appends a reference to `other`, which may still grow.
    pub fn doc(&mut self, doc: DocId, other: DocId) -> &mut Self {
        self.push(doc, Atom::Doc(other))
    }

    pub fn line(&mut self, doc: DocId) -> &mut Self {
        self.push(doc, Atom::Line)
    }

    /// Appends `other` between an opening and a closing line, one level deeper.
    pub fn block(&mut self, doc: DocId, open: &str, other: DocId, close: &str) -> &mut Self {
        self.text(doc, open).push(doc, Atom::Indent).line(doc).doc(doc, other).push(doc, Atom::Dedent).line(doc);
        self.text(doc, close)
    }

    /// Appends `docs` with `, ` between them.
    pub fn list(&mut self, doc: DocId, docs: &[DocId]) -> &mut Self {
        for (i, item) in docs.iter().enumerate() {
            if i > 0 {
                self.text(doc, ", ");
            }
            self.doc(doc, *item);
        }
        self
    }

    fn push(&mut self, doc: DocId, atom: Atom) -> &mut Self {
        self.docs[doc.0 as usize].push(atom);
        self
    }

    /// The whole text of `doc`.
    pub fn render(&self, doc: DocId) -> String {
        let mut text = String::new();
        let mut depth = 0usize;
        let mut stack = vec![self.docs[doc.0 as usize].iter()];
        while let Some(atoms) = stack.last_mut() {
            match atoms.next() {
                None => {
                    stack.pop();
                }
                Some(Atom::Text(piece)) => text.push_str(piece),
                Some(Atom::Line) => {
                    text.push('\n');
                    // Indentation is limited.
                    text.extend(std::iter::repeat_n(' ', 2 * depth.min(40)));
                }
                Some(Atom::Indent) => depth += 1,
                Some(Atom::Dedent) => depth = depth.saturating_sub(1),
                Some(Atom::Doc(inner)) => stack.push(self.docs[inner.0 as usize].iter()),
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::Docs;

    #[test]
    fn blocks_indent_what_is_added_later_too() {
        let mut docs = Docs::default();
        let (outer, inner) = (docs.empty(), docs.empty());
        docs.block(outer, "{", inner, "}");
        docs.text(inner, "a;").line(inner).text(inner, "b");
        assert_eq!(docs.render(outer), "{\n  a;\n  b\n}");
    }
}
