//! The reports of the G10 liveness tool, and the same data as CSV tables.
//!
//! Formats and meanings are G10's: a tensor that is never read has death -1, and numbers are printed as C++ streams
//! do. In *compatible* mode its quirks are kept too: the first tensor is counted as the input, on top of where it is
//! counted anyway; what the first kernel makes is called its inputs; and active bytes are summed in single precision.

use std::fmt::Write;

use edgecut_graph::units::Bytes;
use edgecut_memory::liveness::{KernelMemory, TensorLiveness, TensorUse, Trace, TracedTensor};

/// One file: its name and its content.
pub type ReportFile = (String, String);

/// G10's five files for a run called `name`.
pub fn files(trace: &Trace, name: &str, compatible: bool) -> Vec<ReportFile> {
    let liveness = trace.liveness();
    vec![
        ("kernels.config".into(), kernels(trace)),
        ("tensors.config".into(), tensors(trace)),
        ("liveness_analysis.config".into(), liveness_report(trace, &liveness)),
        (format!("{name}_NNMemConsumptionLog.py"), consumption(trace, &liveness, compatible)),
        (format!("{name}_TensorPeriodLog.py"), periods(trace, &liveness)),
    ]
}

/// The same as tables: liveness, idle periods and memory.
pub fn tables(trace: &Trace) -> Vec<ReportFile> {
    let liveness = trace.liveness();
    let cell = |kernel: Option<usize>| kernel.map_or(String::new(), |k| k.to_string());
    let mut life_table = String::from("tensor,name,bytes,global,birth,death\n");
    let mut idle_table = String::from("tensor,name,bytes,start,end,time_us\n");
    for (index, (tensor, life)) in trace.tensors.iter().zip(&liveness).enumerate() {
        let TracedTensor { name, bytes: Bytes(bytes), global, .. } = tensor;
        let (birth, death) = (cell(life.birth), cell(life.death));
        let _ = writeln!(life_table, "{index},{},{bytes},{global},{birth},{death}", quoted(name));
        for period in &life.idle {
            let (start, end, time) = (period.start, period.end, period.time.0);
            let _ = writeln!(idle_table, "{index},{},{bytes},{start},{end},{time}", quoted(name));
        }
    }
    let mut memory_table =
        String::from("kernel,name,time_us,active_bytes,input_bytes,weight_bytes,intermediate_bytes,total_bytes\n");
    for (index, (kernel, memory)) in trace.kernels.iter().zip(trace.memory()).enumerate() {
        let [active, inputs, weights, intermediates, total] =
            [memory.active, memory.inputs, memory.weights, memory.intermediates, memory.total].map(|bytes| bytes.0);
        let (name, time) = (quoted(&kernel.name), kernel.time.0);
        let _ = writeln!(memory_table, "{index},{name},{time},{active},{inputs},{weights},{intermediates},{total}");
    }
    vec![("liveness.csv".into(), life_table), ("idle.csv".into(), idle_table), ("memory.csv".into(), memory_table)]
}

fn kernels(trace: &Trace) -> String {
    let mut text = String::new();
    for (index, kernel) in trace.kernels.iter().enumerate() {
        let _ = writeln!(text, "Kernel ID: {index}, Name: {}", kernel.name);
        for (title, uses) in [("Input", &kernel.inputs), ("Output", &kernel.outputs)] {
            let _ = writeln!(text, "{title} Tensors:");
            for TensorUse { tensor, name, dimensions } in uses {
                let TracedTensor { bytes: Bytes(bytes), global, .. } = trace.tensors[*tensor];
                let global = u8::from(global);
                let _ = writeln!(
                    text,
                    "tensor{tensor}, Name: {name}, Is global?: {global}: Size in byte: {bytes}, Dimensions: {dimensions}"
                );
            }
        }
        let _ = writeln!(text, "{}", "_".repeat(68));
    }
    text
}

fn tensors(trace: &Trace) -> String {
    (0..trace.tensors.len()).map(|index| head(trace, index) + "\n").collect()
}

fn head(trace: &Trace, index: usize) -> String {
    let TracedTensor { name, bytes: Bytes(bytes), global, .. } = &trace.tensors[index];
    format!("tensor{index}, Name: {name}, Is global?: {}: Size in byte: {bytes}, ", u8::from(*global))
}

