//! Families of items: those whose times are expected to grow alike.

use crate::{Item, ProfileRow};

/// The same operators in the same order, with one dtype and, for convolutions, one window.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Family {
    /// Joined by `+`.
    pub operators: String,
    pub dtype: String,
    /// Window of the convolution: `3x3`, or `3x3 by channel` if it is depthwise; empty without a convolution.
    pub window: String,
}

impl Family {
    pub(super) fn of_item(item: &Item) -> Family {
        Family::new(&item.name, &item.dtype, &item.shapes)
    }

    pub(super) fn of_row(row: &ProfileRow) -> Family {
        Family::new(&row.operator, &row.dtype, &row.shapes)
    }

    fn new(operators: &str, dtype: &str, shapes: &str) -> Family {
        let window = if operators.contains("conv") { window(shapes) } else { String::new() };
        Family { operators: operators.to_string(), dtype: dtype.to_string(), window }
    }
}

/// Largest side of a window; more is taken for channels.
const MAX_WINDOW: u64 = 16;

/// The window of a convolution, from the shape of its weights in the column `shapes`: the equal dimensions at the end
/// (OIHW) or at the beginning (HWIO).
fn window(shapes: &str) -> String {
    let weights = shapes.split("->").next().unwrap_or_default().split('|').nth(1).unwrap_or_default();
    let dims = weights.split_once('[').and_then(|(_, dims)| dims.split(']').next()).unwrap_or_default();
    let dims: Vec<u64> = dims.split(',').filter_map(|dim| dim.trim().parse().ok()).collect();
    let Some(spatial) = dims.len().checked_sub(2).filter(|spatial| *spatial > 0) else { return String::new() };
    let (first, last) = (&dims[..spatial], &dims[2..]);
    // Numbers of channels are rarely as small and as equal as the sides of a window.
    let is_window = |sides: &[u64]| sides.iter().all(|side| *side == sides[0] && *side <= MAX_WINDOW);
    let (sides, channels) = match is_window(last) || !is_window(first) {
        true => (last, &dims[..2]),
        false => (first, &dims[spatial..]),
    };
    let sides: Vec<String> = sides.iter().map(u64::to_string).collect();
    let depthwise = if channels.contains(&1) && channels.iter().any(|c| *c > 1) { " by channel" } else { "" };
    format!("{}{depthwise}", sides.join("x"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_distinguished_from_channels() {
        for (shapes, want) in [
            ("float32[1,3,9,9]|float32[64,3,7,7]->float32[1,64,3,3]", "7x7"),
            ("float32[1,9,9,3]|float32[3,3,16,64]->float32[1,3,3,64]", "3x3"),
            ("float32[1,32,9,9]|float32[32,1,3,3]->float32[1,32,9,9]", "3x3 by channel"),
            ("float32[1,32,9]|float32[64,32,3]->float32[1,64,9]", "3"),
            ("float32[4]->float32[4]", ""),
        ] {
            assert_eq!(window(shapes), want, "{shapes}");
        }
    }
}
