//! Figures as pixels (feature `png`).

use edgecut_report::memory::png::png;
use resvg::tiny_skia::Pixmap;

#[test]
fn a_drawing_becomes_pixels() {
    let svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 4 2\"><style>.a{fill:#f00}</style>\
               <rect class=\"a\" width=\"4\" height=\"2\"/></svg>";
    let picture = Pixmap::decode_png(&png(svg).unwrap()).unwrap();
    assert_eq!((picture.width(), picture.height()), (8, 4));
    let first = picture.pixels()[0];
    assert_eq!((first.red(), first.green(), first.blue()), (255, 0, 0));
    assert!(png("<svg").is_err());
}
