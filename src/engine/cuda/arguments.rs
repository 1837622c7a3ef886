//! What kernels take: one struct each, field by field as in `kernels/*.cu`. Addresses are those of the card, sizes and
//! steps count elements.

/// Most axes of a tensor that kernels walk over; neighbouring axes are joined before.
pub(super) const RANK: usize = 8;

/// Plain data that a kernel takes by value.
///
/// # Safety
/// `repr(C)`, without padding between or behind the fields, and the same as the kernel's struct of this name.
pub(super) unsafe trait Arguments: Copy {
    /// What the kernel reads, in words: as aligned as any struct.
    fn words(&self) -> Vec<u64> {
        let first: *const Self = self;
        // SAFETY: the struct is plain data without padding and begins with an address, so it is as aligned as a word,
        // a whole number of words long, and all of its bytes are initialised.
        unsafe { std::slice::from_raw_parts(first.cast::<u64>(), size_of::<Self>() / 8) }.to_vec()
    }
}

/// Defines structs that are plain data, and how large C must find them.
macro_rules! arguments {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $ty:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Debug, Clone, Copy)]
            pub(super) struct $name { $(pub $field: $ty,)* }

            const _: () = assert!(size_of::<$name>() == 0 $(+ size_of::<$ty>())*, "there is padding");
            const _: () = assert!(align_of::<$name>() == align_of::<u64>(), "it does not begin with an address");

            // SAFETY: `repr(C)` and, by the assertion above, without padding; that C has the same struct is asserted
            // by whatever compiles the kernels.
            unsafe impl Arguments for $name {}
        )*

        /// Every struct's name and size, which the kernels' compiler compares with its own.
        pub(super) const SIZES: &[(&str, usize)] = &[$((stringify!($name), size_of::<$name>())),*];
    };
}

arguments! {
    /// A strided copy.
    Copied {
        from: u64, to: u64,
        count: u32, rank: u32,
        shape: [u32; RANK],
        from_steps: [i32; RANK], to_steps: [i32; RANK],
    }
    /// One value everywhere.
    Fill { to: u64, bits: u64, count: u32, _pad: u32, }
    /// A copy by index tables.
    Remap {
        from: u64, to: u64, tables: u64, bits: u64,
        count: u32, rank: u32,
        shape: [u32; RANK],
        from_steps: [i32; RANK],
    }
    /// Blocks taken by indices.
    Take {
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
        left_steps: [i32; RANK], right_steps: [i32; RANK],
    }
    /// A choice between two elements.
    Choose {
        condition: u64, left: u64, right: u64, to: u64,
        count: u32, rank: u32,
        shape: [u32; RANK],
        condition_steps: [i32; RANK], left_steps: [i32; RANK], right_steps: [i32; RANK],
    }
    /// Lines made into one element.
    Fold { from: u64, to: u64, lines: u32, length: u32, inner: u32, _pad: u32, }
    /// Softmax along lines.
    Softmax { from: u64, to: u64, length: u32, inner: u32, logarithm: u32, _pad: u32, }
    /// Normalisation of runs.
    Normalise {
        from: u64, scales: u64, shifts: u64, to: u64,
        epsilon: f64,
        groups: u32, channels: u32, inner: u32, scaled: u32, shifted: u32, _pad: u32,
    }
    /// A convolution, its transpose, or its columns.
    Convolution {
        data: u64, weight: u64, bias: u64, to: u64,
        count: u32, groups: u32, channels_in: u32, channels_out: u32,
        from: [u32; 3], made: [u32; 3], size: [u32; 3],
        stride: [i32; 3], dilation: [i32; 3], before: [i32; 3],
        data_image: i32, data_channel: i32, data_axis: [i32; 3],
        to_image: i32, to_channel: i32, to_axis: [i32; 3],
        weight_group: i32, weight_out: i32, weight_in: i32,
        channels_last: u32, bias_step: u32, _pad: u32,
    }
    /// Pooling by tables of windows.
    Pool {
        from: u64, to: u64, windows: u64,
        count: u32, pixel: u32,
        plane: [u32; 3], made: [u32; 3],
    }
    /// Resampling along an axis.
    Resample {
        from: u64, to: u64, indices: u64, weights: u64,
        count: u32, length: u32, made: u32, inner: u32, taps: u32, _pad: u32,
    }
    /// A batch of matrix products.
    Product {
        left: u64, right: u64, to: u64,
        batch: u32, rows: u32, columns: u32, depth: u32,
        left_batch: i32, left_row: i32, left_depth: i32,
        right_batch: i32, right_depth: i32, right_column: i32,
        to_batch: i32, to_row: i32, to_column: i32, _pad: i32,
    }
}
