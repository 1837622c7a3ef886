//! Shardings of ONNX files (IR 11): plans written as such and read again, those of other tools, and what is wrong with a file.
//! The fixtures were written by `tests/data/sharding.py`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::common::process::{done, has_python, run};

const CLUSTER: &str = "[[server]]\nname = \"a\"\naddress = \"a:1\"\n[[server]]\nname = \"b\"\naddress = \"b:1\"\n\
                       [[link]]\nfrom = \"a\"\nto = \"b\"\nlatency = \"1us\"\nrate = \"100Gbit/s\"\nboth_ways = true\n";

fn data(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name).display().to_string()
}

/// The devices, as `--profile` and `--cluster` give them: two processors, whose `times` are in a profile of ONNX Runtime's.
fn devices(folder: &Path, times: &str) -> String {
    fs::write(folder.join("lab.toml"), CLUSTER).unwrap();
    format!("--cluster lab.toml --profile {times}=a/cpu --profile {times}=b/cpu")
}

fn json(folder: &Path, name: &str) -> serde_json::Value {
    serde_json::from_str(&fs::read_to_string(folder.join(name)).unwrap()).unwrap()
}

/// What a plan places and splits, without names, which differ between a model and its export.
fn decided(plan: &serde_json::Value) -> Vec<String> {
    let list = |key: &str| plan[key].as_array().cloned().unwrap_or_default();
    let groups =
        list("groups").into_iter().map(|group| format!("{} {} {}", group["id"], group["part"], group["strategy"]));
    let splits = list("splits").into_iter().map(|split| split.to_string());
    groups.chain(splits).collect()
}

/// The profile of the one model in a folder of profiles.
fn profile_in(folder: &Path) -> String {
    let entries = |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let of_model = entries(folder).into_iter().find(|path| path.is_dir()).unwrap();
    let mut tables = entries(&of_model).into_iter().map(|path| path.display().to_string());
    tables.find(|path| path.ends_with("-fused.csv") || path.ends_with("-op.csv")).unwrap()
}

/// Where a plan cuts, each once.
fn cuts(plan: &serde_json::Value) -> Vec<String> {
    let mut cuts: Vec<String> =
        plan["splits"].as_array().unwrap().iter().map(|split| split["cuts"].to_string()).collect();
    cuts.dedup();
    cuts
}

