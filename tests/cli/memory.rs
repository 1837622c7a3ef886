//! `edgecut memory` as people call it: what it prints, what it writes, and what it says of bad input.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Two branches that swell: one after the other they need less than side by side.
const NETWORK: &str = r#"{"tensors": [{"id": 0, "size": 64, "kind": "input"}, {"id": 1, "size": 6400, "kind": "act"},
  {"id": 2, "size": 6400, "kind": "act"}, {"id": 3, "size": 64, "kind": "act"}, {"id": 4, "size": 64, "kind": "act"},
  {"id": 5, "size": 64, "kind": "output"}],
 "ops": [{"name": "a", "kind": "Conv", "ins": [0], "outs": [1], "elementwise": false},
  {"name": "b", "kind": "Conv", "ins": [0], "outs": [2], "elementwise": false},
  {"name": "c", "kind": "Conv", "ins": [1], "outs": [3], "elementwise": false},
  {"name": "d", "kind": "Conv", "ins": [2], "outs": [4], "elementwise": false},
  {"name": "e", "kind": "Add", "ins": [3, 4], "outs": [5], "elementwise": true}]}"#;

/// A chain with a long skip, in DLMO's form: dropping `1` and making it again costs 1 µs.
const PATTERN: &str = r#"{"version": 7, "inputs": [0], "outputs": [5],
 "data": [{"id": 0, "size": 10}, {"id": 1, "size": 1000}, {"id": 2, "size": 10}, {"id": 3, "size": 1000},
  {"id": 4, "size": 10}, {"id": 5, "size": 10}],
 "code": [{"name": "f", "attr": {}, "ins": [0], "outs": [1], "workspace": 0, "time": 1.0},
  {"name": "g", "attr": {}, "ins": [1], "outs": [2], "workspace": 0, "time": 10.0},
  {"name": "f", "attr": {}, "ins": [2], "outs": [3], "workspace": 0, "time": 1.0},
  {"name": "g", "attr": {}, "ins": [3], "outs": [4], "workspace": 0, "time": 10.0},
  {"name": ".dealloc", "attr": {}, "ins": [], "outs": [2, 3], "workspace": 0, "time": 0},
  {"name": "h", "attr": {}, "ins": [1, 4], "outs": [5], "workspace": 0, "time": 10.0},
  {"name": ".dealloc", "attr": {}, "ins": [], "outs": [1, 4], "workspace": 0, "time": 0}]}"#;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name).display().to_string()
    }
}

fn edgecut(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_edgecut")).arg("memory").args(arguments).env("NO_COLOR", "1").output().unwrap()
}

fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn another_order_needs_less() {
    let folder = Folder::new();
    let network = folder.write("net.json", NETWORK);
    let found = json(&edgecut(&["place", &network, "--format", "json"]));
    assert_eq!(found["program_order_peak_bytes"], 12864);
    assert_eq!(found["peak_bytes"], 6528);
    assert_eq!(found["arena_bytes"], found["bound_peak_bytes"]);
}

#[test]
fn figures_stand_alone() {
    let folder = Folder::new();
    let network = folder.write("net.json", NETWORK);
    let figures = folder.path("figures");
    let place = figures.display().to_string();
    assert!(edgecut(&["place", &network, "--figures", &place, "--map"]).status.success());
    let page = std::fs::read_to_string(figures.join("memory.html")).unwrap();
    assert!(page.contains("<svg") && !page.contains("src=") && !page.contains("href="), "nothing is fetched");
    assert!(page.contains("class=\"inner\"") && page.contains("addEventListener(\"wheel\""), "the map zooms");
    // Every buffer is drawn and listed.
    assert_eq!(page.matches("<rect class=\"block").count(), 5);
    assert!(!std::fs::read_to_string(figures.join("arena.svg")).unwrap().contains("<script"));
    for file in ["arena.svg", "consumption.svg", "idle.svg", "sizes.svg"] {
        let svg = std::fs::read_to_string(figures.join(file)).unwrap();
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>"), "{file}");
    }
    let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(figures.join("trace.json")).unwrap()).unwrap();
    assert!(trace["traceEvents"].as_array().is_some_and(|events| events.len() > 5));
    let map = std::fs::read_to_string(figures.join("arena.txt")).unwrap();
    assert!(map.lines().all(|line| line.chars().count() <= 80));
    assert!(figures.join("memory_info.txt").exists());
}

