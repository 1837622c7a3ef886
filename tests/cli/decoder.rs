//! Decoders: tokens that one device and plans on agents generate, and what is refused.

use std::{
    fs,
    path::Path,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use crate::common::process::{AgentProcess, cluster_of, edgecut, ending, metric, run, texts};

/// The folder of a decoder of 2 layers, as ONNX Runtime's model builder writes it.
pub fn decoder() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/decoder").display().to_string()
}

/// What ONNX Runtime generates greedily after 3, 5, 7, 9, 11.
const EXPECTED: [u64; 16] = [113, 74, 24, 78, 115, 70, 28, 36, 117, 113, 76, 33, 91, 65, 117, 113];

/// The value that `line` prints as JSON.
#[track_caller]
fn json(folder: &Path, line: &str) -> serde_json::Value {
    let (code, out, err) = run(folder, &format!("{line} --format json"));
    assert_eq!(code, Some(0), "{line}: {err}");
    serde_json::from_str(&out).unwrap()
}

fn tokens(generated: &serde_json::Value) -> Vec<u64> {
    serde_json::from_value(generated["tokens"].clone()).unwrap()
}

#[test]
fn one_device_generates_the_tokens_of_onnx_runtime() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("run {} --generate 16 --prompt-ids 3,5,7,9,11", decoder());
    // The prompt in one step, in steps of 2 with one token left, and token by token.
    for more in ["", " --prompt 2", " --prompt 1 --context 20"] {
        let generated = json(folder.path(), &format!("{line}{more}"));
        assert_eq!(tokens(&generated), EXPECTED, "{more}");
        assert_eq!((&generated["prompt_tokens"], &generated["exchanges"]), (&5.into(), &0.into()));
        assert!(
            generated["prefill_us"].as_f64().unwrap() > 0.0
                && generated["token_us"]["median_us"].as_f64().unwrap() > 0.0
        );
    }
    let drawn = |seed: u64| tokens(&json(folder.path(), &format!("{line} --top-k 50 --seed {seed}")));
    assert_eq!(drawn(1), drawn(1));
    assert_ne!(drawn(1), drawn(2));
}

