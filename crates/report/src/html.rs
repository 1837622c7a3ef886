//! What all pages have in common: the skeleton, the colours of both themes, escaping.

/// Colours, as custom properties of both themes: those of Okabe and Ito, which are told apart with any colour vision.
/// A page follows the system's theme unless its element `html` has `data-theme`.
const THEME: &str = include_str!("theme.css");

/// The colours of the light theme, for figures that stand alone: one for each class of operators, and one more.
pub(crate) const PALETTE: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a8f96", "#f0e442"];

/// One HTML file that loads nothing.
#[derive(Debug, Clone, Copy)]
pub struct Document<'a> {
    pub title: &'a str,
    /// In addition to [`THEME`].
    pub style: &'a str,
    /// HTML.
    pub body: &'a str,
    pub script: &'a str,
}

impl Document<'_> {
    pub fn html(&self) -> String {
        let Document { title, style, body, script } = self;
        let title = escape(title);
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
             script-src 'unsafe-inline'; img-src data:\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
             <style>\n{THEME}{style}</style>\n</head>\n<body>\n{body}\n\
             <script>\n{script}</script>\n</body>\n</html>\n"
        )
    }
}

/// Escapes text for HTML and SVG, between tags and in attributes.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// JSON that stands in a `script` element: no `<` can end it or begin a comment.
pub(crate) fn script_json(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_colours_of_the_light_theme() {
        for (index, colour) in PALETTE.iter().enumerate() {
            assert!(THEME.contains(&format!("--c{index}: {colour};")), "{colour}");
        }
    }

    #[test]
    fn text_is_no_markup() {
        assert_eq!(escape("a<b>&\"c\""), "a&lt;b&gt;&amp;&quot;c&quot;");
        assert_eq!(script_json("\"</script>\""), "\"\\u003c/script>\"");
        let page = Document { title: "</title>", style: "", body: "", script: "" }.html();
        assert!(page.contains("<title>&lt;/title&gt;</title>"), "{page}");
    }
}
