//! Texts as TVM v0.8 to v0.19 print them, and as tools print them without header or metadata: all are read.

use edgecut::relay::{self, ImportOptions};

/// What it is, the text, and the operators that the graph must have, with operand types and result.
const CASES: &[(&str, &str, &[&str])] = &[
    (
        "v0.8: only the comment tells int64 from int32",
        "def @main(%x: Tensor[(2), int64]) { add(%x, 3 /* ty=int64 */) /* ty=Tensor[(2), int64] */ }",
        &["add int64[2]|int64[] -> int64[2]"],
    ),
    (
        "v0.8: the source of an operator is a comment of its own",
        "def @main(%x: float32) { nn.relu(%x) /* aten::relu_0 */ /* ty=float32 */ }",
        &["nn.relu float32[] -> float32[]"],
    ),
    (
        "v0.8: scatter and scatter_add are operators",
        "def @main(%x: Tensor[(4, 4), float32], %i: Tensor[(2, 4), int64], %u: Tensor[(2, 4), float32]) {
           %0 = scatter(%x, %i, %u, axis=1);
           scatter_add(%0, %i, %u, axis=0)
         }",
        &[
            "scatter_elements float32[4,4]|int64[2,4]|float32[2,4] -> float32[4,4]",
            "scatter_elements float32[4,4]|int64[2,4]|float32[2,4] -> float32[4,4]",
        ],
    ),
    (
        "v0.8: devices are numbers",
        "def @main(%x: Tensor[(4), float32]) {
           %0 = on_device(%x, device_type=1, is_fixed=True);
           device_copy(%0, src_dev_type=1, dst_dev_type=2)
         }",
        &["on_device float32[4] -> float32[4]", "device_copy float32[4] -> float32[4]"],
    ),
    (
        "v0.9: virtual devices on parameters and functions, spans in comments",
        r#"def @main(%x {virtual_device=meta[VirtualDevice][0]}: Tensor[(4), float32] /* ty=Tensor[(4), float32] span=a:1:2 */,
             hash="12", virtual_device=meta[VirtualDevice][0]) -> Tensor[(4), float32] {
             on_device(%x, virtual_device=meta[VirtualDevice][0], constrain_result=True) /* ty=Tensor[(4), float32] */
           }"#,
        &["on_device float32[4] -> float32[4]"],
    ),
    (
        "v0.9, without metadata: virtual devices are spelt out",
        "def @main(%x {virtual_device=VirtualDevice(device_type=1, target=Target(id=1, kind='llvm', keys={'cpu'}))}: float32) {
           nn.relu(%x)
         }",
        &["nn.relu float32[] -> float32[]"],
    ),
    (
        "v0.9: reshape has allowzero",
        "def @main(%x: Tensor[(4, 2), float32]) { reshape(%x, newshape=[8, 1], allowzero=False) }",
        &["reshape float32[4,2] -> float32[8,1]"],
    ),
    (
        "v0.14: qnn.dequantize says its dtype; before it does not",
        r#"def @main(%x: Tensor[(4), int8]) {
             %0 = qnn.dequantize(%x, 0.5f, 1, out_dtype="float32");
             add(%0, qnn.dequantize(%x, 0.5f, 1))
           }"#,
        &[
            "qnn.dequantize int8[4]|float32[]|int32[] -> float32[4]",
            "qnn.dequantize int8[4]|float32[]|int32[] -> float32[4]",
            "add float32[4]|float32[4] -> float32[4]",
        ],
    ),
    (
        "v0.18: the sections of split are boxed",
        r#"def @main(%x: Tensor[(4, 6), float32]) {
             %0 = split(%x, indices_or_sections=[meta[runtime.BoxInt][0], meta[runtime.BoxInt][1]], axis=1);
             %0.1
           }
           #[metadata]
           {"root": 1, "nodes": [{"type_key": ""},
             {"type_key": "Map", "keys": ["runtime.BoxInt"], "data": [2]}, {"type_key": "Array", "data": [3, 4]},
             {"type_key": "runtime.BoxInt", "repr_str": "1"}, {"type_key": "runtime.BoxInt", "repr_str": "4"}]}"#,
        &["split float32[4,6] -> (float32[4,1];float32[4,3];float32[4,2])"],
    ),
    (
        "v0.18, without metadata: the comment tells how many",
        "def @main(%x: Tensor[(4, 6), float32]) {
           %0 = split(%x, indices_or_sections=meta[runtime.BoxInt][0], axis=1)
             /* ty=(Tensor[(4, 3), float32], Tensor[(4, 3), float32]) */;
           %0.1
         }",
        &["split float32[4,6] -> (float32[4,3];float32[4,3])"],
    ),
    (
        "without metadata: a constant has the type of its comment, attributes are spelt out",
        r#"def @main(%x: Tensor[(2, 3), float32]) {
             %0 = add(%x, meta[relay.Constant][0] /* ty=Tensor[(2, 3), float32] */);
             cumsum(%0, axis=1, dtype="float32", exclusive=False)
           }
           /* For debugging purposes the metadata section has been omitted. */"#,
        &["add float32[2,3]|float32[2,3] -> float32[2,3]", "cumsum float32[2,3] -> float32[2,3]"],
    ),
    (
        "PyTorch: names with dots and colons, types that nothing uses",
        "type Option[A] {\n  Some(A),\n  None,\n}\n
         def @main(%input.1: Tensor[(1, 4), float32] /* span=aten::linear_0.input.1:0:0 */,
           %fc.weight: Tensor[(2, 4), float32], %aten::linear_0.bias: Tensor[(2), float32]) {
           %0 = nn.dense(%input.1, %fc.weight, units=None) /* span=aten::linear_0:0:0 */;
           nn.bias_add(%0, %aten::linear_0.bias, axis=-1)
         }",
        &[
            "nn.dense float32[1,4]|float32[2,4] -> float32[1,2]",
            "nn.bias_add float32[1,2]|float32[2] -> float32[1,2]",
        ],
    ),
    (
        "logs: the line of PrintIR, a byte order mark, line ends of Windows",
        "\u{feff}PrintIR(FuseOps):\r\n#[version = \"0.0.5\"]\r\ndef @main(%x: float32) {\r\n  nn.relu(%x)\r\n}\r\n",
        &["nn.relu float32[] -> float32[]"],
    ),
];

#[test]
fn what_every_version_prints_is_read() {
    let mut wrong = Vec::new();
    for (what, text, want) in CASES {
        match relay::import("m.relay", text.as_bytes(), &ImportOptions::default()) {
            Ok(import) => {
                let graph = &import.graph;
                let row = |operator: &edgecut::graph::Operator| {
                    let args: Vec<String> = graph.arg_types(operator).iter().map(ToString::to_string).collect();
                    format!("{} {} -> {}", operator.name, args.join("|"), graph.result_type(operator))
                };
                let got: Vec<String> = graph.operators().map(|(_, operator)| row(operator)).collect();
                // An attribute that only the metadata would give leaves the comment alone with the type.
                let disagree = import.checks.mismatches.iter().any(|d| !d.inferred.ends_with("is missing"));
                if got != *want || disagree {
                    wrong.push(format!("{what}: {got:?}, {:?}", import.checks.mismatches));
                }
            }
            Err(error) => wrong.push(format!("{what}: {error}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
