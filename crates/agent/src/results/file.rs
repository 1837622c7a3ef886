//! Runs of plans as a file that grows with every run, for notebooks, `edgecut report` and `edgecut compare`: as JSON with all that
//! is known, or as CSV with a row for each inference, group, transfer and device.
//!
//! Reading and writing are on text; files are the caller's.

use serde::{Deserialize, Serialize};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{
    outcome::Outcome,
    table::{RunRow, RunRowKind, rows},
};
use edgecut_graph::units::Micros;
use edgecut_plan::{Plan, file::PlanFileError};

/// The version of the JSON that this program writes, and the only one it reads.
const VERSION: u32 = 1;

/// The runs of a file, in the order in which they ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResults {
    pub version: u32,
    pub runs: Vec<RunResult>,
}

/// What one call of `edgecut run` measured of one plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    #[serde(flatten)]
    pub about: RunAbout,
    /// Of each inference that counted, in order.
    pub latencies_us: Vec<Micros>,
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What was run, and when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunAbout {
    /// When it ended.
    #[serde(with = "time::serde::rfc3339")]
    pub measured_at: OffsetDateTime,
    /// The version of edgecut.
    pub edgecut: String,
    /// The file of the plan; of one that was made because an agent was lost, the file of the plan before.
    pub plan: String,
    /// BLAKE3 of the plan as JSON, in hexadecimal.
    pub plan_blake3: String,
    pub model: String,
    /// BLAKE3 of the model's file.
    pub model_blake3: String,
    pub in_flight: u32,
}

/// Why a text is not a file of results.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    #[error("not results, as `edgecut run` writes them to a .json file: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the results have format version {found}, this program reads {VERSION}")]
    Version { found: u32 },
    #[error("not results, as `edgecut run` of this version writes them to a .csv file: the first line differs")]
    Columns,
    #[error("a row was cut off ({0}): mend the file, or name another one")]
    Row(csv::Error),
}

impl RunAbout {
    /// Of a run of `plan`, from the file `path`, that ends now.
    ///
    /// # Errors
    /// Never, unless a number of the plan cannot be written.
    pub fn now(plan: &Plan, path: &str, in_flight: u32) -> Result<RunAbout, PlanFileError> {
        Ok(RunAbout {
            measured_at: OffsetDateTime::now_utc(),
            edgecut: env!("CARGO_PKG_VERSION").to_string(),
            plan: path.to_string(),
            plan_blake3: plan_hash(plan)?,
            model: plan.model.path.clone(),
            model_blake3: plan.model.blake3.clone(),
            in_flight,
        })
    }
}

/// By which results name their plan.
///
/// # Errors
/// Never, unless a number of the plan cannot be written.
pub fn plan_hash(plan: &Plan) -> Result<String, PlanFileError> {
    Ok(blake3::hash(plan.to_json()?.as_bytes()).to_hex().to_string())
}

impl Default for RunResults {
    fn default() -> RunResults {
        RunResults { version: VERSION, runs: Vec::new() }
    }
}

impl RunResults {
    /// # Errors
    /// If the text is no JSON of results, or of another version.
    pub fn from_json(text: &[u8]) -> Result<RunResults, ResultsError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
            #[serde(rename = "runs")]
            _runs: serde::de::IgnoredAny,
        }
        let Versioned { version: found, .. } = serde_json::from_slice(text)?;
        if found != VERSION {
            return Err(ResultsError::Version { found });
        }
        Ok(serde_json::from_slice(text)?)
    }

    /// # Errors
    /// Never, unless a number cannot be written.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}

/// The columns of all rows of one run, before those of [`RunRow`].
#[derive(Debug, Clone, Serialize)]
struct AboutColumns<'a> {
    measured_at: String,
    edgecut: &'a str,
    plan: &'a str,
    plan_blake3: &'a str,
    model: &'a str,
    model_blake3: &'a str,
    in_flight: u32,
}

