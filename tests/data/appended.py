"""Writes appended/*.onnx: a 2-layer decoder with random weights that appends to its caches, as Optimum exports Llama, and variants of it, some of
which do not support left padding. Prints the tokens that ONNX Runtime generates greedily, without padding, and the minimum margin between the two
largest logits. Needs numpy, onnx and onnxruntime; run in this folder."""
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto as T, helper as h, numpy_helper

LAYERS, HIDDEN, HEADS, KV_HEADS, SIZE, FF, VOCABULARY, LONGEST = 2, 16, 4, 2, 8, 16, 64, 64
PROMPT, NEW = [3, 5, 7, 9, 11], 16
value = h.make_tensor_value_info


def build(name, positions="input", masked=True, sliding=None, step="sequence_length", tokens_first=False, top_left=False):
    """`sliding`: what caches of fixed length do first, "concat" or "slice". `tokens_first`: caches are [batch, tokens, heads, size].
    `top_left`: the causal mask of a step of several tokens begins with the first key, as if there were no past."""
    random = np.random.default_rng(7)
    nodes, weights, names, scope = [], [], iter(range(10**6)), "/"

    def node(kind, *inputs, out=None, **attributes):
        name = f"{scope}{kind}_{next(names)}"
        nodes.append(h.make_node(kind, list(inputs), [out or name], name, **attributes))
        return nodes[-1].output[0]

    def constant(array, of="c"):
        weights.append(numpy_helper.from_array(np.array(array), f"{of}{next(names)}"))
        return weights[-1].name

    def dense(x, rows, columns, of, gain=1.0):
        return node("MatMul", x, constant((random.standard_normal((rows, columns)) * gain / np.sqrt(rows)).astype("f4"), of))

    def norm(x):
        mean = node("ReduceMean", node("Mul", x, x), axes=[-1])
        return node("Div", x, node("Sqrt", node("Add", mean, constant(np.float32(1e-6)))))

    def length(x, axis):
        return node("Gather", node("Shape", x), constant(np.int64(axis)), axis=0)

    def ints(values):
        return constant(np.int64(values))

    tokens, past_length = length("input_ids", 1), length("past_key_values.0.key", 1 if tokens_first else 2)
    total = node("Add", past_length, tokens)
    if sliding:
        total = past_length
    begin = node("Sub", total, tokens)
    of_cache = node("Range", begin, total, ints(1))
    if positions == "input":
        at = "position_ids"
    elif positions == "mask":
        counted = node("Sub", node("CumSum", "attention_mask", ints(1)), ints(1))
        at = node("Slice", counted, node("Unsqueeze", begin, ints([0])), ints([2**31]), ints([1]))
    else:
        at = node("Unsqueeze", of_cache, ints([0]))
    # [1, 1, queries, keys]: 0 for keys that a query sees.
    keys = node("Range", ints(0), total, ints(1))
    queries = of_cache
    if top_left:
        is_step = node("Greater", tokens, ints(1))
        queries = node("Where", is_step, node("Range", ints(0), tokens, ints(1)), of_cache)
    seen = node("LessOrEqual", node("Unsqueeze", keys, ints([0])), node("Unsqueeze", queries, ints([1])))
    seen = node("Unsqueeze", seen, ints([0, 1]))
    if masked:
        seen = node("And", seen, node("Unsqueeze", node("Cast", "attention_mask", to=T.BOOL), ints([1, 2])))
    bias = node("Where", seen, constant(np.float32(0)), constant(np.float32(-3e38)))
    frequencies = constant((100.0 ** (-np.arange(SIZE // 2) / (SIZE // 2))).astype("f4")[None, None, None])
    angles = node("Mul", node("Unsqueeze", node("Cast", at, to=T.FLOAT), ints([1, 3])), frequencies)
    angles = node("Concat", angles, angles, axis=-1)
    cos, sin = node("Cos", angles), node("Sin", angles)

    def heads(x, count):
        return node("Transpose", node("Reshape", x, ints([0, 0, count, SIZE])), perm=[0, 2, 1, 3])

    def rotated(x):
        low = node("Slice", x, ints([0]), ints([SIZE // 2]), ints([3]))
        high = node("Slice", x, ints([SIZE // 2]), ints([SIZE]), ints([3]))
        turned = node("Concat", node("Neg", high), low, axis=-1)
        return node("Add", node("Mul", x, cos), node("Mul", turned, sin))

    def repeated(x):
        split = node("Unsqueeze", x, ints([2]))
        group = HEADS // KV_HEADS
        return node("Reshape", node("Concat", *[split] * group, axis=2), ints([0, HEADS, -1, SIZE]))

    def cached(new, layer, of):
        past, present = f"past_key_values.{layer}.{of}", f"present.{layer}.{of}"
        dropped = node("Unsqueeze", tokens, ints([0])), ints([2**31]), ints([2])
        if sliding == "concat":
            return node("Slice", node("Concat", past, new, axis=2), *dropped, out=present)
        if sliding == "slice":
            return node("Concat", node("Slice", past, *dropped), new, out=present, axis=2)
        if tokens_first:
            whole = node("Concat", past, node("Transpose", new, perm=[0, 2, 1, 3]), out=present, axis=1)
            return node("Transpose", whole, perm=[0, 2, 1, 3])
        return node("Concat", past, new, out=present, axis=2)

    x = node("Gather", constant(random.standard_normal((VOCABULARY, HIDDEN)).astype("f4"), "embedding"), "input_ids", axis=0)
    for layer in range(LAYERS):
        of, scope = f"layers.{layer}.", f"/layers.{layer}/"
        normal = norm(x)
        query = rotated(heads(dense(normal, HIDDEN, HEADS * SIZE, of + "q", 2.0), HEADS))
        key = cached(rotated(heads(dense(normal, HIDDEN, KV_HEADS * SIZE, of + "k", 2.0), KV_HEADS)), layer, "key")
        content = cached(heads(dense(normal, HIDDEN, KV_HEADS * SIZE, of + "v"), KV_HEADS), layer, "value")
        scores = node("MatMul", query, node("Transpose", repeated(key), perm=[0, 1, 3, 2]))
        scores = node("Add", node("Mul", scores, constant(np.float32(SIZE**-0.5))), bias)
        attention = node("Softmax", scores, axis=-1, out=f"attentions.{layer}")
        mixed = node("Transpose", node("MatMul", attention, repeated(content)), perm=[0, 2, 1, 3])
        x = node("Add", x, dense(node("Reshape", mixed, ints([0, 0, HEADS * SIZE])), HEADS * SIZE, HIDDEN, of + "o", 2.0))
        normal = norm(x)
        gate = dense(normal, HIDDEN, FF, of + "gate")
        hidden = node("Mul", node("Mul", gate, node("Sigmoid", gate)), dense(normal, HIDDEN, FF, of + "up"))
        x = node("Add", x, dense(hidden, FF, HIDDEN, of + "down"))
    scope = "/"
    node("MatMul", norm(x), constant((random.standard_normal((HIDDEN, VOCABULARY))).astype("f4"), "lm_head"), out="logits")

    cache = "past_sequence_length"
    whole = cache if sliding else "past_sequence_length + sequence_length"
    inputs = [value("input_ids", T.INT64, ["batch_size", step])]
    inputs += [value("attention_mask", T.INT64, ["batch_size", whole])] if masked else []
    inputs += [value("position_ids", T.INT64, ["batch_size", step])] if positions == "input" else []
    outputs = [value("logits", T.FLOAT, ["batch_size", step, VOCABULARY]), value("attentions.0", T.FLOAT, ["batch_size", HEADS, step, whole])]
    for layer in range(LAYERS):
        for of in ("key", "value"):
            def shape(length):
                return ["batch_size", *([length, KV_HEADS] if tokens_first else [KV_HEADS, length]), SIZE]

            inputs.append(value(f"past_key_values.{layer}.{of}", T.FLOAT, shape(cache)))
            outputs.append(value(f"present.{layer}.{of}", T.FLOAT, shape(whole)))
    graph = h.make_graph(nodes, name, inputs, outputs, weights)
    model = h.make_model(graph, ir_version=8, opset_imports=[h.make_opsetid("", 17)])
    onnx.checker.check_model(model)
    onnx.save(model, f"appended/{name}.onnx")
    print(name, *generated(model, LONGEST if sliding else 0, tokens_first))


def generated(model, length, tokens_first):
    """Tokens, and the margin; caches begin with `length` entries that are masked."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = {one.name for one in session.get_inputs()}
    shape = (1, length, KV_HEADS, SIZE) if tokens_first else (1, KV_HEADS, length, SIZE)
    caches = {name: np.zeros(shape, "f4") for name in wanted if name.startswith("past")}
    text, margin = list(PROMPT), np.inf
    for past in range(len(PROMPT) + NEW - 1):
        seen = past + 1
        mask = np.int64([[0] * (length - seen) + [1] * seen])
        feed = {"input_ids": np.int64([[text[past]]]), "position_ids": np.int64([[past]]), "attention_mask": mask}
        results = session.run(None, {name: of for name, of in feed.items() if name in wanted} | caches)
        results = dict(zip([one.name for one in session.get_outputs()], results))
        caches = {name: results[name.replace("past_key_values", "present")] for name in caches}
        if seen >= len(PROMPT):
            logits = np.sort(results["logits"][0, -1])
            margin = min(margin, logits[-1] - logits[-2])
            text.append(int(results["logits"][0, -1].argmax()))
    return text[len(PROMPT):], f"{margin:.3f}"


build("llama")
build("positions_of_mask", positions="mask")
build("concat_then_slice", sliding="concat")
build("slice_then_concat", sliding="slice")
build("step_of_one", step=1)
build("positions_of_cache", positions="cache")
build("without_mask", masked=False)
build("tokens_first", tokens_first=True)
build("top_left", top_left=True)
