//! ONNX Runtime's own forms: profiles and memory of its sessions imported and planned with, plans as annotations for its placement.
//! The fixtures were written by onnxruntime 1.32.0 (`tests/data/ort.py`).

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::common::process::{done, has_python, model, run};

fn fixture(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/ort").join(name).display().to_string()
}

fn rows(text: &str) -> Vec<BTreeMap<String, String>> {
    csv::Reader::from_reader(text.as_bytes()).into_deserialize().map(Result::unwrap).collect()
}

/// The cells of two columns, row by row.
fn cells<'r>(rows: &'r [BTreeMap<String, String>], columns: [&str; 2]) -> Vec<[&'r str; 2]> {
    rows.iter().map(|row| columns.map(|column| row[column].as_str())).collect()
}

#[test]
fn kernels_of_a_session_become_medians_of_groups() {
    let folder = tempfile::tempdir().unwrap();
    let import = format!("profile {} --import {}", fixture("model.onnx"), fixture("profile.json"));
    let (printed, said) = done(folder.path(), &format!("{import} --format csv"));
    let found = rows(&printed);
    // Medians of 214, 42 and 40; of 82, 46 and 4162; of 15, 10 and 21 with reorders of 13, 6 and 9; …
    assert_eq!(
        cells(&found, ["layer", "time_us_median"]),
        [["conv1+relu1", "42.0"], ["conv2+add", "82.0"], ["pool", "28.0"], ["flat", "9.0"], ["fc", "16.0"]],
        "{printed}"
    );
    let ones = |column: &str, value: &str| found.iter().all(|row| row[column] == value);
    assert!(
        ones("n", "3") && ones("server", "ort") && ones("device", "cpu") && ones("engine", "onnxruntime"),
        "{printed}"
    );
    assert!(ones("granularity", "fused") && ones("mode", "in-situ") && ones("threads", "1"), "{printed}");
    assert_eq!((found[0]["time_us_min"].as_str(), found[0]["workspace_bytes"].as_str()), ("40.0", ""));
    for counted in [
        "3 of 6 kernels have names that ONNX Runtime derived, such as `r1_nchwc`",
        "1 of 6 kernels are not in the model, such as `ReorderOutput` (9.3 us of a run)",
        "operators have no kernel: ONNX Runtime fused them",
    ] {
        assert!(said.contains(counted), "{counted}: {said}");
    }
}

#[test]
fn memory_of_kernels_is_imported_alone_and_with_times() {
    let folder = tempfile::tempdir().unwrap();
    let (model, profile) = (fixture("model.onnx"), fixture("profile.json"));
    let memory = fixture("memory-unoptimised.csv");
    let (printed, _) = done(folder.path(), &format!("profile {model} --import {memory} --format csv"));
    let wanted = [["conv1+relu1", "65536"], ["conv2+add", "98304"], ["pool", "0"], ["flat", "0"], ["fc", "0"]];
    let found = rows(&printed);
    // The sum of conv2 and what is added to it is computed into a buffer of its own.
    assert_eq!(cells(&found, ["layer", "workspace_bytes"]), wanted, "{printed}");
    assert!(found.iter().all(|row| row["time_us_median"].is_empty() && row["note"].contains("no times")), "{printed}");
    for order in [[&memory, &profile], [&profile, &memory]] {
        let import = format!("profile {model} --import {} --import {} --format csv", order[0], order[1]);
        let found = rows(&done(folder.path(), &import).0);
        assert_eq!(cells(&found, ["layer", "workspace_bytes"]), wanted);
        assert!(found.iter().all(|row| row["n"] == "3" && !row["time_us_median"].is_empty()));
    }
    let (code, _, said) = run(folder.path(), &format!("plan {model} --profile {memory}"));
    assert_eq!(code, Some(2));
    assert!(said.contains("statistics of memory have no times") && said.contains("profile of ort/cpu"), "{said}");
}

/// A plan of the fixtures for a processor and a GPU of one host, which is as fast but for the first and the last group.
fn planned(folder: &Path, flags: &str) -> serde_json::Value {
    let (model, profile, memory) = (fixture("model.onnx"), fixture("profile.json"), fixture("memory.csv"));
    let plan = format!("plan {model} --profile {profile} --profile {memory} {flags} --output plan.json");
    done(folder, plan.replace("  ", " ").as_str());
    serde_json::from_str(&fs::read_to_string(folder.join("plan.json")).unwrap()).unwrap()
}

#[test]
fn a_plan_is_made_of_a_session_and_exported_as_its_settings() {
    let folder = tempfile::tempdir().unwrap();
    let plan = planned(folder.path(), "");
    assert_eq!(plan["predicted"]["latency_us"], 42.0 + 82.0 + 28.0 + 9.0 + 16.0);
    let (printed, said) = done(folder.path(), "export plan.json --format ort --output ort");
    assert!(
        printed.contains("session.layer_assignment_settings = cpu(=ort-cpu)") && said.is_empty(),
        "{printed}{said}"
    );
    let text = fs::read_to_string(folder.path().join("ort/session_options.json")).unwrap();
    assert_eq!(text, "{\n  \"session.layer_assignment_settings\": \"cpu(=ort-cpu)\"\n}\n");
    let memory = fs::read_to_string(folder.path().join("ort/memory.csv")).unwrap();
    assert!(
        memory.starts_with("#name,input_sizes,initializers_sizes,total_dynamic_sizes,total_temp_allocations\n"),
        "{memory}"
    );
    let import = "profile ort/model.onnx --import ort/memory.csv --format csv";
    let found = rows(&done(folder.path(), import).0);
    assert!(plan["groups"].as_array().unwrap().iter().all(|group| group["workspace_bytes"] == 0));
    // Where each operator has a kernel, a group has one buffer of 8 x 32 x 32 floats for each of its operators but the last.
    let found: Vec<&str> = found.iter().map(|row| row["workspace_bytes"].as_str()).collect();
    assert_eq!(found, ["32768", "65536", "0", "0", "0"]);
}