#[test]
fn states_stay_on_the_agents_of_a_plan() {
    let folder = tempfile::tempdir().unwrap();
    let agents: Vec<AgentProcess> =
        ["s0", "s1"].iter().map(|name| AgentProcess::start(name, "127.0.0.1:0", &[])).collect();
    fs::write(folder.path().join("lab.toml"), cluster_of(&agents)).unwrap();
    let plan = format!(
        "plan {} --cluster lab.toml --context 32 --profile-budget 300ms --rehearse 0 --pin *layers.0*=s0/cpu --pin *layers.1*=s1/cpu -q",
        decoder()
    );
    let (code, _, err) = run(folder.path(), &plan);
    assert_eq!(code, Some(0), "{err}");
    let plan: serde_json::Value = serde_json::from_slice(&fs::read(folder.path().join("plan.json")).unwrap()).unwrap();
    assert_eq!(plan["model"]["states"].as_array().unwrap().len(), 4);
    let sent: Vec<&str> = plan["transfers"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert!(!sent.is_empty() && !sent.iter().any(|name| name.contains("past") || name.contains("present")), "{sent:?}");
    // Two caches of 4096 bytes on each, each with its next content.
    for device in plan["devices"].as_array().unwrap() {
        assert_eq!(device["memory"]["state_bytes"], 4 * 4096, "{device}");
    }
    // A run is the first step of a sequence, whose logits are compared with those of one device.
    let runs = json(folder.path(), "run plan.json --repeat 3 --throughput");
    assert!(!runs["interval_us"].is_null(), "sequences overlap: {runs}");
    let compared = &runs["outputs"];
    assert_eq!((&compared["elements"], &compared["elements_beyond_tolerance"]), (&128.into(), &0.into()));
    let generated = json(folder.path(), "run plan.json --generate 16 --prompt-ids 3,5,7,9,11");
    assert_eq!(tokens(&generated), EXPECTED);
    assert_eq!(generated["is_equal"], true);
    // The prompt in one step, and in others.
    for more in ["--prompt 2", "--prompt 4", "--prompt 1", "--prompt 6"] {
        let generated = json(folder.path(), &format!("run plan.json --generate 16 --prompt-ids 3,5,7,9,11 {more}"));
        assert_eq!((tokens(&generated), &generated["is_equal"]), (EXPECTED.to_vec(), &true.into()), "{more}");
    }
    // A notice says so where the plan does not read it in longer steps.
    let (code, _, err) = run(folder.path(), "run plan.json --generate 2 --prompt-ids 3,5,7,9,11");
    assert!(code == Some(0) && !err.contains("token by token"), "{err}");
    let (code, _, err) = run(folder.path(), "run plan.json --prompt 2");
    assert_eq!(code, Some(2), "{err}");
    // A cache of 32 tokens has 2 heads of 16 numbers: 4096 bytes, and there are four.
    let bytes = generated["exchanged_bytes"].as_u64().unwrap();
    assert!(generated["exchanges"].as_u64().unwrap() > 0 && bytes < 4096, "{bytes} bytes");
    // Another sequence begins without the states of this one.
    assert_eq!(tokens(&json(folder.path(), "run plan.json --generate 16 --prompt-ids 3,5,7,9,11")), EXPECTED);
    let (code, _, err) = run(folder.path(), "run plan.json --generate 29 --prompt-ids 3,5,7,9,11");
    assert_eq!(code, Some(2));
    assert!(err.contains("it has 32"), "{err}");
    let (code, _, err) = run(folder.path(), "run plan.json --generate 2 --prompt-ids 3 --context 64");
    assert_eq!(code, Some(2), "{err}");
}

#[test]
fn several_sequences_go_through_a_plan_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let agents: Vec<AgentProcess> =
        ["s0", "s1"].iter().map(|name| AgentProcess::start(name, "127.0.0.1:0", &[])).collect();
    fs::write(folder.path().join("lab.toml"), cluster_of(&agents)).unwrap();
    let plan = format!(
        "plan {} --cluster lab.toml --context 32 --profile-budget 300ms --objective throughput --rehearse 1 --no-split \
         --pin *layers.0*=s0/cpu --pin *layers.1*=s1/cpu",
        decoder()
    );
    let planned = json(folder.path(), &plan);
    let in_flight = planned["predicted"]["in_flight"].as_u64().unwrap();
    assert!(in_flight > 1, "{planned}");
    // Two caches of a layer, 4096 bytes each, for each sequence: of all but one in the arena.
    for device in planned["devices"].as_array().unwrap() {
        let arena = device["memory"]["arena_bytes"].as_u64().unwrap();
        assert!(arena >= (in_flight - 1) * 2 * 4096, "{device}");
    }
    let one = |ids: &str| tokens(&json(folder.path(), &format!("run {} --generate 16 --prompt-ids {ids}", decoder())));
    let others = [one("20,21"), one("1,2,3,4,5,6,7")];
    assert_ne!(others[0], others[1]);
    let prompts = "--prompt-ids 3,5,7,9,11 --prompt-ids 20,21 --prompt-ids 1,2,3,4,5,6,7";
    // All at a time; more than there are prompts; one after another; two at a time, with longer and shorter steps for prompts.
    for (more, at_a_time, count) in [
        ("", in_flight.min(3), 3),
        ("--sequences 5", 5, 5),
        ("--sequences 1", 1, 3),
        ("--sequences 2 --prompt 3", 2, 3),
    ] {
        let generated = json(folder.path(), &format!("run plan.json --generate 16 {prompts} {more}"));
        assert_eq!(generated["at_a_time"], at_a_time, "{more}");
        let sequences = generated["sequences"].as_array().unwrap();
        assert_eq!(sequences.len(), count, "{more}");
        for (number, sequence) in sequences.iter().enumerate() {
            let expected = [&EXPECTED[..], &others[0], &others[1]][number % 3];
            assert_eq!((&tokens(sequence)[..], &sequence["is_equal"]), (expected, &true.into()), "{more} {number}");
        }
        assert!(generated["tokens_per_s"].as_f64().unwrap() > 0.0);
        assert_eq!(generated["predicted_tokens_per_s"].is_number(), at_a_time == in_flight && at_a_time > 1, "{more}");
    }
    // Draws of each sequence have their own seed.
    let drawn = json(folder.path(), "run plan.json --generate 16 --prompt-ids 3,5,7 --sequences 2 --top-k 50");
    let drawn = drawn["sequences"].as_array().unwrap();
    assert_ne!(tokens(&drawn[0]), tokens(&drawn[1]));
    let (code, out, err) = run(folder.path(), &format!("run plan.json --generate 4 {prompts} --sequences 3"));
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("3 sequences in ") && out.contains("3 at a time: 12 tokens"), "{out}");
}

