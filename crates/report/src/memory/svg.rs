//! SVG primitives: a plot area with axes, labels and a legend.

use std::fmt::Write;

use crate::{class::CLASSES, html::escape};

/// Right margin, for half a label.
const RIGHT: f64 = 28.0;
/// Top margin, for a legend.
const TOP: f64 = 22.0;
/// Approximate width of a letter.
pub const LETTER: f64 = 6.0;

/// A drawing area with a linear scale in both directions; y grows upwards.
pub struct Plot {
    pub width: f64,
    pub height: f64,
    /// Margins for labels at the left and below.
    pub left: f64,
    pub below: f64,
    pub x: (f64, f64),
    pub y: (f64, f64),
}

impl Plot {
    pub fn new(width: f64, height: f64, x: (f64, f64), y: (f64, f64)) -> Plot {
        Plot { width, height, left: 76.0, below: 34.0, x, y }
    }

    pub fn px(&self, x: f64) -> f64 {
        let span = (self.x.1 - self.x.0).max(f64::MIN_POSITIVE);
        self.left + (x - self.x.0) / span * (self.width - self.left - RIGHT)
    }

    pub fn py(&self, y: f64) -> f64 {
        let span = (self.y.1 - self.y.0).max(f64::MIN_POSITIVE);
        self.height - self.below - (y - self.y.0) / span * (self.height - self.below - TOP)
    }

    /// The opening tag with both axes: labels and grid lines at the given values.
    pub fn open(&self, title: &str, x_label: &str, xs: &[(f64, String)], ys: &[(f64, String)]) -> String {
        let (w, h) = (self.width, self.height);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" role=\"img\" font-family=\"sans-serif\" \
             font-size=\"11\"><title>{}</title>",
            escape(title)
        );
        let (x0, x1, y0, y1) = (self.left, w - RIGHT, h - self.below, TOP);
        svg += "<g class=\"axes\">";
        for (x, label) in xs {
            let at = self.px(*x);
            let _ = write!(svg, "<line class=\"grid\" x1=\"{at:.1}\" y1=\"{y1}\" x2=\"{at:.1}\" y2=\"{y0}\"/>");
            let _ = write!(svg, "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>", y0 + 17.0);
        }
        for (y, label) in ys {
            let at = self.py(*y);
            let _ = write!(svg, "<line class=\"grid\" x1=\"{x0}\" y1=\"{at:.1}\" x2=\"{x1}\" y2=\"{at:.1}\"/>");
            let _ = write!(svg, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", x0 - 6.0, at + 4.0);
        }
        let _ = write!(
            svg,
            "</g><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            (x0 + x1) / 2.0,
            h - 4.0,
            escape(x_label)
        );
        svg
    }

    /// The opening tag of a nested drawing in the same units, clipped to the axes.
    pub fn open_inner(&self, attributes: &str) -> String {
        let (x, y) = (self.left, TOP);
        let (w, h) = (self.width - self.left - RIGHT, self.height - self.below - TOP);
        format!(
            "<svg class=\"inner\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" viewBox=\"{x} {y} {w} {h}\" \
             preserveAspectRatio=\"none\"{attributes}>"
        )
    }

    /// A legend above the drawing: the class and the label of each line.
    pub fn legend(&self, lines: &[(&str, &str)]) -> String {
        let mut svg = String::new();
        let mut x = self.left;
        for (class, word) in lines {
            let _ = write!(
                svg,
                "<line class=\"{class}\" x1=\"{x:.1}\" y1=\"9\" x2=\"{:.1}\" y2=\"9\"/><text x=\"{:.1}\" y=\"13\">{}</text>",
                x + 22.0,
                x + 27.0,
                escape(word)
            );
            x += 45.0 + LETTER * word.chars().count() as f64;
        }
        svg
    }

    /// A centred note in an empty drawing.
    pub fn note(&self, text: &str) -> String {
        let (x, y) = ((self.left + self.width - RIGHT) / 2.0, (TOP + self.height - self.below) / 2.0);
        format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>", escape(text))
    }
}

