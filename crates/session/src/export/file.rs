//! The files of an export, and how they are written.

use std::{
    io,
    path::{Path, PathBuf},
};

use edgecut_onnx::Exported;

use crate::{
    Error,
    output::{self, Sink},
};

/// The files of an export, in the order in which they are written.
#[derive(Debug)]
pub struct Export {
    pub files: Vec<ExportedFile>,
    /// Text for stdout, if there is no output file.
    pub text: Option<String>,
    /// What was exported, by lines.
    pub summary: Vec<String>,
}

/// A file of an export.
#[derive(Debug)]
pub struct ExportedFile {
    pub path: PathBuf,
    content: Content,
}

/// The content of a file.
#[derive(Debug)]
pub(super) enum Content {
    Text(String),
    Bytes(Vec<u8>),
    /// An ONNX model, which is encoded when it is written. Its weights go to a file next to it if that is asked for or
    /// they do not fit inside.
    Onnx {
        model: Box<Exported>,
        external_data: bool,
    },
}

/// Writes one file: at the path, by the function that fills it.
pub type WriteWith<'a> = dyn Fn(&Path, &mut dyn FnMut(&mut dyn Sink) -> io::Result<()>) -> Result<(), Error> + 'a;

impl ExportedFile {
    pub(super) fn new(path: impl Into<PathBuf>, content: Content) -> ExportedFile {
        ExportedFile { path: path.into(), content }
    }

    fn write(&self, write: &WriteWith<'_>) -> Result<(), Error> {
        match &self.content {
            Content::Text(text) => write(&self.path, &mut |file| file.write_all(text.as_bytes())),
            Content::Bytes(bytes) => write(&self.path, &mut |file| file.write_all(bytes)),
            Content::Onnx { model, external_data } => write_onnx(model, &self.path, *external_data, write),
        }
    }
}

impl Export {
    /// Writes the files. Missing folders are made.
    ///
    /// # Errors
    /// If one cannot be written.
    pub fn write(&self) -> Result<(), Error> {
        self.write_with(&|path, fill| output::write_with(path, |file| fill(file)))
    }

    /// Like [`Export::write`], by `write`.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn write_with(&self, write: &WriteWith<'_>) -> Result<(), Error> {
        self.files.iter().try_for_each(|file| file.write(write))
    }
}

fn write_onnx(model: &Exported, path: &Path, external_data: bool, write: &WriteWith<'_>) -> Result<(), Error> {
    if !external_data && !model.needs_external_data() {
        let bytes = model.to_bytes().map_err(Error::bad_input)?;
        return write(path, &mut |file| file.write_all(&bytes));
    }
    if !output::is_file(path) {
        let what = format!("{}: the weights go to a file next to the model: name a file for it", path.display());
        return Err(Error::BadInput(what.into()));
    }
    let data = path.with_extension("onnx.data");
    let name = data.file_name().unwrap_or_default().to_string_lossy();
    let mut bytes = Vec::new();
    write(&data, &mut |weights| {
        bytes = model.with_external_data(&name, weights)?;
        Ok(())
    })?;
    write(path, &mut |file| file.write_all(&bytes))
}
