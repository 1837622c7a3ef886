//! The Relay operators that edgecut knows.

use edgecut_ops::Kernel;

/// An operator, and what computes it.
#[derive(Debug, Clone, Copy)]
pub struct KnownOperator {
    pub name: &'static str,
    pub operands: &'static [&'static str],
    /// `tract`, `own`, or why there is no kernel.
    pub kernel: &'static str,
}

/// All operators, family by family.
pub fn operators() -> impl Iterator<Item = KnownOperator> {
    edgecut_ops::all().map(|def| {
        let kernel = match def.kernel {
            Kernel::Wire(_) => "tract",
            Kernel::Host(_) => "own",
            Kernel::None(reason) => reason,
        };
        KnownOperator { name: def.name, operands: def.operands, kernel }
    })
}
