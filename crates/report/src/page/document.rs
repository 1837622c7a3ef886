//! The HTML file of a page: its data as JSON, and the script and style that draw them. It loads nothing, and a policy
//! forbids it to.

use super::Page;
use crate::html::{self, Document};

const SCRIPT: &str = include_str!("../../page/dist/report.js");
const STYLE: &str = include_str!("../../page/dist/report.css");

/// The page as one HTML file.
///
/// # Errors
/// Never, unless a number cannot be written.
pub fn document(page: &Page, title: &str) -> Result<String, serde_json::Error> {
    let data = html::script_json(&serde_json::to_string(page)?);
    let body = format!(
        "<noscript><p class=\"notice\">This page draws its charts with a script that it contains. Allow scripts to see \
         them.</p></noscript>\n<div id=\"page\"></div>\n<script type=\"application/json\" id=\"data\">{data}</script>"
    );
    Ok(Document { title, style: STYLE, body: &body, script: SCRIPT }.html())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::{Content, Subject};

    #[test]
    fn names_cannot_end_the_data_or_add_elements() {
        let name = "</script><img src=x onerror=alert(1)><!--".to_string();
        let page = Page::of(&[Subject { name: name.clone(), content: Content::Profile(Vec::new()) }]);
        let html = document(&page, &name).unwrap();
        assert!(!html.contains("<img") && !html.contains("<!--<"), "names are escaped");
        assert_eq!(html.matches("</script>").count(), 2, "of the data and of the script");
        let data = html.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
        let read: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(read["subjects"][0][0], serde_json::Value::String(name));
    }
}
