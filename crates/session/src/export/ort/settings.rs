//! Annotations and session options of ONNX Runtime that place a plan's operators, and what they cannot say of it.

use std::collections::BTreeMap;

use edgecut_graph::units::Bytes;
use edgecut_plan::{DeviceId, Plan, file::DevicePlan};

/// Where ONNX Runtime looks for the annotation of an operator: a key of the metadata of its entry in the model.
pub(super) const ANNOTATION: &str = "layer_ann";

/// The option that gives annotations to devices: `device(=annotation, …); …`.
pub(super) const ASSIGNMENT: &str = "session.layer_assignment_settings";

/// The option that limits the memory of a CUDA device: kibibytes and a file with statistics of memory, in the model's folder.
pub(super) const BUDGET: &str = "session.resource_cuda_partitioning_settings";

/// A kind of device, as ONNX Runtime calls it.
pub(super) fn kind(device: &DevicePlan) -> &'static str {
    if device.device.starts_with("gpu") { "gpu" } else { "cpu" }
}

/// The annotations of a plan's devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Annotations(BTreeMap<DeviceId, String>);

impl Annotations {
    /// `server-device` for each device that computes anything, and for the sink. Rules separate annotations by commas,
    /// semicolons and parentheses, and a comma also separates columns of statistics, so only letters, digits, `-` and `_` are kept.
    pub fn of(plan: &Plan) -> Annotations {
        let mut annotations: BTreeMap<DeviceId, String> = BTreeMap::new();
        for (at, device) in plan.devices.iter().enumerate() {
            let id = DeviceId(at as u32);
            if device.order.is_empty() && id != plan.sink {
                continue;
            }
            let name = format!("{}-{}", device.server, device.device);
            let name: String =
                name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
            let is_taken = annotations.values().any(|other| *other == name);
            annotations.insert(id, if is_taken { format!("{name}-{at}") } else { name });
        }
        Annotations(annotations)
    }

    /// The annotation of what `device` computes.
    pub fn of_device(&self, device: DeviceId) -> String {
        self.0.get(&device).cloned().unwrap_or_default()
    }

    /// The value of [`ASSIGNMENT`]: exact matches, since a rule without `=` matches all that it begins.
    pub fn rules(&self, plan: &Plan) -> String {
        let of_kind = |wanted: &str| -> Option<String> {
            let is_wanted =
                |id: &DeviceId| plan.devices.get(id.0 as usize).is_some_and(|device| kind(device) == wanted);
            let names: Vec<String> =
                self.0.iter().filter(|(id, _)| is_wanted(id)).map(|(_, name)| format!("={name}")).collect();
            (!names.is_empty()).then(|| format!("{wanted}({})", names.join(", ")))
        };
        let rules: Vec<String> = ["gpu", "cpu"].into_iter().filter_map(of_kind).collect();
        rules.join("; ")
    }
}

/// The value of [`BUDGET`], if a GPU of `plan` has a limit: the smallest of them, with the statistics in `file`.
pub(super) fn budget(plan: &Plan, file: &str) -> Option<String> {
    let of_gpus = plan.used_devices().filter(|device| kind(device) == "gpu");
    let limit = of_gpus.filter_map(|device| device.memory_limit_bytes).min()?;
    Some(format!("{},{file}", limit.0 / 1024))
}