/// The style of figures, without the colours of [`classes`].
pub const STYLE: &str = ".grid{stroke:#8884}.input{fill:#b9c4d0}.workspace{fill:#f0e442}.block{stroke:#fff8;stroke-width:.5}\
.output{stroke:#000;stroke-width:2}.in-place{stroke:#000;stroke-width:1;stroke-dasharray:3 2}.peak{stroke:#d22;stroke-dasharray:6 4;fill:none}\
.load{stroke:#222;fill:none;stroke-width:1.2}.fine.block:not(.output){stroke:none}.fine.load{stroke-width:.5;stroke-opacity:.6}\
.capacity{stroke:#06c;fill:none}.all{stroke:#8b5a2b;stroke-dasharray:5 3;fill:none}\
.active{stroke:#2a8f3c;fill:none}.dot{fill:#1f3a93}.link{stroke:#999;fill:none}\
.mark{stroke:#d22;stroke-width:8;stroke-linecap:round}";

/// Shades of a colour, so that neighbours of one class are told apart.
pub const SHADES: usize = 3;

/// The colours of blocks by the class of the operator that makes them: `colour(class)` as CSS.
pub fn classes(colour: impl Fn(usize) -> String) -> String {
    let shade = |shade: usize| format!(".shade{shade}{{fill-opacity:{}}}", 1.0 - 0.2 * shade as f64);
    let shades: String = (0..SHADES).map(shade).collect();
    shades
        + &(0..CLASSES.len())
            .map(|class| format!(".made{class}{{fill:{};background:{0}}}", colour(class)))
            .collect::<String>()
}

/// About `count` round numbers from `from` to `to`.
pub fn ticks(from: f64, to: f64, count: f64) -> Vec<f64> {
    let span = to - from;
    if span.is_nan() || span <= 0.0 {
        return vec![from];
    }
    let rough = span / count;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|&s| s >= rough).unwrap_or(rough);
    let first = (from / step).ceil() as i64;
    (first..).map(|i| i as f64 * step).take_while(|&x| x <= to + step * 1e-9).collect()
}

/// Integer ticks for an axis of steps.
pub fn step_ticks(end: u64) -> Vec<(f64, String)> {
    let whole = ticks(0.0, end as f64, 10.0).into_iter().filter(|x| x.fract() == 0.0);
    whole.map(|x| (x, format!("{x}"))).collect()
}

/// Round ticks in binary units for an axis of bytes.
pub fn byte_ticks(most: f64) -> Vec<(f64, String)> {
    let (unit, name) = match most {
        m if m >= 1073741824.0 => (1073741824.0, "GiB"),
        m if m >= 1048576.0 => (1048576.0, "MiB"),
        m if m >= 1024.0 => (1024.0, "KiB"),
        _ => (1.0, "B"),
    };
    let label = |x: f64| if x == 0.0 { "0".to_string() } else { format!("{} {name}", (x * 1000.0).round() / 1000.0) };
    ticks(0.0, most / unit, 6.0).into_iter().map(|x| (x * unit, label(x))).collect()
}

/// Ticks at powers of ten for a logarithmic axis on which `most` labels fit: each, each second, each third.
pub fn decades(from: f64, to: f64, most: usize, label: impl Fn(f64) -> String) -> Vec<(f64, String)> {
    let (first, last) = (from.floor() as i32, to.ceil() as i32);
    let each = ((last - first).max(0) as usize).div_ceil(most.max(1)).max(1);
    (first..=last).step_by(each).map(|p| (f64::from(p), label(10f64.powi(p)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(0.0, 10.0, 5.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(3.0, 3.0, 5.0), [3.0]);
        assert_eq!(byte_ticks(4096.0)[1].1, "1 KiB");
        let powers = decades(-3.0, 7.0, 5, |value| value.to_string());
        assert_eq!(powers.iter().map(|tick| tick.0).collect::<Vec<_>>(), [-3.0, -1.0, 1.0, 3.0, 5.0, 7.0]);
    }
}
