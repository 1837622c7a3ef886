//! ONNX Runtime's profile of a session: a JSON array of events in the form of Chrome's traces, as
//! `SessionOptions.enable_profiling` writes it. Kernels of any number of runs.
//!
//! The events are read one by one, so that memory follows the kernels and not the text, of which they are a small part.

use std::{borrow::Cow, collections::HashMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, SeqAccess, Visitor},
};

use edgecut_graph::units::Micros;
use edgecut_profile::reader::truncated;

/// The kernels that a session ran.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OrtProfile {
    /// Names of kernels, without what each ends in.
    pub names: Vec<String>,
    /// Names of execution providers.
    pub providers: Vec<String>,
    /// In the order in which they began. Those that ran inside of another, in the body of a loop or a branch, are not among them.
    pub kernels: Vec<KernelRun>,
    /// Number of runs of the session.
    pub runs: usize,
    /// The most threads that computed one kernel.
    pub threads: usize,
    /// Number of kernel runs inside of others.
    pub inner: usize,
}

/// One run of a kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KernelRun {
    /// Index in [`OrtProfile::names`].
    pub name: usize,
    /// Index in [`OrtProfile::providers`].
    pub provider: usize,
    /// The run of the session that it belongs to.
    pub run: usize,
    pub time: Micros,
}

/// Why a text is not a profile of ONNX Runtime.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrtProfileError {
    /// With line, column and what was expected.
    #[error("not a profile of ONNX Runtime: {0}")]
    Json(String),
    #[error(
        "the profile ends within its events, {0}: call `end_profiling` of the session, or close it, before the file is read"
    )]
    Incomplete(String),
    #[error(
        "the profile has no times of kernels: run the session at least once between `enable_profiling` and `end_profiling`"
    )]
    NoKernels,
}

/// What the name of a kernel's run ends in.
const KERNEL: &str = "_kernel_time";

/// The event of a run of the session.
const RUN: &str = "model_run";

/// How far into a text its first events are looked for.
const BEGINNING: usize = 4096;

/// Whether a text begins as such profiles do: with the session's own events, or a kernel's.
pub fn is_ort_profile(text: &str) -> bool {
    let end = (0..=BEGINNING.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let beginning = text[..end].trim_start();
    let marks = ["\"model_loading", "\"session_initialization\"", KERNEL];
    beginning.starts_with('[') && beginning.contains("\"cat\"") && marks.iter().any(|mark| beginning.contains(mark))
}

/// Reads a profile.
///
/// # Errors
/// If it is not JSON of this form, or has no kernels.
pub fn read(text: &str) -> Result<OrtProfile, OrtProfileError> {
    let mut json = serde_json::Deserializer::from_str(text);
    let events = json.deserialize_seq(EventReader::default()).and_then(|events| json.end().map(|()| events));
    let events = events.map_err(|error| match error.is_eof() {
        true => OrtProfileError::Incomplete(format!("line {}, column {}", error.line(), error.column())),
        false => OrtProfileError::Json(error.to_string()),
    })?;
    if events.kernels.is_empty() { Err(OrtProfileError::NoKernels) } else { Ok(events.profile()) }
}

#[derive(Deserialize)]
struct Event<'t> {
    #[serde(borrow, default)]
    cat: Cow<'t, str>,
    #[serde(borrow)]
    name: Cow<'t, str>,
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    tid: u64,
    #[serde(borrow, default)]
    args: Args<'t>,
}

#[derive(Deserialize, Default)]
struct Args<'t> {
    #[serde(borrow, default)]
    provider: Cow<'t, str>,
    #[serde(default)]
    thread_scheduling_stats: Option<Scheduling>,
}

/// How a kernel was divided among threads.
#[derive(Deserialize)]
#[serde(untagged)]
enum Scheduling {
    Threads {
        /// By number of the thread, in addition to the one that called.
        sub_threads: HashMap<String, IgnoredAny>,
    },
    /// It was not: an empty text.
    Alone(IgnoredAny),
}

impl Scheduling {
    fn threads(&self) -> usize {
        match self {
            Scheduling::Threads { sub_threads } => sub_threads.len() + 1,
            Scheduling::Alone(_) => 1,
        }
    }
}

/// A kernel's run as its event says it.
struct Timed {
    name: usize,
    provider: usize,
    thread: u64,
    start: f64,
    duration: f64,
}

impl Timed {
    fn end(&self) -> f64 {
        self.start + self.duration
    }
}

/// What is kept of the events.
#[derive(Default)]
struct EventReader {
    names: Numbered,
    providers: Numbered,
    kernels: Vec<Timed>,
    /// When runs of the session began.
    runs: Vec<f64>,
    threads: usize,
}

impl<'de> Visitor<'de> for EventReader {
    type Value = EventReader;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut events: A) -> Result<EventReader, A::Error> {
        let mut number = 0;
        while let Some(event) = events.next_element::<Event<'de>>()? {
            self.add(&event).map_err(|what| A::Error::custom(format!("event {number}, {what}")))?;
            number += 1;
        }
        Ok(self)
    }
}

