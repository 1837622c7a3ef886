//! Bindings of a model: one size for each of its unknown dimensions. Lists of sizes give several bindings, among which the shapes
//! of inputs select.

use std::{collections::HashSet, fmt, str::FromStr};

use smol_str::SmolStr;

use super::retype::{BindDim, BindDimError, bound_size};

/// Maximum number of bindings of a model.
pub const MAX_BINDINGS: usize = 16;

/// The sizes of one unknown dimension, as in `--bind-dim`: `width=320,640` is two of the dimension `width`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindSizes(Vec<BindDim>);

impl FromStr for BindSizes {
    type Err = BindDimError;
    fn from_str(text: &str) -> Result<BindSizes, BindDimError> {
        let (place, sizes) =
            text.rsplit_once('=').map_or(("", text), |(_, sizes)| text.split_at(text.len() - sizes.len()));
        let binds = sizes.split(',').map(|size| format!("{place}{}", size.trim()).parse());
        binds.collect::<Result<_, _>>().map(BindSizes).map_err(|_: BindDimError| BindDimError(text.to_string()))
    }
}

impl From<BindDim> for BindSizes {
    fn from(dim: BindDim) -> BindSizes {
        BindSizes(vec![dim])
    }
}

/// Sizes of a model's unknown dimensions; displayed with the dimensions in alphabetical order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Binding(Vec<BindDim>);

/// Why lists of sizes do not give bindings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindingsError {
    #[error(
        "lists of sizes are zipped, so each must have a single size or as many as the others; found {0} and {1} sizes"
    )]
    Lengths(usize, usize),
    #[error("{0} sizes of a dimension; at most {MAX_BINDINGS} are accepted")]
    TooMany(usize),
    #[error("the sizes {0} are given twice")]
    Twice(Binding),
}

/// The bindings that lists of sizes give: the first sizes of all lists, then the second ones, and so on. A single size is in all
/// bindings.
///
/// # Errors
/// If lists have different lengths or are too long, or two bindings are the same.
pub fn bindings(dims: &[BindSizes]) -> Result<Vec<Binding>, BindingsError> {
    let mut count = 1;
    for length in dims.iter().map(|sizes| sizes.0.len()).filter(|length| *length > 1) {
        match count {
            1 => count = length,
            other if other != length => return Err(BindingsError::Lengths(other, length)),
            _ => {}
        }
    }
    if count > MAX_BINDINGS {
        return Err(BindingsError::TooMany(count));
    }
    let nth = |at: usize| dims.iter().filter_map(|sizes| sizes.0.get(at).or(sizes.0.first()).cloned()).collect();
    let all: Vec<Binding> = (0..count).map(nth).map(Binding).collect();
    let mut seen = HashSet::new();
    match all.iter().find(|binding| !seen.insert(binding.to_string())) {
        Some(twice) => Err(BindingsError::Twice(twice.clone())),
        None => Ok(all),
    }
}

/// An input, some of whose dimensions may be unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenInput {
    pub name: SmolStr,
    pub dims: Vec<OpenDim>,
}

/// A dimension of an [`OpenInput`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenDim {
    Known(u64),
    /// With its name in the file.
    Open(Option<SmolStr>),
}

/// Indices of the smallest bindings for the shapes of given inputs, by the number of input elements. The first wins a tie.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Smallest {
    /// Among those with exactly these shapes.
    pub exact: Option<usize>,
    /// Among those in which no dimension is smaller.
    pub holding: Option<usize>,
}

/// The smallest of `bindings` for inputs with the shapes `given`. Inputs that are not given fit every binding.
pub fn smallest(bindings: &[Binding], inputs: &[OpenInput], given: impl Fn(&str) -> Option<Vec<u64>>) -> Smallest {
    let shapes: Vec<(&OpenInput, Vec<u64>)> =
        inputs.iter().filter_map(|input| Some((input, given(&input.name)?))).collect();
    let fits = |binding: &Binding, is_fit: fn(&u64, &u64) -> bool| {
        shapes.iter().all(|(input, shape)| {
            let bound = binding.shape(input, shape);
            let mut sizes = input.dims.iter().zip(bound.iter().zip(shape));
            bound.len() == shape.len()
                && sizes.all(|(dim, (size, has))| size == has || (matches!(dim, OpenDim::Open(_)) && is_fit(size, has)))
        })
    };
    let best = |is_fit: fn(&u64, &u64) -> bool| {
        let fitting = (0..bindings.len()).filter(|at| fits(&bindings[*at], is_fit));
        fitting.min_by_key(|at| bindings[*at].elements(inputs))
    };
    Smallest { exact: best(|size, has| size == has), holding: best(|size, has| size >= has) }
}

impl Binding {
    /// `bindings` as text for messages, up to [`MAX_BINDINGS`].
    pub fn list(bindings: impl IntoIterator<Item = Binding>) -> String {
        let named = bindings.into_iter().take(MAX_BINDINGS).map(|binding| format!("`{binding}`"));
        named.collect::<Vec<_>>().join(", ")
    }

    pub fn dims(&self) -> &[BindDim] {
        &self.0
    }

    /// Whether it contains all sizes of `other`.
    pub fn includes(&self, other: &Binding) -> bool {
        other.0.iter().all(|dim| self.0.contains(dim))
    }

    /// The shape of `input`. Dimensions without a size take that of `given`, and are left out beyond its rank.
    pub fn shape(&self, input: &OpenInput, given: &[u64]) -> Vec<u64> {
        let size = |(axis, dim): (usize, &OpenDim)| match dim {
            OpenDim::Known(size) => Some(*size),
            OpenDim::Open(symbol) => {
                bound_size(&self.0, &input.name, axis, symbol.as_deref()).or_else(|| given.get(axis).copied())
            }
        };
        input.dims.iter().enumerate().filter_map(size).collect()
    }

