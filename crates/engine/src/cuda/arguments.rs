//! Argument structs of the kernels, with the same fields as in `kernels/*.cu`. Addresses are in device memory; sizes and
//! strides count elements.

/// Maximum rank in kernels, after contiguous axes are merged.
pub(super) const RANK: usize = 8;

/// Plain data passed to a kernel by value.
///
/// # Safety
/// `repr(C)`, without padding, and identical to the kernel's struct of this name.
pub(super) unsafe trait Arguments: Copy {
    /// The bytes of the struct as words, which are sufficiently aligned for any struct.
    fn words(&self) -> Vec<u64> {
        let first: *const Self = self;
        // SAFETY: the struct is plain data without padding and starts with an address, so it is aligned like a word, its
        // size is a multiple of a word, and all of its bytes are initialised.
        unsafe { std::slice::from_raw_parts(first.cast::<u64>(), size_of::<Self>() / 8) }.to_vec()
    }
}

/// Defines argument structs, and the table of their sizes.
macro_rules! arguments {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $ty:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Debug, Clone, Copy)]
            pub(super) struct $name { $(pub $field: $ty,)* }

            const _: () = assert!(size_of::<$name>() == 0 $(+ size_of::<$ty>())*, "there is padding");
            const _: () = assert!(align_of::<$name>() == align_of::<u64>(), "it must start with an address");

            // SAFETY: `repr(C)` and, by the assertion above, without padding; the kernels' compiler asserts that the C
            // struct has the same size.
            unsafe impl Arguments for $name {}
        )*

        /// Name and size of every struct, which the kernels' compiler compares with its own.
        pub(super) const SIZES: &[(&str, usize)] = &[$((stringify!($name), size_of::<$name>())),*];
    };
}

arguments! {
    /// A strided copy.
    StridedCopy {
        from: u64, to: u64,
        count: u32, rank: u32,
        shape: [u32; RANK],
        from_strides: [i32; RANK], to_strides: [i32; RANK],
    }
    /// A constant fill.
    Fill { to: u64, bits: u64, count: u32, _pad: u32, }
    /// A copy through index tables.
    Remap {
        from: u64, to: u64, tables: u64, bits: u64,
        count: u32, rank: u32,
        shape: [u32; RANK],
        from_strides: [i32; RANK],
    }
    /// Blocks selected by indices.
    Gather {
        data: u64, indices: u64, to: u64,
        count: u32, outer: u32, length: u32, block: u32, taken: u32, wraps: u32,
    }
    /// A function of one element.
    Unary { from: u64, to: u64, constant: f64, count: u32, _pad: u32, }
    /// A function of two elements.
    Binary {
        left: u64, right: u64, to: u64,
        count: u32, rank: u32,
        shape: [u32; RANK],
        left_strides: [i32; RANK], right_strides: [i32; RANK],
    }
    /// An element-wise selection.
    Select {
        condition: u64, left: u64, right: u64, to: u64,
        count: u32, rank: u32,
        shape: [u32; RANK],
        condition_strides: [i32; RANK], left_strides: [i32; RANK], right_strides: [i32; RANK],
    }
    /// A reduction of lines.
    Reduction { from: u64, to: u64, lines: u32, length: u32, inner: u32, _pad: u32, }
    /// Softmax along lines.
    Softmax { from: u64, to: u64, length: u32, inner: u32, logarithm: u32, _pad: u32, }
    /// Normalisation of groups.
    Normalise {
        from: u64, scales: u64, shifts: u64, to: u64,
        epsilon: f64,
        groups: u32, channels: u32, inner: u32, scaled: u32, shifted: u32, _pad: u32,
    }
    /// A convolution, a transposed convolution, or im2col.
    Convolution {
        data: u64, weight: u64, bias: u64, to: u64,
        count: u32, groups: u32, channels_in: u32, channels_out: u32,
        from: [u32; 3], result: [u32; 3], size: [u32; 3],
        stride: [i32; 3], dilation: [i32; 3], before: [i32; 3],
        data_image: i32, data_channel: i32, data_axis: [i32; 3],
        to_image: i32, to_channel: i32, to_axis: [i32; 3],
        weight_group: i32, weight_out: i32, weight_in: i32,
        channels_last: u32, bias_stride: u32, _pad: u32,
    }
    /// Pooling through tables of windows.
    Pool {
        from: u64, to: u64, windows: u64,
        count: u32, pixel: u32,
        plane: [u32; 3], result: [u32; 3],
    }
    /// Resampling along an axis.
    Resample {
        from: u64, to: u64, indices: u64, weights: u64,
        count: u32, length: u32, result: u32, inner: u32, taps: u32, _pad: u32,
    }
    /// A batched matrix product.
    Product {
        left: u64, right: u64, to: u64,
        batch: u32, rows: u32, columns: u32, depth: u32,
        left_batch: i32, left_row: i32, left_depth: i32,
        right_batch: i32, right_depth: i32, right_column: i32,
        to_batch: i32, to_row: i32, to_column: i32, _pad: i32,
    }
}
