//! Moves that contradict the rules by which a plan was made.

use super::moved::Move;
use crate::{
    plan_file::file::Plan,
    problem::{
        group_names::GroupNames,
        rule::{Rule, RuleKind},
    },
};

/// A rule that a plan was made by, and a move that breaks it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenRule {
    pub wish: Move,
    pub rule: Rule,
}

/// The rules of `other` that `moves` break.
pub fn broken_rules(other: &Plan, moves: &[Move], groups: &[GroupNames]) -> Vec<BrokenRule> {
    let is_broken = |wish: &Move, rule: &Rule| {
        let is_against = match rule.kind {
            RuleKind::Pin => rule.device != wish.device,
            RuleKind::Ban => rule.device == wish.device,
        };
        let both = groups.iter().any(|group| group.is_called(&rule.groups) && group.is_called(&wish.groups));
        is_against && both
    };
    let of = |wish| {
        let broken = other.rules.iter().filter(|rule| is_broken(wish, rule));
        broken.map(|rule| BrokenRule { wish: wish.clone(), rule: rule.clone() }).collect::<Vec<_>>()
    };
    moves.iter().flat_map(of).collect()
}
