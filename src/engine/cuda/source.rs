//! The kernels' sources by family, and which family a kernel is of.
//!
//! A family is compiled as a whole when its first kernel is called.

use super::arguments::SIZES;

const COMMON: &str = include_str!("kernels/common.h");

/// A file of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Family {
    Move,
    Pointwise,
    Reduce,
    Window,
    Product,
}

/// A kernel by its family and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Kernel {
    pub family: Family,
    pub name: String,
}

impl Family {
    #[cfg(test)]
    pub(super) const ALL: [Family; 5] =
        [Family::Move, Family::Pointwise, Family::Reduce, Family::Window, Family::Product];

    /// The kernel of this family that is called `name`.
    pub(super) fn kernel(self, name: impl Into<String>) -> Kernel {
        Kernel { family: self, name: name.into() }
    }

    /// The family's kernels alone.
    fn body(self) -> &'static str {
        match self {
            Family::Move => include_str!("kernels/move.cu"),
            Family::Pointwise => include_str!("kernels/pointwise.cu"),
            Family::Reduce => include_str!("kernels/reduce.cu"),
            Family::Window => include_str!("kernels/window.cu"),
            Family::Product => include_str!("kernels/product.cu"),
        }
    }

    /// What is compiled: C or CUDA, which does not compile if it has structs of other sizes than Rust.
    pub(super) fn source(self) -> String {
        let mut source = format!("{COMMON}\n{}\n", self.body());
        for (name, size) in SIZES.iter().filter(|(name, _)| self.body().contains(&format!("struct {name} {{"))) {
            source += &format!("typedef char {name}_is_as_in_rust[sizeof(struct {name}) == {size} ? 1 : -1];\n");
        }
        source
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What CUDA's compiler adds to C++, as far as kernels use it.
    const CUDA: &str = "#include <cmath>\nusing namespace std;\n#define __global__\n#define __device__\n\
        #define __shared__ static\nstruct Index { unsigned x, y, z; };\nextern Index blockIdx, threadIdx, blockDim;\n\
        void __syncthreads();\nfloat __int_as_float(int);\n";

    #[test]
    fn kernels_are_sound_as_cpp_too() {
        use std::process::Command;
        let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
        if Command::new(&compiler).arg("--version").output().is_err() {
            return eprintln!("skipped: there is no C++ compiler");
        }
        let folder = tempfile::tempdir().unwrap();
        for family in Family::ALL {
            let file = folder.path().join(format!("{family:?}.cpp"));
            std::fs::write(&file, format!("{CUDA}{}", family.source())).unwrap();
            let flags = ["-D__CUDACC_RTC__", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"];
            let output = Command::new(&compiler).args(flags).arg("-fsyntax-only").arg(&file).output().unwrap();
            assert!(output.status.success(), "{family:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }

    #[test]
    fn every_struct_is_compared_with_its_kernel() {
        for (name, _) in SIZES {
            let check = format!("{name}_is_as_in_rust");
            assert!(Family::ALL.iter().any(|family| family.source().contains(&check)), "no kernel takes {name}");
        }
    }
}
