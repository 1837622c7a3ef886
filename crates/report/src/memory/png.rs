//! A figure as PNG: resvg renders the SVG on white, with the system fonts.

use std::sync::Arc;

use resvg::{
    tiny_skia::{Color, Pixmap, Transform},
    usvg::{Options, Tree, fontdb::Database},
};

/// Pixels per SVG unit.
const SCALE: f32 = 2.0;

/// Preferred fonts, in this order; without any of them the first system font.
const SANS_SERIF: [&str; 6] = ["DejaVu Sans", "Liberation Sans", "Noto Sans", "Arial", "Helvetica", "FreeSans"];

/// A figure that cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum PngError {
    #[error("the SVG is invalid: {0}")]
    Svg(#[from] resvg::usvg::Error),
    #[error("an image of {0} x {1} pixels is too large")]
    TooLarge(f32, f32),
    #[error("the image cannot be encoded: {0}")]
    Encode(String),
}

/// Renders a standalone figure. Without any system font the text is left out.
///
/// # Errors
/// If the text is not valid SVG or the image is too large.
pub fn png(svg: &str) -> Result<Vec<u8>, PngError> {
    let mut fonts = Database::new();
    fonts.load_system_fonts();
    // resvg maps the generic family to Arial, which is not installed everywhere.
    let families: Vec<&str> = fonts.faces().flat_map(|face| &face.families).map(|family| family.0.as_str()).collect();
    let known = SANS_SERIF.into_iter().find(|name| families.contains(name));
    if let Some(family) = known.or(families.first().copied()).map(str::to_string) {
        fonts.set_sans_serif_family(family);
    }
    let options = Options { fontdb: Arc::new(fonts), ..Options::default() };
    let tree = Tree::from_str(svg, &options)?;
    let (width, height) = (tree.size().width() * SCALE, tree.size().height() * SCALE);
    let mut picture = Pixmap::new(width as u32, height as u32).ok_or(PngError::TooLarge(width, height))?;
    picture.fill(Color::WHITE);
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut picture.as_mut());
    picture.encode_png().map_err(|error| PngError::Encode(error.to_string()))
}
