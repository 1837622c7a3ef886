#!/usr/bin/env python3
"""sample.py SHARED_DIR: copies the sample of the conformance data that tests need into this folder.

SHARED_DIR holds `relay/`. What is copied is byte for byte the original; `relay/cases/index.csv` keeps the rows
of the cases that are copied. Files of an earlier sample are removed first. The same input gives the same sample.

Operator cases are chosen for coverage, smaller files first:
1. every operator, every attribute that a call states, every family with each of its element types, every operator with
   each rank of its operands (greedy set cover);
2. then different values of attributes, until CASES cases are chosen and every family has at least a third of its own.
"""
import csv, os, re, shutil, sys

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = 480

# Models that are copied with their expected outputs.
MODELS = ["densenet121", "dqn", "gcn_sparse", "inception_v3", "mlp", "mlp_train", "resnet18_fused", "resnet50_nhwc",
          "torch_googlenet", "torch_gru", "torch_lstm", "torch_unet"]
# Models whose text is in `models/` of the repository: only the tables of types and the expected outputs are copied.
IN_REPOSITORY = ["dcgan", "lstm", "mobilenet", "resnet18", "squeezenet_v1.1", "torch_bert_tiny", "torch_mobilenet_v2"]
# Models that have a table of types and no expected outputs.
TYPES_ONLY = ["dynamic_dense", "sample_convert_layout_nchw4c", "sample_grad_first", "sample_mixed_precision",
              "sample_mlp_anf", "sample_onnx_BERT_layer_ONNX_", "sample_onnx_LSTM", "sample_onnx_unfrozen_names_ONNX_",
              "sample_partitioned_composite", "sample_pt_resnet18", "sample_qnn_conv_block", "sample_yolov2"]


class Case:
    def __init__(self, folder, row):
        self.row, self.family = row, row["family"]
        self.stem = os.path.join(row["family"], row["case"])
        self.size = sum(os.path.getsize(os.path.join(folder, self.stem + end)) for end in (".relay", ".npz"))
        with open(os.path.join(folder, self.stem + ".relay"), encoding="utf-8") as file:
            text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
        self.features, self.values = features(text, row)


def features(text, row):
    """What a case covers: first what must be covered at least once, then the values of attributes."""
    first, values = {("family", row["family"])}, set()
    head = text.split("def @main", 1)[-1].split("{", 1)[0]
    types = set(re.findall(r"\b(?:float|int|uint|bool)\d*\b", head))
    ranks = {shape.count(",") + 1 for shape in re.findall(r"Tensor\[\(([^)]*)\)", head)}
    first.update(("type", row["family"], ty) for ty in types)
    for op in row["ops"].split():
        first.add(("op", op))
        first.update(("rank", op, rank) for rank in ranks)
        for call in re.finditer(r"(?<![\w.%@])" + re.escape(op) + r"\(", text):
            for part in arguments(text, call.end()):
                attribute = re.match(r"\s*(\w+)=(.*)", part, flags=re.S)
                if attribute:
                    first.add(("attribute", op, attribute[1]))
                    values.add((op, attribute[1], " ".join(attribute[2].split())))
    return first, values


def arguments(text, begin):
    """The arguments of a call whose parenthesis opens before `begin`, split at the commas of its own level."""
    depth, part, quoted = 0, begin, False
    for at in range(begin, len(text)):
        char = text[at]
        if char == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            if depth == 0:
                yield text[part:at]
                return
            depth -= 1
        elif char == "," and depth == 0:
            yield text[part:at]
            part = at + 1


def choose(cases):
    chosen, covered, left = [], set(), sorted(cases, key=lambda c: (c.size, c.stem))

    def take(case, new):
        chosen.append(case)
        covered.update(new)
        left.remove(case)

    while True:
        best = max(left, key=lambda c: len(c.features - covered))
        if not best.features - covered:
            break
        take(best, best.features)
    for case in chosen:
        covered.update(case.values)
    for family in sorted({c.family for c in cases}):
        share = -(-sum(c.family == family for c in cases) // 3)
        while sum(c.family == family for c in chosen) < share:
            best = max((c for c in left if c.family == family), key=lambda c: len(c.values - covered))
            take(best, best.values)
    while left and len(chosen) < CASES:
        best = max(left, key=lambda c: len(c.values - covered))
        take(best, best.values)
    return chosen


def copy(source, target):
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copyfile(source, target)


def sample_cases(source, target):
    with open(os.path.join(source, "index.csv"), encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        header, rows = reader.fieldnames, list(reader)
    chosen = {c.stem for c in choose([Case(source, row) for row in rows])}
    kept = [row for row in rows if os.path.join(row["family"], row["case"]) in chosen]
    os.makedirs(target)
    with open(os.path.join(target, "index.csv"), "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, header, lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept)
    for stem in chosen:
        for end in (".relay", ".npz"):
            copy(os.path.join(source, stem + end), os.path.join(target, stem + end))
    return len(kept), len(rows)


def sample_models(source, target):
    parts = [("models", "relay", MODELS + TYPES_ONLY), ("models", "ops.csv", MODELS + IN_REPOSITORY + TYPES_ONLY),
             ("expected", "npz", MODELS + IN_REPOSITORY)]
    for folder, end, names in parts:
        for name in names:
            path = os.path.join(source, folder, f"{name}.{end}")
            # One sample has no table of types.
            if end != "ops.csv" or os.path.exists(path):
                copy(path, os.path.join(target, folder, f"{name}.{end}"))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    shared = sys.argv[1]
    relay = os.path.join(HERE, "relay")
    shutil.rmtree(relay, ignore_errors=True)
    count, of = sample_cases(os.path.join(shared, "relay", "cases"), os.path.join(relay, "cases"))
    sample_models(os.path.join(shared, "relay"), relay)
    copy(os.path.join(shared, "relay", "ops.json"), os.path.join(relay, "ops.json"))
    print(f"{count} of {of} operator cases, {len(MODELS)} models with outputs, "
          f"outputs of {len(IN_REPOSITORY)} in models/, {len(TYPES_ONLY)} models with types only")


if __name__ == "__main__":
    main()
