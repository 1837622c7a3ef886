//! The header of an `.npy` file: a Python dictionary of three entries, read in one pass and without recursion.
//!
//! A parser of Python literals would do more than is needed: arrays of records, whose `descr` is a list, have no tensor.

use std::io::{self, Read};

use npyz::{Endianness, TypeChar, TypeStr};

use edgecut_graph::{DType, Shape, TensorType};

/// Maximum header size, as in NumPy; typical headers have about 100 bytes.
const MAX_HEADER_BYTES: u32 = 10_000;

const MAGIC: &[u8] = b"\x93NUMPY";

/// What precedes the elements of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NpyHeader {
    pub dtype: DType,
    pub shape: Vec<u64>,
    pub is_big_endian: bool,
    /// Column-major.
    pub is_fortran_order: bool,
}

impl NpyHeader {
    /// Reads a header, and leaves `file` at the first element.
    ///
    /// # Errors
    /// If it is none, is too long, or no tensor can hold such an array.
    pub fn read(file: &mut impl Read) -> Result<NpyHeader, String> {
        let cut = |error: io::Error| format!("its header cannot be read: {error}");
        let mut head = [0; 8];
        file.read_exact(&mut head).map_err(cut)?;
        if !head.starts_with(MAGIC) {
            return Err("it does not begin as an .npy file".to_string());
        }
        // Version 1 has two bytes for the length, later ones four.
        let mut length = [0; 4];
        let width = if head[6] == 1 { 2 } else { 4 };
        file.read_exact(&mut length[..width]).map_err(cut)?;
        let length = u32::from_le_bytes(length);
        if length > MAX_HEADER_BYTES {
            return Err(format!("its header has {length} bytes, expected at most {MAX_HEADER_BYTES}"));
        }
        let mut text = vec![0; length as usize];
        file.read_exact(&mut text).map_err(cut)?;
        parse(&String::from_utf8_lossy(&text))
    }

    pub fn ty(&self) -> TensorType {
        TensorType::of(self.dtype, &self.shape)
    }

    /// Size of the elements; `None` if no address space holds them.
    pub fn bytes(&self) -> Option<usize> {
        let count = self.shape.iter().try_fold(self.dtype.size(), |count, size| count.checked_mul(*size));
        count.and_then(|bytes| usize::try_from(bytes).ok())
    }
}

/// The rest of a header's text.
struct Scanner<'t>(&'t str);

impl<'t> Scanner<'t> {
    /// Skips `token`, and spaces before it.
    fn skip(&mut self, token: char) -> bool {
        let rest = self.0.trim_start();
        let after = rest.strip_prefix(token);
        self.0 = after.unwrap_or(rest);
        after.is_some()
    }

    fn expect(&mut self, token: char) -> Result<(), String> {
        match self.skip(token) {
            true => Ok(()),
            false => Err(format!("its header has no `{token}` where one is expected")),
        }
    }

    /// A quoted string.
    fn string(&mut self) -> Result<&'t str, String> {
        let quote = if self.skip('"') { '"' } else { '\'' };
        if quote == '\'' {
            self.expect(quote)?;
        }
        let (text, rest) = self.0.split_once(quote).ok_or("its header has a string without an end")?;
        self.0 = rest;
        Ok(text)
    }

    /// Letters and digits.
    fn word(&mut self) -> &'t str {
        let rest = self.0.trim_start();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let (word, rest) = rest.split_at(end);
        self.0 = rest;
        word
    }

    /// A tuple of sizes.
    fn shape(&mut self) -> Result<Vec<u64>, String> {
        self.expect('(')?;
        let mut shape = Vec::new();
        while !self.skip(')') {
            let word = self.word();
            // Python 2 writes long integers with an L.
            let size = word.strip_suffix('L').unwrap_or(word).parse();
            shape.push(size.map_err(|_| "its shape is not a tuple of sizes".to_string())?);
            if !self.skip(',') {
                self.expect(')')?;
                break;
            }
        }
        if shape.len() > Shape::MAX_DIMS {
            return Err(format!("its shape has {} dimensions, expected at most {}", shape.len(), Shape::MAX_DIMS));
        }
        Ok(shape)
    }
}

