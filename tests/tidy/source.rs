//! The sources of the workspace: its crates, their modules, their texts.

use std::{
    fs,
    path::{Path, PathBuf},
};

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// One crate of the workspace; the binary and its library facade are `edgecut`.
pub struct Crate {
    pub name: String,
    folder: PathBuf,
    pub modules: Vec<Module>,
}

/// One file of a crate.
pub struct Module {
    /// Its path from the crate's root; empty for the root.
    pub path: Vec<String>,
    source: PathBuf,
    pub file: syn::File,
}

impl Module {
    pub fn shown(&self) -> String {
        self.source.display().to_string()
    }
}

impl Crate {
    pub fn all() -> Vec<Crate> {
        let mut folders: Vec<PathBuf> =
            fs::read_dir(root().join("crates")).unwrap().map(|e| e.unwrap().path()).collect();
        folders.push(root().join("python"));
        folders.sort();
        let mut found: Vec<Crate> = folders
            .into_iter()
            .map(|folder| Crate::read(folder.file_name().unwrap().to_string_lossy().into_owned(), folder, "lib.rs"))
            .collect();
        found.push(Crate::read("edgecut".to_string(), root(), "main.rs"));
        found
    }

    fn read(name: String, folder: PathBuf, root_file: &str) -> Crate {
        let src = folder.join("src");
        let modules = rust_files(&src)
            .into_iter()
            // The facade only re-exports other crates.
            .filter(|path| name != "edgecut" || !path.ends_with("src/lib.rs"))
            .map(|source| {
                let inside = source.strip_prefix(&src).unwrap();
                let mut path: Vec<String> =
                    inside.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
                if inside == Path::new(root_file) || path.last().is_some_and(|last| last == "mod") {
                    path.pop();
                }
                let file = syn::parse_file(&fs::read_to_string(&source).unwrap()).unwrap();
                Module { path, source: source.strip_prefix(self::root()).unwrap().to_path_buf(), file }
            })
            .collect();
        Crate { name, folder, modules }
    }

    /// Its `Cargo.toml`.
    pub fn manifest(&self) -> toml::Table {
        fs::read_to_string(self.folder.join("Cargo.toml")).unwrap().parse().unwrap()
    }

    /// The workspace's crates among the dependencies, without `edgecut-`.
    pub fn dependencies(&self) -> Vec<String> {
        let manifest = self.manifest();
        let table = manifest["dependencies"].as_table().unwrap();
        table.keys().filter_map(|key| key.strip_prefix("edgecut-")).map(str::to_string).collect()
    }
}

/// The texts of all sources of the workspace, tests aside, sorted by path.
pub fn texts() -> Vec<(PathBuf, String)> {
    let folders = fs::read_dir(root().join("crates")).unwrap().map(|e| e.unwrap().path().join("src"));
    let mut files: Vec<PathBuf> =
        folders.chain([root().join("src"), root().join("python/src")]).flat_map(|folder| rust_files(&folder)).collect();
    files.sort();
    assert!(!files.is_empty());
    let text = |path: PathBuf| (path.strip_prefix(root()).unwrap().to_path_buf(), fs::read_to_string(&path).unwrap());
    files.into_iter().map(text).collect()
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