#[test]
fn attention_is_split_over_agents_with_its_caches() {
    let folder = tempfile::tempdir().unwrap();
    // So slow that transfers take little, and attention most of a step.
    let flags = ["--dilate".to_string(), "1000".to_string()];
    let agents: Vec<AgentProcess> =
        ["s0", "s1"].iter().map(|name| AgentProcess::start(name, "127.0.0.1:0", &flags)).collect();
    let link = "[[link]]\nfrom = \"s0\"\nto = \"s1\"\nboth_ways = true\nlatency = \"1us\"\nrate = \"10Gbit/s\"\n";
    fs::write(folder.path().join("lab.toml"), cluster_of(&agents) + link).unwrap();
    let (code, _, err) =
        run(folder.path(), &format!("profile {} --cluster lab.toml --context 32 --budget 600ms -q", decoder()));
    assert_eq!(code, Some(0), "{err}");
    // By one profile, both are as fast: what disturbs one of them does not decide the plan.
    let is_of_first = |path: &String| path.contains("s0-cpu") && path.ends_with("fused.csv");
    let profile = files_in(&folder.path().join("profiles")).into_iter().find(is_of_first).unwrap();
    let plan = format!(
        "plan {} --cluster lab.toml --context 32 --profile {profile}=s0/cpu --profile {profile}=s1/cpu --rehearse 0 --budget 2000 -q",
        decoder()
    );
    let (code, _, err) = run(folder.path(), &plan);
    assert_eq!(code, Some(0), "{err}");
    let path = folder.path().join("plan.json");
    let mut plan: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let states: Vec<String> = serde_json::from_value(plan["states"].clone()).unwrap();
    assert_eq!(plan["model"]["states"].as_array().unwrap().len(), 4);
    let halves =
        ["past_key_values.1.key[1:0..1]=present.1.key[0..1]", "past_key_values.1.key[1:1..2]=present.1.key[1..2]"];
    assert!(halves.iter().all(|half| states.iter().any(|state| state == half)), "{states:?}");
    // Each has a head of every cache, twice.
    for device in plan["devices"].as_array().unwrap() {
        assert_eq!(device["memory"]["state_bytes"], 4 * 4096, "{device}");
    }
    let sent: Vec<&str> = plan["transfers"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert!(!sent.iter().any(|name| name.contains("past") || name.contains("present")), "{sent:?}");
    for more in ["", " --prompt 2", " --prompt 1"] {
        let generated = json(folder.path(), &format!("run plan.json --generate 16 --prompt-ids 3,5,7,9,11{more}"));
        assert_eq!((tokens(&generated), &generated["is_equal"]), (EXPECTED.to_vec(), &true.into()), "{more}");
    }
    let compared = &json(folder.path(), "run plan.json --repeat 2")["outputs"];
    assert_eq!((&compared["elements"], &compared["elements_beyond_tolerance"]), (&128.into(), &0.into()));
    // States that do not match the splits.
    plan["states"] = plan["model"]["states"].clone();
    fs::write(&path, plan.to_string()).unwrap();
    for line in
        ["run plan.json", "run plan.json --generate 2 --prompt-ids 3", "export plan.json --format onnx --output m.onnx"]
    {
        let (code, _, err) = run(folder.path(), line);
        assert_eq!(code, Some(2), "{line}: {err}");
        assert!(
            err.replace('│', " ").split_whitespace().collect::<Vec<_>>().join(" ").contains("make the plan again"),
            "{line}: {err}"
        );
    }
}

#[test]
fn plans_say_when_the_first_token_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--dilate".to_string(), "20".to_string()];
    let agents: Vec<AgentProcess> =
        ["s0", "s1"].iter().map(|name| AgentProcess::start(name, "127.0.0.1:0", &flags)).collect();
    fs::write(folder.path().join("lab.toml"), cluster_of(&agents)).unwrap();
    let plan = format!("plan {} --cluster lab.toml --context 40 --profile-budget 300ms --budget 2000", decoder());
    let ids = (1..=20).map(|id| id.to_string()).collect::<Vec<_>>().join(",");
    for (more, is_optimised) in [
        ("--rehearse 0", false),
        ("--rehearse 0 --objective first-token", true),
        ("--rehearse 1", false),
        ("--rehearse 1 --objective first-token --first-token 60m", true),
    ] {
        let planned = json(folder.path(), &format!("{plan} {more} --prompt 20"));
        let prefill = &planned["prefill"];
        assert_eq!((&prefill["prompt"], &prefill["step"]), (&20.into(), &20.into()), "{more}");
        assert_eq!(prefill["step_us"], prefill["time_us"], "{more}");
        let of = |value: &serde_json::Value| value.as_f64().unwrap_or_else(|| panic!("{more}: {value}"));
        let first = of(&prefill["time_us"]);
        assert!(first > 0.0, "{more}");
        assert_eq!(planned["objective"], "latency");
        match is_optimised {
            true => assert!((0.0..=first * 1.000_001).contains(&of(&prefill["bound_us"])), "{more}: {prefill}"),
            false => assert_eq!(prefill["bound_us"], serde_json::Value::Null),
        }
        assert_eq!(model_step(&planned), 1, "{more}");
        let generated = json(folder.path(), &format!("run plan.json --generate 8 --prompt-ids {ids}"));
        assert_eq!(generated["is_equal"], true, "{more}");
        assert_eq!(generated["predicted"]["prefill_us"], prefill["time_us"], "{more}");
        assert_eq!(generated["predicted"]["token_us"], planned["predicted"]["latency_us"], "{more}");
        // Of steps of 5 tokens the plan says nothing.
        let generated = json(folder.path(), &format!("run plan.json --generate 8 --prompt-ids {ids} --prompt 5"));
        assert_eq!(generated["predicted"].as_object().unwrap().keys().collect::<Vec<_>>(), ["token_us"], "{more}");
    }
    // Steps of both lengths keep their profiles.
    let rows = |folder: &Path| {
        let is_profile = |path: &String| path.contains("isolated-fused") && !path.contains(".summary.");
        let files = files_in(&folder.join("profiles")).into_iter().filter(is_profile);
        let count = |path: String| fs::read_to_string(path).unwrap().lines().count();
        files.map(count).collect::<Vec<_>>()
    };
    assert_eq!(rows(folder.path()).len(), 4);
    let (code, out, err) = run(folder.path(), &format!("{plan} --estimate --prompt 20 --objective first-token"));
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(rows(folder.path()).iter().all(|rows| *rows > 10), "{:?}", rows(folder.path()));
    let (code, out, err) = run(folder.path(), &format!("{plan} --rehearse 0 --prompt 20 --objective first-token"));
    assert!(code == Some(0) && out.contains("first token after a prompt of 20, in steps of 20"), "{out}{err}");
    assert!(out.contains("against a bound of"), "{out}");
    for (more, exit, part) in [
        ("--prompt 20 --first-token 1us", 3, "to the first token after a prompt of 20 tokens"),
        ("--prompt 20 --objective first-token --latency 1us", 3, "--latency"),
        ("--prompt 20 --objective first-token --advise", 2, "--advise"),
        ("--objective first-token", 2, "--prompt"),
        ("--first-token 1s", 2, "--prompt"),
        ("--prompt 41", 2, "a context of 40"),
        ("--prompt 4 --pareto", 2, "--pareto"),
    ] {
        let (code, _, err) = run(folder.path(), &format!("{plan} --rehearse 0 {more}"));
        let said = err.replace('│', " ").split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(code, Some(exit), "{more}: {said}");
        assert!(said.contains(part), "{more}: {said}");
    }
    let profile = format!("profile {} --context 40 --budget 300ms --output alone", decoder());
    let (code, _, err) = run(folder.path(), &profile);
    assert_eq!(code, Some(0), "{err}");
    let is_table = |path: &String| path.contains("isolated") && !path.contains(".summary.");
    let table = files_in(&folder.path().join("alone")).into_iter().find(is_table).unwrap();
    for (more, want) in [("", 0), (" --prompt 4", 2)] {
        let recorded = format!("plan {} --context 40{more} --profile {table}", decoder());
        let (code, _, err) = run(folder.path(), &recorded);
        assert_eq!(code, Some(want), "{recorded}: {err}");
        assert!(want == 0 || err.contains("profiles that are files"), "{err}");
    }
}