fn parse(text: &str) -> Result<NpyHeader, String> {
    let mut scanner = Scanner(text);
    let (mut element, mut order, mut shape) = (None, None, None);
    scanner.expect('{')?;
    while !scanner.skip('}') {
        let key = scanner.string()?;
        scanner.expect(':')?;
        match key {
            "descr" if scanner.0.trim_start().starts_with('[') => {
                return Err("it is an array of records, expected plain numbers".to_string());
            }
            "descr" => element = Some(scanner.string()?),
            "fortran_order" => match scanner.word() {
                word @ ("True" | "False") => order = Some(word == "True"),
                _ => return Err("its fortran_order is neither True nor False".to_string()),
            },
            "shape" => shape = Some(scanner.shape()?),
            _ => return Err("its header has an entry other than descr, fortran_order and shape".to_string()),
        }
        if !scanner.skip(',') {
            scanner.expect('}')?;
            break;
        }
    }
    let (Some(element), Some(is_fortran_order), Some(shape)) = (element, order, shape) else {
        return Err("its header lacks descr, fortran_order or shape".to_string());
    };
    let element: TypeStr = element.parse().map_err(|_| "its descr is not a type of numpy".to_string())?;
    let dtype = dtype(element.type_char(), element.size_field());
    let dtype = dtype.ok_or_else(|| format!("no tensor holds numpy's {element}"))?;
    let is_big_endian = element.endianness() == Endianness::Big;
    Ok(NpyHeader { dtype, shape, is_big_endian, is_fortran_order })
}

fn dtype(kind: TypeChar, size: u64) -> Option<DType> {
    let code = match kind {
        TypeChar::Bool => return Some(DType::Bool),
        TypeChar::Int => 0,
        TypeChar::Uint => 1,
        TypeChar::Float => 2,
        _ => return None,
    };
    let bits = u8::try_from(size.checked_mul(8)?).ok()?;
    Some(DType::from_dlpack(code, bits, 1)).filter(|d| !matches!(d, DType::Exotic(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(text: &str) -> Result<NpyHeader, String> {
        let length = (text.len() as u32).to_le_bytes();
        NpyHeader::read(&mut [MAGIC, &[2, 0], &length, text.as_bytes()].concat().as_slice())
    }

    #[test]
    fn headers_of_any_style_are_read() {
        for text in [
            "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }            \n",
            r#"{"shape":(2L,3L),"descr":">i2","fortran_order":True}"#,
        ] {
            let found = header(text).unwrap();
            assert_eq!((found.dtype, &found.shape[..], found.bytes()), (DType::I16, &[2, 3][..], Some(12)));
            assert!(found.is_big_endian && found.is_fortran_order);
        }
        assert_eq!(header("{'descr': '|b1', 'fortran_order': False, 'shape': ()}").unwrap().bytes(), Some(1));
    }

    #[test]
    fn headers_that_lie_are_refused_at_once() {
        let shape = |shape: &str| format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}");
        for (text, part) in [
            (format!("{{'descr': {}", "[".repeat(9000)), "records"),
            (shape(&"(".repeat(9000)), "tuple of sizes"),
            (shape("(2 3)"), "no `)`"),
            (shape(&format!("({})", "1,".repeat(4000))), "4000 dimensions"),
            (shape("(99999999999999999999,)"), "tuple of sizes"),
            ("{".repeat(9000), "no `'`"),
            ("{'descr".to_string(), "without an end"),
            ("{'descr': '<f4'}".to_string(), "lacks"),
            ("{'a': 1}".to_string(), "an entry other than"),
            ("{'descr': '|S4', 'fortran_order': False, 'shape': ()}".to_string(), "no tensor holds"),
            (" ".repeat(10_001), "has 10001 bytes"),
        ] {
            let error = header(&text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
