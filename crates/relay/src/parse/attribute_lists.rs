//! A cache of parsed attribute lists: a model repeats few of them, so lists are recognised by their text.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::ast::{ExprId, List};

/// Attribute lists of calls by operator, with their text up to the closing parenthesis, most recently used first.
#[derive(Default)]
pub(super) struct AttributeListCache<'a>(HashMap<ExprId, Vec<(&'a str, List)>, RandomState>);

/// Cached lists per operator.
const CAPACITY: usize = 16;

impl<'a> AttributeListCache<'a> {
    /// The cached list that `text` starts with.
    pub(super) fn find(&mut self, callee: ExprId, text: &str) -> Option<(&'a str, List)> {
        let lists = self.0.get_mut(&callee)?;
        let at = lists.iter().position(|(written, _)| text.starts_with(written))?;
        lists[..=at].rotate_right(1);
        lists.first().copied()
    }

    pub(super) fn keep(&mut self, callee: ExprId, written: &'a str, list: List) {
        let lists = self.0.entry(callee).or_default();
        lists.truncate(CAPACITY - 1);
        lists.insert(0, (written, list));
    }
}