impl EventReader {
    fn add(&mut self, event: &Event<'_>) -> Result<(), String> {
        let kernel = event.name.strip_suffix(KERNEL).filter(|_| event.cat == "Node");
        if kernel.is_none() && event.name != RUN {
            return Ok(());
        }
        let is_time = |time: f64| time.is_finite() && time >= 0.0;
        if !is_time(event.ts) || !is_time(event.dur) {
            let (name, ts, dur) = (truncated(&event.name), event.ts, event.dur);
            return Err(format!("`{name}`: `ts` {ts} and `dur` {dur} are not two times in microseconds from 0"));
        }
        let Some(kernel) = kernel else {
            self.runs.push(event.ts);
            return Ok(());
        };
        let threads = event.args.thread_scheduling_stats.as_ref().map_or(1, Scheduling::threads);
        self.threads = self.threads.max(threads);
        self.kernels.push(Timed {
            name: self.names.number(kernel),
            provider: self.providers.number(&event.args.provider),
            thread: event.tid,
            start: event.ts,
            duration: event.dur,
        });
        Ok(())
    }

    fn profile(mut self) -> OrtProfile {
        self.runs.sort_unstable_by(f64::total_cmp);
        let all = self.kernels.len();
        let kernels = outermost(self.kernels);
        let run = |kernel: &Timed| self.runs.partition_point(|start| *start <= kernel.start).saturating_sub(1);
        let runs = kernels.iter().map(|kernel| KernelRun {
            name: kernel.name,
            provider: kernel.provider,
            run: run(kernel),
            time: Micros(kernel.duration),
        });
        OrtProfile {
            kernels: runs.collect(),
            runs: self.runs.len().max(1),
            threads: self.threads.max(1),
            inner: all - kernels.len(),
            names: self.names.texts,
            providers: self.providers.texts,
        }
    }
}

/// The kernels that did not run inside of another on the same thread, in the order in which they began. An event of no length at
/// the end of another is its successor.
fn outermost(mut kernels: Vec<Timed>) -> Vec<Timed> {
    // Of those that begin together, the longest first.
    kernels.sort_by(|a, b| a.start.total_cmp(&b.start).then(b.duration.total_cmp(&a.duration)));
    let mut ends: HashMap<u64, f64> = HashMap::new();
    kernels.retain(|kernel| {
        let end = ends.entry(kernel.thread).or_insert(f64::NEG_INFINITY);
        let is_inner = kernel.start < *end && kernel.end() <= *end;
        *end = end.max(kernel.end());
        !is_inner
    });
    kernels
}

/// Texts by number, in the order in which they occurred first.
#[derive(Default)]
struct Numbered {
    texts: Vec<String>,
    numbers: HashMap<String, usize>,
}

impl Numbered {
    fn number(&mut self, text: &str) -> usize {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        self.texts.push(text.to_string());
        self.numbers.insert(text.to_string(), self.texts.len() - 1);
        self.texts.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(cat: &str, name: &str, ts: f64, dur: f64) -> String {
        let args =
            r#"{"provider": "CPUExecutionProvider", "thread_scheduling_stats": {"sub_threads": {"7": {"core": 1}}}}"#;
        format!(
            r#"{{"cat": "{cat}", "pid": 1, "tid": 2, "ts": {ts}, "dur": {dur}, "name": "{name}", "ph": "X", "args": {args}}}"#
        )
    }

    #[test]
    fn kernels_are_read_with_the_run_that_they_belong_to() {
        let events = [
            event("Session", "session_initialization", 1.0, 2.0),
            event("Node", "conv_kernel_time", 10.0, 5.0),
            event("Node", "loop_kernel_time", 15.0, 9.0),
            event("Node", "body_kernel_time", 16.0, 3.0),
            event("Session", "model_run", 9.0, 20.0),
            event("Node", "conv_kernel_time", 41.0, 4.0),
            event("Node", "conv_fence_before", 41.0, 4.0),
            event("Session", "model_run", 40.0, 20.0),
            // Of a session with one thread.
            r#"{"cat": "Node", "name": "one_fence", "ts": 60, "args": {"thread_scheduling_stats": ""}}"#.to_string(),
        ];
        let text = format!("[\n{}\n]", events.join(",\n"));
        assert!(is_ort_profile(&text));
        let profile = read(&text).unwrap();
        assert_eq!((profile.runs, profile.threads, profile.inner), (2, 2, 1));
        assert_eq!(profile.providers, ["CPUExecutionProvider"]);
        let kernels: Vec<(&str, usize, f64)> = profile
            .kernels
            .iter()
            .map(|kernel| (profile.names[kernel.name].as_str(), kernel.run, kernel.time.0))
            .collect();
        assert_eq!(kernels, [("conv", 0, 5.0), ("loop", 0, 9.0), ("conv", 1, 4.0)]);
    }

    #[test]
    fn what_is_no_profile_is_told_with_its_place() {
        let kernel = event("Node", "conv_kernel_time", 10.0, 5.0);
        for (text, why) in [
            (format!("[{kernel},\n"), "the profile ends within its events, line 2"),
            ("[]".to_string(), "the profile has no times of kernels"),
            ("[3]".to_string(), "not a profile of ONNX Runtime: invalid type: integer `3`, expected struct Event"),
            (format!("[{kernel}] x"), "not a profile of ONNX Runtime: trailing characters at line 1"),
            (
                format!("[{}]", kernel.replace("\"dur\": 5", "\"dur\": -5")),
                "not a profile of ONNX Runtime: event 0, `conv_kernel_time`",
            ),
            (
                format!("[{}]", kernel.replace("\"ts\": 10", "\"t\": 10")),
                "not a profile of ONNX Runtime: missing field `ts`",
            ),
        ] {
            let error = read(&text).unwrap_err().to_string();
            assert!(error.starts_with(why), "{error}");
        }
        assert!(!is_ort_profile("[1, 2]") && !is_ort_profile("{\"traceEvents\": []}") && !is_ort_profile(""));
    }
}
