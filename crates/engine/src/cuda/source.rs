//! Kernel sources, grouped into families. A family is compiled as a whole when its first kernel is prepared.

use super::arguments::SIZES;

const COMMON: &str = include_str!("kernels/common.h");

/// A source file of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum KernelFamily {
    Move,
    Pointwise,
    Reduce,
    Window,
    Product,
}

/// A kernel, by family and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Kernel {
    pub family: KernelFamily,
    pub name: String,
}

impl KernelFamily {
    #[cfg(test)]
    pub(super) const ALL: [KernelFamily; 5] = [
        KernelFamily::Move,
        KernelFamily::Pointwise,
        KernelFamily::Reduce,
        KernelFamily::Window,
        KernelFamily::Product,
    ];

    /// The kernel `name` of this family.
    pub(super) fn kernel(self, name: impl Into<String>) -> Kernel {
        Kernel { family: self, name: name.into() }
    }

    /// The source file of the family.
    fn body(self) -> &'static str {
        match self {
            KernelFamily::Move => include_str!("kernels/move.cu"),
            KernelFamily::Pointwise => include_str!("kernels/pointwise.cu"),
            KernelFamily::Reduce => include_str!("kernels/reduce.cu"),
            KernelFamily::Window => include_str!("kernels/window.cu"),
            KernelFamily::Product => include_str!("kernels/product.cu"),
        }
    }

    /// The complete source, in C or CUDA. It does not compile if a struct has a different size than in Rust.
    pub(super) fn source(self) -> String {
        let mut source = format!("{COMMON}\n{}\n", self.body());
        for (name, size) in SIZES.iter().filter(|(name, _)| self.body().contains(&format!("struct {name} {{"))) {
            source += &format!("typedef char {name}_size_matches_rust[sizeof(struct {name}) == {size} ? 1 : -1];\n");
        }
        source
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The CUDA builtins that kernels use, as C++.
    const CUDA: &str = "#include <cmath>\nusing namespace std;\n#define __global__\n#define __device__\n\
        #define __shared__ static\nstruct Index { unsigned x, y, z; };\nextern Index blockIdx, threadIdx, blockDim;\n\
        void __syncthreads();\nfloat __int_as_float(int);\n";

    #[test]
    fn kernels_compile_as_cpp() {
        use std::process::Command;
        let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
        if Command::new(&compiler).arg("--version").output().is_err() {
            return eprintln!("SKIPPED, NOT RUN: no C++ compiler");
        }
        let folder = tempfile::tempdir().unwrap();
        for family in KernelFamily::ALL {
            let file = folder.path().join(format!("{family:?}.cpp"));
            std::fs::write(&file, format!("{CUDA}{}", family.source())).unwrap();
            let flags = ["-D__CUDACC_RTC__", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"];
            let output = Command::new(&compiler).args(flags).arg("-fsyntax-only").arg(&file).output().unwrap();
            assert!(output.status.success(), "{family:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }

    #[test]
    fn the_size_of_every_struct_is_checked() {
        for (name, _) in SIZES {
            let check = format!("{name}_size_matches_rust");
            assert!(
                KernelFamily::ALL.iter().any(|family| family.source().contains(&check)),
                "no kernel has the argument struct {name}"
            );
        }
    }
}
