//! What a source file declares: public types, functions with their lengths, fields as they are serialised.

use std::{fs, path::Path};

use syn::{
    Attribute, Fields, Item, Visibility,
    spanned::Spanned,
    visit::{self, Visit},
};

use crate::source::root;

/// Whether an item is compiled for tests alone.
pub fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
    })
}

/// Names of the file's `pub` structs, enums, traits, unions and aliases.
pub fn public_types(file: &syn::File) -> Vec<String> {
    let name = |item: &Item| {
        let (visibility, name) = match item {
            Item::Struct(item) => (&item.vis, &item.ident),
            Item::Enum(item) => (&item.vis, &item.ident),
            Item::Trait(item) => (&item.vis, &item.ident),
            Item::Type(item) => (&item.vis, &item.ident),
            Item::Union(item) => (&item.vis, &item.ident),
            _ => return None,
        };
        matches!(visibility, Visibility::Public(_)).then(|| name.to_string())
    };
    file.items.iter().filter_map(name).collect()
}

/// The file's functions and methods with their lines, tests aside.
pub fn functions(file: &syn::File) -> Vec<(String, usize)> {
    let mut found = Functions(Vec::new());
    found.visit_file(file);
    found.0
}

struct Functions(Vec<(String, usize)>);

impl Functions {
    fn add(&mut self, name: &syn::Ident, block: &syn::Block, signature: proc_macro2::Span) {
        let lines = block.span().end().line - signature.start().line + 1;
        self.0.push((name.to_string(), lines));
    }
}

impl<'a> Visit<'a> for Functions {
    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.add(&item.sig.ident, &item.block, item.sig.span());
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.add(&item.sig.ident, &item.block, item.sig.span());
        visit::visit_impl_item_fn(self, item);
    }
}

/// The fields of a struct under the names that serde writes; flattened and skipped ones are left out.
pub fn serialised_fields(path: &Path, name: &str) -> Vec<String> {
    let file = syn::parse_file(&fs::read_to_string(root().join(path)).unwrap()).unwrap();
    let mut names = Vec::new();
    for item in file.items {
        let Item::Struct(item) = item else { continue };
        let Fields::Named(fields) = item.fields else { continue };
        if item.ident != name {
            continue;
        }
        for field in fields.named {
            let mut written = field.ident.map(|ident| ident.to_string());
            for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("serde")) {
                let _ = attribute.parse_nested_meta(|meta| {
                    if meta.path.is_ident("rename") {
                        written = Some(meta.value()?.parse::<syn::LitStr>()?.value());
                    } else if meta.path.is_ident("skip") || meta.path.is_ident("flatten") {
                        written = None;
                    } else if meta.input.peek(syn::Token![=]) {
                        meta.value()?.parse::<syn::Expr>()?;
                    }
                    Ok(())
                });
            }
            names.extend(written);
        }
    }
    names
}