/// The rows of one run: its inferences, then those of [`rows`]. `header` is for the first run of a file.
///
/// # Errors
/// If a value cannot be written as CSV.
pub fn to_csv(result: &RunResult, header: bool) -> Result<Vec<u8>, csv::Error> {
    let about = &result.about;
    let columns = AboutColumns {
        measured_at: about.measured_at.format(&Rfc3339).unwrap_or_default(),
        edgecut: &about.edgecut,
        plan: &about.plan,
        plan_blake3: &about.plan_blake3,
        model: &about.model,
        model_blake3: &about.model_blake3,
        in_flight: about.in_flight,
    };
    let inference = |(number, time): (u32, &Micros)| RunRow {
        kind: RunRowKind::Inference,
        id: Some(number),
        predicted_us: Some(result.outcome.predicted_latency_us.0),
        measured_us: Some(time.0),
        ..RunRow::default()
    };
    let mut writer = csv::WriterBuilder::new().has_headers(header).from_writer(Vec::new());
    for row in (0..).zip(&result.latencies_us).map(inference).chain(rows(&result.outcome)) {
        writer.serialize((&columns, row))?;
    }
    writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))
}

/// Checks that a run may be appended to `text`, which is empty, or has the columns of [`to_csv`] and whole rows.
///
/// # Errors
/// If it is another file, or a row was cut off.
pub fn check_csv(text: &[u8]) -> Result<(), ResultsError> {
    let line = |text: &[u8]| text.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii_end().to_vec();
    let mut writer = csv::Writer::from_writer(Vec::new());
    let about = AboutColumns {
        measured_at: String::new(),
        edgecut: "",
        plan: "",
        plan_blake3: "",
        model: "",
        model_blake3: "",
        in_flight: 0,
    };
    let expected = writer.serialize((about, RunRow::default())).ok().and_then(|()| writer.into_inner().ok());
    if !text.is_empty() && expected.is_none_or(|expected| line(&expected) != line(text)) {
        return Err(ResultsError::Columns);
    }
    // The reader refuses rows of other lengths than the first.
    let mut rows = csv::Reader::from_reader(text);
    let wrong = rows.byte_records().find_map(Result::err);
    wrong.map_or(Ok(()), |error| Err(ResultsError::Row(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::outcome::Latencies;

    fn result() -> RunResult {
        let latencies_us = vec![Micros(3.0), Micros(5.0)];
        RunResult {
            about: RunAbout {
                measured_at: OffsetDateTime::UNIX_EPOCH,
                edgecut: "1".into(),
                plan: "a,b.json".into(),
                plan_blake3: "0f".into(),
                model: "m.relay".into(),
                model_blake3: "f0".into(),
                in_flight: 1,
            },
            outcome: Outcome {
                latency: Latencies::of(&latencies_us).unwrap(),
                predicted_latency_us: Micros(4.0),
                interval_us: None,
                predicted_interval_us: Micros(4.0),
                groups: vec![],
                transfers: vec![],
                memory: vec![],
                predicted_energy_j: None,
                energy: vec![],
                load: vec![],
                engines: vec![],
                outputs: None,
                binding: None,
                breakdown: None,
                clock_uncertainty_us: Micros::ZERO,
            },
            latencies_us,
        }
    }

    #[test]
    fn json_is_read_again() {
        let mut results = RunResults::default();
        results.runs.push(result());
        let text = results.to_json().unwrap();
        assert_eq!(RunResults::from_json(text.as_bytes()).unwrap(), results);
        let newer = text.replace("\"version\": 1", "\"version\": 2");
        assert!(RunResults::from_json(newer.as_bytes()).unwrap_err().to_string().contains("version 2"));
        assert!(RunResults::from_json(b"{}").is_err());
    }

    #[test]
    fn runs_are_appended_below_one_header() {
        let mut text = to_csv(&result(), true).unwrap();
        check_csv(&text).unwrap();
        text.extend(to_csv(&result(), false).unwrap());
        let mut reader = csv::Reader::from_reader(&text[..]);
        let mut at = |name: &str| reader.headers().unwrap().iter().position(|column| column == name).unwrap();
        let (plan, kind, measured) = (at("plan"), at("kind"), at("measured_us"));
        let found: Vec<[String; 3]> = reader
            .records()
            .map(|row| row.unwrap())
            .map(|row| [&row[plan], &row[kind], &row[measured]].map(String::from))
            .collect();
        let one = [["inference", "3.0"], ["inference", "5.0"], ["latency", "4.0"]];
        let wanted: Vec<[String; 3]> =
            [one, one].concat().into_iter().map(|[kind, time]| ["a,b.json", kind, time].map(String::from)).collect();
        assert_eq!(found, wanted);
        assert!(check_csv(b"a,b\n1,2\n").is_err() && check_csv(b"").is_ok());
        let cut = [&text[..], b"2026-11-26T00:00:00Z,1\n"].concat();
        assert!(check_csv(&cut).unwrap_err().to_string().contains("cut off"));
    }
}