/// The paths of all files in `folder`.
fn files_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files =
        |path: std::path::PathBuf| if path.is_dir() { files_in(&path) } else { vec![path.display().to_string()] };
    entries.flat_map(files).collect()
}

/// The tokens of the step that a plan is for.
fn model_step(plan: &serde_json::Value) -> u64 {
    let bound = plan["model"]["bind_dims"].as_array().unwrap().iter().map(|dim| dim.as_str().unwrap());
    let step = bound.filter_map(|dim| dim.strip_prefix("sequence_length=")).next().unwrap();
    step.parse().unwrap()
}

#[test]
fn a_sequence_goes_on_when_an_agent_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    // So slow that there is time to kill an agent.
    let flags = ["--dilate".to_string(), "1000".to_string()];
    let first = AgentProcess::start("s0", "127.0.0.1:0", &flags);
    let (second, metrics) = AgentProcess::start_watched("s1", "127.0.0.1:0", &flags);
    let mut agents = [first, second];
    fs::write(folder.path().join("lab.toml"), cluster_of(&agents)).unwrap();
    let plan = "--cluster lab.toml --context 64 --profile-budget 300ms --rehearse 0 --budget 2000 -q";
    let (code, _, err) = run(folder.path(), &format!("plan {} {plan}", decoder()));
    assert_eq!(code, Some(0), "{err}");
    let plan: serde_json::Value = serde_json::from_slice(&fs::read(folder.path().join("plan.json")).unwrap()).unwrap();
    assert!(plan["devices"].as_array().unwrap().iter().all(|device| !device["order"].as_array().unwrap().is_empty()));
    let mut generation = edgecut(folder.path());
    generation.args("run plan.json --generate 40 --prompt-ids 3,5,7,9,11 --replan --format json".split(' '));
    let running = generation.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The prompt takes five steps at most.
    let begin = Instant::now();
    while metric(&metrics, "edgecut_inferences_total").unwrap_or_default() < 8.0 {
        assert!(begin.elapsed() < Duration::from_secs(120), "it does not run");
        thread::sleep(Duration::from_millis(5));
    }
    agents[1].kill();
    let (code, out, err) = texts(ending(Duration::from_secs(240), running));
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("agent s1") && err.contains("tokens left, on s0/cpu"), "{err}");
    let generated: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((tokens(&generated).len(), &generated["is_equal"]), (40, &true.into()));
    assert_eq!((&tokens(&generated)[..16], &generated["exchanges"]), (&EXPECTED[..], &0.into()));
    let (code, _, err) = run(folder.path(), "run plan.json --generate 4 --prompt-ids 3 --no-replan");
    assert_eq!(code, Some(1), "{err}");
}

