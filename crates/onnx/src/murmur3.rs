//! MurmurHash3 for 32-bit machines with 128 bits, as ONNX Runtime hashes names.
//!
//! Austin Appleby, public domain: <https://github.com/aappleby/smhasher/blob/master/src/MurmurHash3.cpp>, `x86_128`.

/// The factors of each of the four words of a block, and how far it is rotated between them.
const WORDS: [(u32, u32, u32); 4] = [
    (0x239b_961b, 15, 0xab0e_9789),
    (0xab0e_9789, 16, 0x38b3_4ae5),
    (0x38b3_4ae5, 17, 0xa1e3_8b93),
    (0xa1e3_8b93, 18, 0x239b_961b),
];

/// How far each word of the state is rotated after a block, and what is added to it.
const STATE: [(u32, u32); 4] = [(19, 0x561c_cd1b), (17, 0x0bca_a747), (15, 0x96cd_1c35), (13, 0x32ac_3b17)];

const BLOCK: usize = 16;

/// The hash of `data`.
pub(crate) fn x86_128(data: &[u8], seed: u32) -> [u32; 4] {
    let mut state = [seed; 4];
    let mut blocks = data.chunks_exact(BLOCK);
    for block in blocks.by_ref() {
        for (at, word) in block.chunks_exact(4).enumerate() {
            state[at] ^= mixed(at, little_endian(word));
            let (rotation, addend) = STATE[at];
            state[at] = state[at].rotate_left(rotation).wrapping_add(state[(at + 1) % 4]);
            state[at] = state[at].wrapping_mul(5).wrapping_add(addend);
        }
    }
    for (at, word) in blocks.remainder().chunks(4).enumerate() {
        state[at] ^= mixed(at, little_endian(word));
    }
    // The reference takes the length as 32 bits.
    state = state.map(|word| word ^ data.len() as u32);
    summed(summed(state).map(avalanche))
}

/// Up to four bytes as a number.
fn little_endian(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// Word number `at` of a block, before it enters the state.
fn mixed(at: usize, word: u32) -> u32 {
    let (first, rotation, second) = WORDS[at];
    word.wrapping_mul(first).rotate_left(rotation).wrapping_mul(second)
}

/// The first word becomes the sum of all, which the others are increased by.
fn summed([first, others @ ..]: [u32; 4]) -> [u32; 4] {
    let sum = others.iter().fold(first, |sum, word| sum.wrapping_add(*word));
    let [b, c, d] = others.map(|word| word.wrapping_add(sum));
    [sum, b, c, d]
}

fn avalanche(mut word: u32) -> u32 {
    word = (word ^ word >> 16).wrapping_mul(0x85eb_ca6b);
    word = (word ^ word >> 13).wrapping_mul(0xc2b2_ae35);
    word ^ word >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_reference() {
        // As the Python package mmh3 computes them: `mmh3.hash128(data, seed, x64arch=False)`, in 32-bit words.
        for (data, seed, hash) in KNOWN {
            assert_eq!(x86_128(data.as_bytes(), *seed), *hash, "{data:?}");
        }
    }

    const KNOWN: &[(&str, u32, [u32; 4])] = &[
        ("", 0, [0x0000_0000, 0x0000_0000, 0x0000_0000, 0x0000_0000]),
        ("", 1, [0x88c4_adec, 0x54d2_01b9, 0x54d2_01b9, 0x54d2_01b9]),
        ("a", 0, [0xa794_933c, 0x5556_b01b, 0x5556_b01b, 0x5556_b01b]),
        ("hello, world", 7, [0x9e68_ce93, 0x8592_3de6, 0x77eb_2c30, 0xc3a9_2881]),
        ("sixteen bytes ok", 0, [0x17bb_9674, 0x7bbd_f69a, 0x9819_fb28, 0x9a2a_85e6]),
        ("The quick brown fox jumps over the lazy dog", 123, [0x0464_66e6, 0xe476_3389, 0xcd16_3e85, 0x9374_e752]),
    ];
}