#[test]
fn liveness_of_models_and_traces_is_reported() {
    let folder = Folder::new();
    let network = folder.write("net.json", NETWORK);
    let output = folder.path("liveness").display().to_string();
    let found = json(&edgecut(&["liveness", &network, "--output", &output, "--format", "json"]));
    assert_eq!((&found["kernels"], &found["tensors"], &found["peak_bytes"]), (&5.into(), &6.into(), &6528.into()));
    for file in
        ["liveness.csv", "idle.csv", "memory.csv", "kernels.config", "tensors.config", "run1_TensorPeriodLog.py"]
    {
        assert!(folder.path("liveness").join(file).exists(), "{file}");
    }
    let rows = edgecut(&["liveness", &network, "--format", "csv"]);
    let table = std::fs::read(folder.path("liveness/liveness.csv")).unwrap();
    assert_eq!(String::from_utf8_lossy(&rows.stdout), String::from_utf8_lossy(&table));

    let trace = "def forward(self, p0: \"f32[2, 8]\", p1: \"f32[2, 8]\"):\n    a: \"f32[2, 8]\" = torch.ops.aten.add.Tensor(p0, p1)\n    \
                 return (a,)\n";
    let trace = folder.write("fwd.py", trace);
    let times = folder.write("times.txt", "0 0.125 ms\n");
    let found = json(&edgecut(&["liveness", "--trace", &trace, "--times", &times, "--format", "json"]));
    assert_eq!((&found["kernels"], &found["tensors"]), (&1.into(), &3.into()));
}

#[test]
fn what_does_not_fit_goes_to_the_next_pool() {
    let folder = Folder::new();
    let arena = folder.write("arena.csv", "id,lower,upper,size\na,0,9,100\nb,0,3,60\nc,3,9,60\nd,1,2,500\n");
    let result = folder.path("out.csv");
    let pools = ["--pool", "sram=160B", "--pool", "dram"];
    let out = result.display().to_string();
    let found = json(&edgecut(&[&["pack", &arena, "--format", "json", "--output", &out][..], &pools].concat()));
    assert_eq!((&found[0]["arena_bytes"], &found[0]["buffers"]), (&160.into(), &3.into()));
    assert_eq!((&found[1]["pool"], &found[1]["arena_bytes"]), (&"dram".into(), &500.into()));
    let csv = std::fs::read_to_string(&result).unwrap();
    assert!(csv.contains("d,1,2,500,dram,0\n"), "{csv}");
    let full = edgecut(&["pack", &arena, "--pool", "sram=160B", "--pool", "dram=499B"]);
    assert_eq!(full.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&full.stderr).contains("1 buffers of 500 bytes"));
    assert_eq!(edgecut(&["pack", &arena, "--pool", "sram=much"]).status.code(), Some(2));
}

#[test]
fn what_is_written_is_said_and_links_are_drawn() {
    let folder = Folder::new();
    let network = folder.write("net.json", NETWORK);
    let place = folder.path("figures").display().to_string();
    let output = edgecut(&["place", &network, "--figures", &place, "--link", "pcie=12MB/s", "--capacity", "1MiB"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("memory.html (") && said.contains("arena.svg ("), "{said}");
    let page = std::fs::read_to_string(folder.path("figures/memory.html")).unwrap();
    for wanted in ["capacity 1.0 MiB", "sum of live bytes", "Alive at the peak", "0.0 us"] {
        assert!(page.contains(wanted), "{wanted}");
    }
    assert!(!page.contains("-0.0 us"));
    let bad = edgecut(&["place", &network, "--figures", &place, "--link", "fast"]);
    assert_eq!(bad.status.code(), Some(2));
}

#[test]
fn operators_are_fused_to_meta_operators() {
    let folder = Folder::new();
    let network = folder.write("net.json", NETWORK);
    let library = "[[pattern]]\nname = \"Swell\"\nquery = \"Conv->Conv\"\n";
    let patterns = folder.write("patterns.toml", library);
    let found = json(&edgecut(&["place", &network, "--fuse", &patterns, "--format", "json", "--align", "1"]));
    let fusion = &found["fusion"];
    assert_eq!(fusion["meta_operators"][0], serde_json::json!({"name": "Swell", "matches": 2, "operators": 4}));
    assert_eq!((&fusion["unfused_operators"], &fusion["fused_operators"]), (&5.into(), &3.into()));
    // 6400 bytes of scratch, the first result, and the second one in the input's bytes.
    for (figures, peak) in [("unfused", 6528), ("fused", 6528), ("without_scratch", 128)] {
        assert_eq!(fusion[figures]["peak_bytes"], peak, "{figures}");
    }
    assert_eq!((&found["peak_bytes"], &fusion["largest_scratch_bytes"]), (&6528.into(), &6400.into()));
    let cases: &[(&str, &str)] = &[
        (&library.replace("->Conv", "->>Conv"), "patterns.toml:3:16"),
        (&library.replace("query", "queries"), "unknown field `queries`"),
        (&library.replace("Conv->Conv", "Conv[odd]->Conv"), "[conditions.odd]"),
        ("", "no pattern"),
    ];
    for (text, what) in cases {
        let patterns = folder.write("patterns.toml", text);
        let output = edgecut(&["place", &network, "--fuse", &patterns]);
        let said = String::from_utf8_lossy(&output.stderr).replace("\n  │ ", " ");
        assert_eq!(output.status.code(), Some(2), "{text}: {said}");
        assert!(said.contains(what), "{text}: {said}");
    }
}

#[test]
fn the_built_in_library_finds_layers() {
    let model = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("models").join(name).display().to_string();
    for (name, layers) in [
        ("torch_bert_tiny.relay", &[("Attention", 2), ("GELU", 2), ("Linear", 13)][..]),
        ("torch_mobilenet_v2.relay", &[("ConvBnAct", 52), ("Linear", 1)]),
        ("resnet18.relay", &[("ConvBnAct", 9), ("BatchNormAct", 9)]),
    ] {
        let found = json(&edgecut(&["place", &model(name), "--fuse", "--format", "json", "--effort", "1"]));
        let uses = found["fusion"]["meta_operators"].as_array().unwrap();
        for (layer, matches) in layers {
            assert!(uses.iter().any(|u| u["name"] == *layer && u["matches"] == *matches), "{name} {layer}: {uses:?}");
        }
    }
}

#[test]
fn a_value_is_made_again_under_a_limit() {
    let folder = Folder::new();
    let pattern = folder.write("pattern.json", PATTERN);
    let result = folder.path("result.json").display().to_string();
    let flags = ["schedule", &pattern, "--limit", "60%", "--effort", "1", "--format", "json", "--output", &result];
    let found = json(&edgecut(&flags));
    assert_eq!((&found["original_peak_bytes"], &found["peak_bytes"]), (&2030.into(), &1030.into()));
    assert_eq!((&found["time_us"], &found["repeated"]), (&33.0.into(), &1.into()));
    let again = json(&edgecut(&["schedule", &result, "--limit", "100%", "--effort", "1", "--format", "json"]));
    assert_eq!(again["original_peak_bytes"], 1030);
    let configs = folder.write("configs", "pattern.json 60% # half\n\npattern.json 2KiB\n");
    let rows = edgecut(&["schedule", "--configs", &configs, "--effort", "1", "--format", "csv"]);
    let rows = String::from_utf8_lossy(&rows.stdout).into_owned();
    let rows: Vec<Vec<&str>> = rows.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.iter().map(Vec::len).collect::<Vec<_>>(), [17; 3], "the columns of MAGIS");
    assert_eq!(rows[1][..6], ["pattern.json", "1218", "", "1218", "", "0.6"]);
    assert_eq!(rows[1][7..12], ["False", "0.033", "1030", "0.033", "1030"]);
    assert_eq!((rows[0][12], rows[1][12], rows[1][14]), ("ori_is_prof_result", "False", "2030"));
    let spread = edgecut(&["schedule", &pattern, "--limit", "60%", "--seeds", "3", "--effort", "1", "--format", "csv"]);
    assert_eq!(String::from_utf8_lossy(&spread.stdout).lines().count(), 4);
}