#[test]
fn what_does_not_generate_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let model = decoder();
    for (name, content) in
        [("broken", r#"{"model": {}}"#), ("elsewhere", r#"{"model": {"decoder": {"filename": "../model.onnx"}}}"#)]
    {
        fs::create_dir(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name).join("genai_config.json"), content).unwrap();
    }
    let relay = crate::common::process::model("squeezenet_v1.1");
    for (line, part) in [
        (format!("run {model} --generate 4"), "--prompt-ids"),
        (format!("run {model} --generate 0 --prompt-ids 1"), "at least one token"),
        (format!("run {model} --generate 4 --prompt-ids 1 --repeat 2"), "--repeat"),
        (format!("run {model} --generate 4 --prompt-ids 1 --context 65"), "up to 64 tokens"),
        (format!("run {model} --generate 4 --prompt-ids 1,2,3 --context 5"), "it has 5"),
        (format!("run {model} --generate 4 --prompt-ids 1 --state x=logits"), "no input `x`"),
        (format!("run {model} --generate 4 --prompt-ids 1 --state input_ids=logits"), "float32[1,1,128]"),
        (format!("run {model} --generate 4 --prompt-ids 1 --sequences 2"), "one sequence at a time"),
        (format!("run {model} --generate 4 --prompt-ids 1,x"), "`x` is not the number of a token"),
        (format!("plan {relay} --prompt 4 --estimate"), "decoders in ONNX"),
        (format!("run {relay} --generate 4 --prompt-ids 1"), "decoders in ONNX"),
        (format!("run {model} --generate 4 --prompt-ids 1 --prompt 0"), "at least one token"),
        (format!("run {model} --generate 4 --prompt-ids 128"), "no token 128"),
        ("run . --generate 4 --prompt-ids 1".to_string(), "genai_config.json"),
        ("inspect broken".to_string(), "missing field"),
        ("inspect elsewhere".to_string(), "in the same folder"),
        ("inspect .".to_string(), "genai_config.json"),
    ] {
        let (code, _, err) = run(folder.path(), &line);
        let said = err.replace('│', " ").split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(code, Some(2), "{line}: {said}");
        assert!(said.contains(part), "{line}: `{part}` is not in: {said}");
    }
}

