//! `edgecut export plan.json --format llama-cpp`: the script of a decoder's plan.

use std::{fs, process::Command};

use crate::{
    common::process::{AgentProcess, cluster_of, done, run},
    decoder::decoder,
};

#[test]
fn a_plan_by_layers_is_a_script_of_llama_cpp() {
    let folder = tempfile::tempdir().unwrap();
    let agents: Vec<AgentProcess> =
        ["s0", "s1"].iter().map(|name| AgentProcess::start(name, "127.0.0.1:0", &[])).collect();
    fs::write(folder.path().join("lab.toml"), cluster_of(&agents)).unwrap();
    let plan = |output: &str| {
        format!(
            "plan {} --cluster lab.toml --context 32 --profile-budget 300ms --rehearse 0 --no-split --pin *layers.0*=s1/cpu \
             --pin *layers.1*=s0/cpu --pin *lm_head*={output}/cpu -q",
            decoder()
        )
    };
    done(folder.path(), &plan("s0"));
    let (script, _) = done(folder.path(), "export plan.json --format llama-cpp");
    for part in [
        "# s1/cpu 1 layer, s0/cpu 1 layer and the output.",
        "#   s1: rpc-server --host 0.0.0.0 --port 50052 --device CPU --threads 1",
        "--rpc 127.0.0.1:50052,127.0.0.1:50053 --device RPC0,RPC1",
        "--split-mode layer --tensor-split 1,2 ",
    ] {
        assert!(script.contains(part), "{part}: {script}");
    }
    let plan_text = fs::read_to_string(folder.path().join("plan.json")).unwrap();
    fs::write(folder.path().join("hostile.json"), plan_text.replacen("\"127.0.0.1:", "\"$(id):", 1)).unwrap();
    let (code, _, err) = run(folder.path(), "export hostile.json --format llama-cpp");
    assert!(code == Some(2) && err.contains("host names and IPv4 addresses"), "{err}");
    let (said, _) = done(folder.path(), "export plan.json --format llama-cpp --output run.sh");
    assert_eq!(said.trim(), "s1/cpu 1 layer, s0/cpu 1 layer and the output");
    assert_eq!(fs::read_to_string(folder.path().join("run.sh")).unwrap(), script);
    assert!(Command::new("sh").args(["-n", "run.sh"]).current_dir(folder.path()).status().unwrap().success());
    done(folder.path(), &plan("s1"));
    let (code, _, err) = run(folder.path(), "export plan.json --format llama-cpp");
    assert!(code == Some(2) && err.contains("where the last layer is"), "{err}");
    let (code, _, err) = run(folder.path(), &format!("export {} --format llama-cpp", decoder()));
    assert!(code == Some(2) && err.contains("are for a plan"), "{err}");
}
