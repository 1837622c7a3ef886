//! Where the latency of a run goes on each device, as a table.

use edgecut_agent::results::{Activity, ActivityTime, Breakdown};

use crate::table::table;

/// A row for each device and activity, those of a device together, and what they are of.
pub(super) fn page(breakdown: &Breakdown) -> String {
    let Breakdown { latency_us, n, times } = breakdown;
    let mut rows = table(["device", "activity", ">time", ">of latency"]);
    let mut last = "";
    for time in times {
        let device = if time.device == last { "" } else { time.device.as_str() };
        last = &time.device;
        let share = 100.0 * time.time_us.0 / latency_us.0.max(f64::MIN_POSITIVE);
        rows.add_row([device.to_string(), activity(time), time.time_us.to_string(), format!("{share:.1} %")]);
    }
    let runs = match n {
        1 => "one run".to_string(),
        n => format!("mean of {n} runs, those between the quartiles"),
    };
    format!("{rows}\nof a latency of {latency_us} ({runs})\n\n")
}

/// What the device does, in words.
fn activity(time: &ActivityTime) -> String {
    let peer = &time.peer;
    match time.activity {
        Activity::Computing => "computing".to_string(),
        Activity::Handling => "handling operands and results".to_string(),
        Activity::Transfer => format!("transfer from {peer}"),
        Activity::Waiting => format!("waiting for {peer} to compute"),
        Activity::Gap => "gap before a stage".to_string(),
        Activity::Done => "done, others go on".to_string(),
    }
}