#[test]
fn what_annotations_cannot_say_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = "[[server]]\nname = \"a\"\naddress = \"a:1\"\n[[server]]\nname = \"b\"\naddress = \"b:1\"\n\
                   [[link]]\nfrom = \"a\"\nto = \"b\"\nlatency = \"1us\"\nrate = \"100Gbit/s\"\nboth_ways = true\n";
    fs::write(folder.path().join("lab.toml"), cluster).unwrap();
    let profile = fixture("profile.json");
    let plan = format!(
        "plan {} --profile {profile}=a/cpu --profile {profile}=b/gpu0 --cluster lab.toml --pin #1=b/gpu0 --pin #0=a/cpu \
         --pin #4=a/cpu --output plan.json",
        fixture("model.onnx")
    );
    done(folder.path(), &plan);
    let (printed, said) = done(folder.path(), "export plan.json --format ort --output ort");
    assert!(printed.contains("session.layer_assignment_settings = gpu(=b-gpu0); cpu(=a-cpu)"), "{printed}");
    assert!(said.contains("b is another server than a: ONNX Runtime places on one host"), "{said}");
    let model = fs::read(folder.path().join("ort/model.onnx")).unwrap();
    let count = |text: &[u8]| model.windows(text.len()).filter(|window| *window == text).count();
    assert!(
        count(b"layer_ann") == 8 && count(b"b-gpu0") >= 3 && count(b"a-cpu") >= 3,
        "{} {}",
        count(b"layer_ann"),
        count(b"b-gpu0")
    );
}

#[test]
fn files_that_are_wrong_are_refused_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let profile = fs::read_to_string(fixture("profile.json")).unwrap();
    let memory = fs::read_to_string(fixture("memory.csv")).unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("cut.json", &profile[..profile.len() / 2]);
    write("negative.json", &profile.replacen("\"dur\" :214", "\"dur\" :-214", 1));
    write("idle.json", &format!("{}\n]", profile.lines().take(3).collect::<Vec<_>>().join("\n").trim_end_matches(',')));
    write("size.csv", &memory.replacen("13152", "13152x", 1));
    write("short.csv", memory.lines().next().unwrap());
    write("other.csv", &memory.lines().take(1).chain(["gemm_1,1,2,3,4"]).collect::<Vec<_>>().join("\n"));
    let own = fixture("model.onnx");
    for (line, why) in [
        (format!("profile {own} --import cut.json"), "cut.json: the profile ends within its events, line"),
        (format!("profile {own} --import negative.json"), "`r1_nchwc_kernel_time`: `ts`"),
        (
            format!("profile {own} --import idle.json"),
            "idle.json: the profile has no times of kernels: run the session",
        ),
        (format!("profile {own} --import size.csv"), "`13152x` is not a size in bytes"),
        (format!("profile {own} --import short.csv"), "short.csv: it has no lines: run the session once"),
        (format!("profile {own} --import other.csv"), "none of its 1 kernels, such as `gemm_1`, is in the model"),
        (format!("profile {} --import {}", model("squeezenet_v1.1"), fixture("profile.json")), "none of its 6 kernels"),
        (format!("profile --import {}", fixture("profile.json")), "to be given as MODEL"),
        (format!("inspect {}", fixture("profile.json")), "this is a profile of ONNX Runtime's"),
        (format!("export {own} --format ort --output x"), "llama-cpp are for a plan"),
    ] {
        let (code, _, said) = run(folder.path(), &line);
        assert_eq!(code, Some(2), "{line}: {said}");
        assert!(said.replace("\n", " ").contains(why) || said.contains(why), "{line}: {said}");
    }
}

#[test]
fn onnx_runtime_reads_the_settings_and_its_figures_are_read_again() {
    if !has_python("numpy, onnxruntime") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    planned(folder.path(), "");
    done(folder.path(), "export plan.json --format ort --output ort");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ort_session.py");
    let arguments = [PathBuf::from("ort"), fixture("model.onnx").into(), PathBuf::from(".")];
    let output = Command::new("python3").arg(script).args(arguments).current_dir(folder.path()).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let import = "profile ort/model.onnx --import profile.json --import memory.csv --format csv";
    let found = rows(&done(folder.path(), import).0);
    assert_eq!(found.len(), 5);
    assert!(found.iter().all(|row| row["n"] == "3" && !row["workspace_bytes"].is_empty()), "{found:?}");
    done(folder.path(), "plan ort/model.onnx --profile profile.json --profile memory.csv --output again.json");
}