/// What ONNX Runtime generates greedily after 3, 5, 7, 9, 11 with the models of tests/data/appended, with caches that grow.
const APPENDED: [u64; 16] = [5, 55, 40, 32, 51, 25, 63, 59, 27, 61, 27, 34, 26, 28, 45, 26];

fn appended(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/appended/{name}.onnx")).display().to_string()
}

#[test]
fn caches_to_which_a_step_appends_have_a_fixed_length() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["llama", "positions_of_mask", "concat_then_slice", "slice_then_concat", "step_of_one", "top_left"] {
        let line = format!("run {} --generate 16 --prompt-ids 3,5,7,9,11", appended(name));
        for more in ["", " --prompt 2", " --prompt 1", " --context 20", " --context 40"] {
            if name == "top_left" && more == " --prompt 2" {
                continue;
            }
            let (code, out, err) = run(folder.path(), &format!("{line}{more} --format json"));
            assert_eq!(code, Some(0), "{name}{more}: {err}");
            let generated: serde_json::Value = serde_json::from_str(&out).unwrap();
            assert_eq!(tokens(&generated), APPENDED, "{name}{more}");
            assert!(!err.contains("not checked"), "{name}{more}: {err}");
            // Steps of several tokens that padding makes wrong are not used.
            assert_eq!(err.contains("token by token"), name == "top_left" && more != " --prompt 1", "{more}: {err}");
        }
    }
    let agents: Vec<AgentProcess> =
        ["s0", "s1"].iter().map(|name| AgentProcess::start(name, "127.0.0.1:0", &[])).collect();
    fs::write(folder.path().join("lab.toml"), cluster_of(&agents)).unwrap();
    for name in ["llama", "top_left"] {
        let plan = format!(
            "plan {} --cluster lab.toml --context 32 --profile-budget 300ms --rehearse 0 --no-split --pin *layers.0*=s0/cpu \
             --pin *layers.1*=s1/cpu -q",
            appended(name)
        );
        let (code, _, err) = run(folder.path(), &plan);
        assert_eq!(code, Some(0), "{err}");
        let plan: serde_json::Value =
            serde_json::from_slice(&fs::read(folder.path().join("plan.json")).unwrap()).unwrap();
        assert_eq!(plan["model"]["states"].as_array().unwrap().len(), 4);
        let transfers = plan["transfers"].as_array().unwrap();
        let sent: Vec<&str> = transfers.iter().map(|transfer| transfer["name"].as_str().unwrap()).collect();
        let is_state = |name: &&str| name.contains("past") || name.contains("present");
        assert!(!sent.is_empty() && !sent.iter().any(is_state), "{sent:?}");
        for more in ["", " --prompt 1", " --prompt 3"] {
            if name == "top_left" && more == " --prompt 3" {
                continue;
            }
            let generated = json(folder.path(), &format!("run plan.json --generate 16 --prompt-ids 3,5,7,9,11{more}"));
            assert_eq!((tokens(&generated), &generated["is_equal"]), (APPENDED.to_vec(), &true.into()), "{name}{more}");
        }
    }
}