/// What the annotations cannot say of `plan`, whose operators are divided among several devices `divided` times.
pub(super) fn notices(plan: &Plan, divided: usize) -> Vec<String> {
    let mut notices = Vec::new();
    let host = plan.devices.get(plan.source.0 as usize).map_or("", |device| &device.server);
    let groups = |server: &str| -> usize {
        plan.used_devices().filter(|device| device.server == server).map(|device| device.order.len()).sum()
    };
    let mut others: Vec<&str> =
        plan.used_devices().map(|device| device.server.as_str()).filter(|server| *server != host).collect();
    others.sort_unstable();
    others.dedup();
    for server in others {
        let count = groups(server);
        notices.push(format!(
            "{server} is another server than {host}: ONNX Runtime places on one host, so the {count} groups of {server} go to the kind of \
             device that they have in the plan, on {host}; option `format=onnx` writes a model for each stage of each server"
        ));
    }
    let gpus: Vec<String> = plan
        .used_devices()
        .filter(|device| kind(device) == "gpu")
        .map(|device| device.device_name().to_string())
        .collect();
    if gpus.len() > 1 {
        let names = gpus.join(", ");
        notices.push(format!("{names} become one GPU: a session of ONNX Runtime has one for each execution provider"));
    }
    if divided > 0 {
        let noun = if divided == 1 { "group is" } else { "groups are" };
        notices.push(format!(
            "{divided} {noun} split over several devices: annotations place whole operators, so each goes to the device with the \
             most of its time"
        ));
    }
    if !plan.schedules.is_empty() {
        let limits = plan.used_devices().filter_map(|device| device.memory_limit_bytes).min().unwrap_or(Bytes::ZERO);
        notices.push(format!(
            "the plan computes in parts to keep its memory limits (the smallest is {limits}): annotations cannot say that, so that \
             ONNX Runtime may need more"
        ));
    }
    notices
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::units::Micros;
    use edgecut_plan::{GroupId, file::MemoryPlan};

    fn device(server: &str, device: &str, groups: u32, limit: Option<u64>) -> DevicePlan {
        DevicePlan {
            server: server.to_string(),
            device: device.to_string(),
            address: None,
            threads: None,
            engine: None,
            hardware: None,
            memory_limit_bytes: limit.map(Bytes),
            order: (0..groups).map(GroupId).collect(),
            busy_us: Micros::ZERO,
            idle_w: None,
            memory: MemoryPlan::default(),
        }
    }

    fn plan(devices: Vec<DevicePlan>) -> Plan {
        let text = serde_json::json!({
            "version": edgecut_plan::file::VERSION, "model": {"path": "m", "blake3": ""}, "cluster": null,
            "granularity": "fused", "objective": "latency", "targets": {}, "seed": 0,
            "predicted": {"latency_us": 0.0, "interval_us": 0.0, "throughput_per_s": 0.0, "peak_bytes": 0},
            "bound": {"value": 0.0, "by": ""}, "gap": 0.0, "source": 0, "sink": 0, "devices": [], "groups": [],
            "transfers": [], "notes": [],
        });
        Plan { devices, ..serde_json::from_value(text).unwrap() }
    }

    #[test]
    fn devices_become_rules_of_their_kind() {
        let plan = plan(vec![
            device("a", "cpu", 1, None),
            device("a", "gpu0", 2, Some(1 << 20)),
            device("ä.b", "cpu", 3, None),
            device("_.b", "cpu", 1, None),
            device("c", "cpu", 0, None),
        ]);
        let annotations = Annotations::of(&plan);
        assert_eq!(annotations.rules(&plan), "gpu(=a-gpu0); cpu(=a-cpu, =__b-cpu, =__b-cpu-3)");
        assert_eq!(annotations.of_device(DeviceId(2)), "__b-cpu");
        assert_eq!(budget(&plan, "memory.csv").as_deref(), Some("1024,memory.csv"));
        let notices = notices(&plan, 2);
        assert_eq!(notices.len(), 3, "{notices:?}");
        assert!(
            notices[0].contains("the 1 groups of _.b") && notices[1].starts_with("ä.b is another server than a"),
            "{notices:?}"
        );
        assert!(notices[2].starts_with("2 groups are split"), "{notices:?}");
    }

    #[test]
    fn a_plan_of_one_processor_needs_no_more_than_a_rule() {
        let plan = plan(vec![device("local", "cpu", 4, Some(1 << 20))]);
        assert_eq!(Annotations::of(&plan).rules(&plan), "cpu(=local-cpu)");
        assert_eq!((budget(&plan, "memory.csv"), notices(&plan, 0).len()), (None, 0));
    }
}
