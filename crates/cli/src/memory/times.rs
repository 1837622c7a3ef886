//! The source of a model's times, as text.

use edgecut_session::memory::subject::TimesSource;

/// Says where times come from, and which command measures those that are estimated.
pub fn times(source: &TimesSource) -> String {
    match source {
        TimesSource::Estimated => format!("{source}; `edgecut profile MODEL --granularity op` measures them"),
        TimesSource::Profile(_) | TimesSource::Unknown => source.to_string(),
    }
}