#[test]
fn a_model_is_placed() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/resnet18.relay").display().to_string();
    let found = json(&edgecut(&["place", &model, "--format", "json", "--effort", "1"]));
    assert_eq!(found["arena_bytes"], found["bound_arena_bytes"]);
    assert!(found["parameter_bytes"].as_u64() > Some(40 << 20));
    let rows = edgecut(&["place", &model, "--format", "csv", "--effort", "1"]);
    assert!(rows.stdout.starts_with(b"buffer,kind,bytes,offset,birth,death\n"));
}

#[test]
fn what_cannot_be_is_said() {
    let folder = Folder::new();
    let (network, pattern) = (folder.write("net.json", NETWORK), folder.write("pattern.json", PATTERN));
    let broken = folder.write("broken.json", "{\"code\": [");
    let other = folder.write("other.json", "{\"rows\": []}");
    let lacking = folder.write("lacking.json", &PATTERN.replace(r#"{"id": 4, "size": 10},"#, ""));
    let late = folder.write("late.json", &NETWORK.replace(r#""ins": [1]"#, r#""ins": [4]"#));
    let configs = folder.write("configs", "pattern.json 60%\npattern.json\n");
    let cases: &[(&[&str], i32, &str)] = &[
        (&["schedule", &broken], 2, "EOF while parsing"),
        (&["schedule", &other], 2, "expected the form of DLMO"),
        (&["schedule", &lacking], 2, "tensor 4 is not in `data`"),
        (&["place", &late], 2, "tensor 4 is not made before it is read"),
        (&["schedule", "/nowhere.json"], 2, "/nowhere.json"),
        (&["schedule", &pattern, "--limit", "much"], 2, "much"),
        (&["schedule", &pattern, "--slowdown", "0.5"], 2, "factor of 1 or more"),
        (&["schedule", &pattern, "--limit", "1B", "--effort", "1"], 3, "no schedule needs less than"),
        (&["place", &network, "--capacity", "100B"], 3, "more than 100 B"),
        (&["schedule", "--configs", &configs, "--effort", "1"], 2, "configs:2"),
    ];
    for (arguments, code, what) in cases {
        let output = edgecut(arguments);
        let said = String::from_utf8_lossy(&output.stderr).replace("\n  │ ", " ");
        assert_eq!(output.status.code(), Some(*code), "{arguments:?}: {said}");
        assert!(said.contains(what), "{arguments:?}: {said}");
    }
}