#[test]
fn a_plan_written_as_shardings_is_read_as_the_same_plan() {
    let folder = tempfile::tempdir().unwrap();
    let devices = devices(folder.path(), &data("ort/profile.json"));
    // A plan that splits all groups, and one that splits none.
    for (flags, is_split) in [("", true), ("--no-split --pin #1=b/cpu --pin #0=a/cpu", false)] {
        let plan = format!("plan {} {devices} {flags} --output plan.json", data("ort/model.onnx"));
        done(folder.path(), &plan);
        let (printed, said) = done(folder.path(), "export plan.json --format onnx --sharding --output sharded.onnx");
        assert!(said.is_empty() && printed.contains("2 devices (a/cpu, b/cpu), 8 operators placed"), "{printed}{said}");
        let (printed, _) = done(folder.path(), "inspect sharded.onnx");
        assert!(printed.contains("sharding     `edgecut`: 2 devices (a/cpu, b/cpu), 8 operators placed"), "{printed}");
        let again = format!("plan sharded.onnx {devices} --sharded --output again.json");
        done(folder.path(), &again);
        let (plan, again) = (json(folder.path(), "plan.json"), json(folder.path(), "again.json"));
        assert_eq!(plan["splits"].is_array(), is_split);
        assert_eq!(decided(&again), decided(&plan));
        done(folder.path(), "export again.json --format onnx --sharding --output again.onnx");
        done(folder.path(), &format!("plan again.onnx {devices} --sharded --output third.json"));
        assert_eq!(decided(&json(folder.path(), "third.json")), decided(&plan));
        if has_python("onnx") {
            let check = "import onnx, sys; onnx.checker.check_model(onnx.load(sys.argv[1]), full_check=True)";
            let output =
                Command::new("python3").args(["-c", check, "sharded.onnx"]).current_dir(folder.path()).output();
            let output = output.unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

#[test]
fn stages_are_numbered_where_several_operators_become_one() {
    let folder = tempfile::tempdir().unwrap();
    let model = data("ort/model.onnx");
    done(folder.path(), &format!("profile {model} --granularity op --budget 20ms --output profiles"));
    let devices = devices(folder.path(), &profile_in(&folder.path().join("profiles")));
    // A product and its bias are one Gemm in the file.
    let pins = "--no-split --pin nn.dense=b/cpu --pin nn.bias_add=a/cpu --pin nn.conv2d=a/cpu";
    done(folder.path(), &format!("plan {model} {devices} --granularity op {pins} --output plan.json"));
    let (_, said) = done(folder.path(), "export plan.json --format onnx --sharding --output sharded.onnx");
    assert!(said.contains("1 ONNX operators each compute several operators of the plan"), "{said}");
    let (printed, _) = done(folder.path(), "inspect sharded.onnx");
    assert!(printed.contains("pipeline stages"), "{printed}");
}

#[test]
fn shardings_of_another_tool_become_splits() {
    let folder = tempfile::tempdir().unwrap();
    let devices = devices(folder.path(), &data("ort/profile.json"));
    let good = data("sharding/good.onnx");
    done(folder.path(), &format!("plan {good} {devices} --sharded --output plan.json"));
    let plan = json(folder.path(), "plan.json");
    // Nodes of one name are distinguished by their results.
    done(folder.path(), &format!("plan {} {devices} --sharded --output names.json", data("sharding/names.onnx")));
    assert_eq!(decided(&json(folder.path(), "names.json")), decided(&plan));
    // The channels of the first convolution, and of the last product.
    assert_eq!(cuts(&plan), ["[0,4,8]", "[0,5,10]"], "{plan}");
    let on = |device: u64| {
        plan["groups"].as_array().unwrap().iter().filter(|group| group["strategy"]["device"] == device).count()
    };
    // A half of both and what joins the result; the other halves and all else.
    assert_eq!((on(0), on(1)), (3, 5), "{plan}");
}

#[test]
fn sums_and_replicas_of_another_tool_become_splits() {
    let folder = tempfile::tempdir().unwrap();
    let sums = data("sharding/sums.onnx");
    done(folder.path(), &format!("profile {sums} --budget 20ms --output profiles"));
    let devices = devices(folder.path(), &profile_in(&folder.path().join("profiles")));
    done(folder.path(), &format!("plan {sums} {devices} --sharded --output plan.json"));
    let plan = json(folder.path(), "plan.json");
    // Halves of 64 terms, two replicas, halves of 64 columns.
    assert_eq!(cuts(&plan), ["[0,32,64]", "[0,1,2]", "[0,32,64]"], "{plan}");
    done(folder.path(), "export plan.json --format onnx --sharding --output again.onnx");
    done(folder.path(), &format!("plan again.onnx {devices} --sharded --output again.json"));
    assert_eq!(decided(&json(folder.path(), "again.json")), decided(&plan));
}

#[test]
fn wrong_files_are_refused_with_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let devices = devices(folder.path(), &data("ort/profile.json"));
    for (name, why) in [
        ("axis", "node 0, Conv `conv1`: sharding of `w1`: axis 4 is out of range for rank 4"),
        ("shape", "node 0, Conv `conv1`: sharding of `w1`: axis 0 has 8 positions, not 16"),
        ("group", "node 0, Conv `conv1`: sharding of `x`: device 2 does not exist: the configuration has 2"),
        (
            "stage",
            "node 3, Add `add`: pipeline stage 0: input `c2` is computed in later stage 1, by node 2, Conv `conv2`",
        ),
        ("configuration", "node 7, Gemm `fc`: configuration `other` does not exist; the model has `two`"),
    ] {
        let file: PathBuf = data(&format!("sharding/{name}.onnx")).into();
        for line in [format!("inspect {}", file.display()), format!("plan {} {devices} --sharded", file.display())] {
            let (code, _, said) = run(folder.path(), &line);
            let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(code, Some(2), "{line}: {said}");
            assert!(said.contains(why), "{line}: {said}");
        }
        // The graph itself is whole.
        done(folder.path(), &format!("plan {} {devices} --output whole.json", file.display()));
        fs::remove_file(folder.path().join("whole.json")).unwrap();
    }
    // Shardings that fit the tensors, but are no plan.
    for (name, why) in [
        ("fused", "node 0, Conv `conv1`: this split of nn.conv2d does not match the operators that it is fused with"),
        ("cuts", "node 1, Relu `relu1`: metadata `edgecut.split`: not a valid split of nn.relu along axis 0"),
        ("replicas", "node 7, Gemm `fc`: its group cannot be split this way: group 4 has no axis"),
    ] {
        let file = data(&format!("sharding/{name}.onnx"));
        done(folder.path(), &format!("inspect {file}"));
        let line = format!("plan {file} {devices} --sharded");
        let (code, _, said) = run(folder.path(), &line);
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(code, Some(2), "{line}: {said}");
        assert!(said.contains(why), "{line}: {said}");
    }
    let own = data("ort/model.onnx");
    fs::write(folder.path().join("other.toml"), CLUSTER.replace("\"b\"", "\"c\"")).unwrap();
    let others = devices.replace("lab.toml", "other.toml").replace("b/cpu", "c/cpu");
    let good = data("sharding/good.onnx");
    for (line, why) in [
        (format!("plan {own} {devices} --sharded"), "the model is not an ONNX file with a device configuration"),
        (format!("plan {good} {others} --sharded"), "`two` has a/cpu, b/cpu; available: a/cpu, c/cpu"),
        (format!("plan {good} {devices} --sharded --no-split"), "--no-split"),
        (format!("export {own} --format onnx --sharding --output x.onnx"), "is for a plan as"),
    ] {
        let (code, _, said) = run(folder.path(), &line);
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(code, Some(2), "{line}: {said}");
        assert!(said.contains(why), "{line}: {said}");
    }
}
