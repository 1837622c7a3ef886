//! Roles: what the holder of a certificate may do.

use std::fmt;

/// What a certificate was issued for. It stands in the certificate's subject, as an organization: `O=edgecut:operator`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Gives commands: describes, profiles, measures links, runs.
    Operator,
    /// Serves a machine, and sends tensors to other agents.
    Agent,
}

impl Role {
    const ALL: [Role; 2] = [Role::Operator, Role::Agent];

    /// The organization in the subject of certificates with this role.
    pub(crate) const fn organization(self) -> &'static str {
        match self {
            Role::Operator => "edgecut:operator",
            Role::Agent => "edgecut:agent",
        }
    }

    /// The role that an organization stands for.
    pub(crate) fn of_organization(organization: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.organization() == organization)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Operator => "an operator",
            Role::Agent => "an agent",
        })
    }
}