#[test]
fn caches_that_cannot_be_padded_on_the_left_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let generate = "--generate 16 --prompt-ids 3,5,7,9,11";
    for (line, part) in [
        (format!("run {} {generate}", appended("positions_of_cache")), "depend on the length of the KV cache"),
        (
            format!("run {} {generate} --prompt 1", appended("positions_of_cache")),
            "depend on the length of the KV cache",
        ),
        (format!("run {} {generate} --prompt 2", appended("top_left")), "with padding, its logits differ by"),
        (format!("run {} {generate}", appended("without_mask")), "no operator reads input `attention_mask`"),
        (
            format!(
                "run {} {generate} --context 20 --bind-dim past_sequence_length=19 --prompt 1",
                appended("tokens_first")
            ),
            "the input is float32[1,19,2,8], but the output is float32[1,20,2,8]",
        ),
        (format!("profile {}", appended("llama")), "set the length of its KV cache with --context"),
    ] {
        let (code, _, err) = run(folder.path(), &line);
        let said = err.replace('│', " ").split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(code, Some(2), "{line}: {said}");
        assert!(said.contains(part), "{line}: `{part}` is not in: {said}");
    }
    // A plan's run is refused before anything is deployed.
    let agents = [AgentProcess::start("s0", "127.0.0.1:0", &[])];
    fs::write(folder.path().join("lab.toml"), cluster_of(&agents)).unwrap();
    let plan =
        format!("plan {} --cluster lab.toml --context 32 --profile-budget 300ms -q", appended("positions_of_cache"));
    let (code, _, err) = run(folder.path(), &plan);
    assert_eq!(code, Some(0), "{err}");
    let (code, out, err) = run(folder.path(), &format!("run plan.json {generate}"));
    assert_eq!(code, Some(2), "{out} {err}");
    assert!(err.contains("KV cache"), "{err}");
}

#[test]
fn caches_of_a_model_that_is_no_decoder_keep_their_length() {
    let folder = tempfile::tempdir().unwrap();
    let (model, exported) = (appended("llama"), folder.path().join("exported.onnx").display().to_string());
    let sizes = "--bind-dim batch_size=1 --bind-dim sequence_length=1 --bind-dim past_sequence_length=4 --bind-dim attention_mask:1=5";
    for line in [
        format!("inspect {model} {sizes}"),
        format!("export {model} {sizes} --format onnx --output {exported}"),
        format!("inspect {exported}"),
    ] {
        let (code, out, err) = run(folder.path(), &line);
        assert_eq!(code, Some(0), "{line}: {err}");
        assert!(
            !line.starts_with("inspect") || out.contains("past_key_values.0.key float32[1,2,4,8]"),
            "{line}: {out}"
        );
    }
}