fn liveness_report(trace: &Trace, liveness: &[TensorLiveness]) -> String {
    let rule = "_".repeat(77);
    let mut text = String::new();
    for (index, life) in liveness.iter().enumerate() {
        let head = head(trace, index);
        let _ = writeln!(text, "{rule}\n{head}");
        let death = life.death.map_or(-1, |death| death as i64);
        let _ = match life.birth {
            _ if trace.tensors[index].global => writeln!(text, "This tensor is Global!"),
            // G10 leaves the birth of what is never used undefined, and it is never read.
            None => writeln!(text, "Liveness: Birth: 0, Death: -1."),
            Some(birth) => writeln!(text, "Liveness: Birth: {birth}, Death: {death}."),
        };
        let _ = writeln!(text, "{}\n{head}\nInactive Periods:", "_ ".repeat(36));
        for (number, period) in life.idle.iter().enumerate() {
            let _ = writeln!(text, "Period {number}: {}--------{}", period.start, period.end);
            let _ = writeln!(text, "Estimated Time:{}us", stream(period.time.0));
        }
        let _ = writeln!(text, "{rule}");
    }
    text
}

fn consumption(trace: &Trace, liveness: &[TensorLiveness], compatible: bool) -> String {
    let exact = trace.memory();
    let globals: Bytes = trace.tensors.iter().filter(|t| t.global).map(|t| t.bytes).sum();
    let inputs: Bytes = trace.tensors.iter().filter(|t| t.input).map(|t| t.bytes).sum();
    let (memory, input_size) = match compatible {
        false => (exact, inputs),
        true => quirks(trace, liveness, globals),
    };
    let mut text = String::from("active = [");
    text += &memory.iter().map(|m| format!("{},", m.active.0)).collect::<String>();
    text += "]\nactive_breakdown = [";
    let parts = |m: &KernelMemory| format!("({},{},{}),", m.inputs.0, m.weights.0, m.intermediates.0);
    text += &memory.iter().map(parts).collect::<String>();
    text += "]\ntotal = [";
    text += &memory.iter().map(|m| format!("{},", m.total.0)).collect::<String>();
    let _ = writeln!(text, "]\nglobal_weight = {}\ninput_size = {}", globals.0, input_size.0);
    text
}

/// KernelMemory as G10 counts it, and what it calls the input's size.
fn quirks(trace: &Trace, liveness: &[TensorLiveness], globals: Bytes) -> (Vec<KernelMemory>, Bytes) {
    let first = trace.tensors.first().map_or(Bytes::ZERO, |t| t.bytes);
    let single = |sum: Bytes, bytes: Bytes| Bytes((sum.0 as f32 + bytes.0 as f32) as u64);
    let mut memory = Vec::new();
    for (index, kernel) in trace.kernels.iter().enumerate() {
        let mut now = KernelMemory { total: globals + first, ..KernelMemory::default() };
        for (tensor, life) in trace.tensors.iter().zip(liveness) {
            let Some(birth) = life.birth else { continue };
            if birth <= index && index < life.death.unwrap_or(birth + 1) {
                now.total += tensor.bytes;
            }
        }
        for at in kernel.tensors() {
            let bytes = trace.tensors[at].bytes;
            now.active = single(now.active, bytes);
            let made = kernel.outputs.iter().any(|u| u.tensor == at);
            let part = match trace.tensors[at].global {
                _ if index == 0 && made => &mut now.inputs,
                true => &mut now.weights,
                false => &mut now.intermediates,
            };
            *part = single(*part, bytes);
        }
        memory.push(now);
    }
    (memory, first)
}

fn periods(trace: &Trace, liveness: &[TensorLiveness]) -> String {
    let (mut sizes, mut times, mut starts) = (String::new(), String::new(), String::new());
    for (tensor, life) in trace.tensors.iter().zip(liveness) {
        for period in &life.idle {
            let _ = write!(sizes, "{}, ", tensor.bytes.0);
            let _ = write!(times, "{}, ", stream(period.time.0));
            let _ = write!(starts, "{} ", period.start);
        }
    }
    format!("sd_size = [{sizes}]\nsd_time = [{times}]\n# {starts}")
}

/// A number as C++ streams print it: six significant digits, no zeros behind.
fn stream(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return if number == 0.0 { "0".into() } else { number.to_string() };
    }
    let scientific = format!("{number:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text.to_string(),
    };
    if (-4..6).contains(&exponent) {
        return trim(&format!("{number:.*}", (5 - exponent) as usize));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trim(digits), exponent.abs())
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_as_streams_do() {
        let cases = [
            (155066.0, "155066"),
            (16.83421, "16.8342"),
            (1201938.5, "1.20194e+06"),
            (125.0, "125"),
            (0.00012345678, "0.000123457"),
            (0.000012345, "1.2345e-05"),
            (999999.9, "1e+06"),
            (0.0, "0"),
        ];
        for (number, text) in cases {
            assert_eq!(stream(number), text);
        }
    }
}