    /// The same with the sizes of given inputs in front, which take precedence.
    pub fn with_shapes_of(&self, inputs: &[OpenInput], given: impl Fn(&str) -> Option<Vec<u64>>) -> Binding {
        let (mut dims, mut symbols) = (Vec::new(), Vec::new());
        for (input, shape) in inputs.iter().filter_map(|input| Some((input, given(&input.name)?))) {
            for (axis, (dim, size)) in input.dims.iter().zip(shape).enumerate() {
                let OpenDim::Open(symbol) = dim else { continue };
                dims.push(BindDim::One { tensor: input.name.clone(), axis, size });
                symbols.extend(symbol.iter().map(|name| BindDim::Symbol { name: name.clone(), size }));
            }
        }
        Binding([dims, symbols, self.0.clone()].concat())
    }

    fn elements(&self, inputs: &[OpenInput]) -> u128 {
        let of = |input: &OpenInput| {
            self.shape(input, &[]).iter().fold(1u128, |all, size| all.saturating_mul(u128::from(*size)))
        };
        inputs.iter().map(of).fold(0, u128::saturating_add)
    }
}

impl From<Vec<BindDim>> for Binding {
    fn from(dims: Vec<BindDim>) -> Binding {
        Binding(dims)
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut dims: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        dims.sort_unstable();
        f.write_str(&dims.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(flags: &[&str]) -> Result<Vec<Binding>, BindingsError> {
        bindings(&flags.iter().map(|flag| flag.parse().unwrap()).collect::<Vec<_>>())
    }

    #[test]
    fn lists_of_sizes_are_zipped() {
        let many = format!("w={}", (1..=17).map(|size| size.to_string()).collect::<Vec<_>>().join(","));
        for (flags, want) in [
            (&[][..], Ok(&[""][..])),
            (&["8"], Ok(&["8"])),
            (&["8, 16"], Ok(&["8", "16"])),
            (&["w=1,2", "batch=1", "a,b=3,4"], Ok(&["a,b=3 batch=1 w=1", "a,b=4 batch=1 w=2"])),
            (&["x:1=1,2,3"], Ok(&["x:1=1", "x:1=2", "x:1=3"])),
            (&["w=1,2", "h=1,2,3"], Err("found 2 and 3 sizes")),
            (&["w=1,2,1"], Err("w=1 are given twice")),
            (&[many.as_str()], Err("17 sizes of a dimension; at most 16")),
        ] {
            match (made(flags), want) {
                (Ok(found), Ok(want)) => assert_eq!(found.iter().map(Binding::to_string).collect::<Vec<_>>(), want),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (found, want) => panic!("{flags:?}: {found:?}, not {want:?}"),
            }
        }
        for wrong in ["w=1,", "w=,1", "w=1,x", "=1,2", "1,x", ""] {
            let error = wrong.parse::<BindSizes>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{wrong}` is not")), "{error}");
        }
    }

    #[test]
    fn the_smallest_binding_that_holds_the_inputs_is_chosen() {
        let open = |symbol: &str| OpenDim::Open(Some(symbol.into()));
        let input = |name: &str, dims: &[OpenDim]| OpenInput { name: name.into(), dims: dims.to_vec() };
        let inputs =
            [input("x", &[OpenDim::Known(3), open("h"), open("w")]), input("y", &[open("w"), OpenDim::Open(None)])];
        let all = made(&["h=64,32,32,16", "w=64,64,32,80"]).unwrap();
        for (x, y, exact, holding) in [
            (Some(vec![3, 32, 32]), None, Some(2), Some(2)),
            (Some(vec![3, 20, 40]), None, None, Some(1)),
            (Some(vec![3, 16, 70]), None, None, Some(3)),
            (Some(vec![3, 64, 80]), None, None, None),
            // A smaller binding than the exact one may hold the inputs.
            (None, Some(vec![80, 9]), Some(3), Some(3)),
            (None, Some(vec![64, 9]), Some(1), Some(3)),
            (Some(vec![3, 32, 32]), Some(vec![33, 9]), None, Some(1)),
            // Another rank, or another size of a known dimension.
            (Some(vec![32, 32]), None, None, None),
            (Some(vec![2, 32, 32]), None, None, None),
            (None, None, Some(2), Some(2)),
        ] {
            let given = |name: &str| if name == "x" { x.clone() } else { y.clone() };
            let found = smallest(&all, &inputs, given);
            assert_eq!(found, Smallest { exact, holding }, "{x:?} {y:?}");
        }
    }

    #[test]
    fn sizes_of_inputs_override_those_of_a_binding() {
        let input = OpenInput { name: "x".into(), dims: vec![OpenDim::Open(Some("w".into())), OpenDim::Open(None)] };
        let other = OpenInput { name: "y".into(), dims: vec![OpenDim::Open(Some("w".into()))] };
        let inputs = [input, other];
        let binding = made(&["w=8", "4"]).unwrap().remove(0);
        let sized = binding.with_shapes_of(&inputs, |name| (name == "x").then(|| vec![5, 3]));
        assert_eq!((sized.shape(&inputs[0], &[]), sized.shape(&inputs[1], &[])), (vec![5, 3], vec![5]));
        assert!(binding.includes(&made(&["w=8"]).unwrap()[0]) && !binding.includes(&made(&["w=9"]).unwrap()[0]));
    }
}
