"""Mutated models through the real binary: whatever a file says, `inspect` and `run` end with an exit code of 0 to 3, within
seconds and a limit of memory.

    python3 tests/mutated_files.py onnx|relay BINARY [COUNT [SEED]]     # COUNT files, each in processes of its own
    python3 tests/mutated_files.py onnx|relay BINARY --file FILE        # one file that was kept

Files that break the promise are kept in a folder, whose name is printed. Needs numpy and onnx; with onnxruntime, which is
found as edgecut finds it, every third ONNX file is run by it too. What engines compute takes as long as it takes: a run that
uses up its processor time is counted, and no finding.
"""

import glob, os, random, re, resource, subprocess, sys, tempfile
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SHARED = os.path.join(os.path.dirname(ROOT), 'shared')
# Address space: 1 GiB, and what the process maps before it reads anything, libraries of engines among it.
MEMORY = (1 << 30) + (512 << 20)
SECONDS = 10
LARGEST_SEED = 60_000

INTEGERS = [0, 1, -1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 64, 100, 255, 1000, 4096, 65535, 1 << 20, (1 << 24) + 1, (1 << 31) - 1, 1 << 31,
            -(1 << 31), 1 << 32, 1 << 40, 1 << 50, 1 << 62, (1 << 63) - 1, -(1 << 63)]
FLOATS = [0.0, -1.0, 0.5, 1.5, 3.0, 1e9, 1e18, 1e30, -1e9, float('inf'), float('-inf'), float('nan')]


def limits():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def outcome(binary, arguments):
    """The exit code; 'slow' for one that used up its time."""
    try:
        ran = subprocess.run([binary, *arguments], preexec_fn=limits, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, timeout=6 * SECONDS, env=dict(os.environ, NO_COLOR='1'))
    except subprocess.TimeoutExpired:
        return 'slow', ''
    text = ran.stderr.decode(errors='replace')
    return ('slow' if ran.returncode in (-24, -9) else ran.returncode), text


# ONNX

def onnx_seeds():
    import onnx
    folder = os.path.join(os.path.dirname(onnx.__file__), 'backend', 'test', 'data', 'node')
    found = sorted(glob.glob(folder + '/*/model.onnx'))
    found += sorted(glob.glob(SHARED + '/onnx/*.onnx') + glob.glob(SHARED + '/cases/*/*.onnx') + glob.glob(ROOT + '/tests/data/onnx/*.onnx'))
    return [path for path in found if os.path.getsize(path) <= LARGEST_SEED]


def numbers_of(model, rng):
    """Places of numbers in a model: functions that write another one."""
    from onnx import numpy_helper
    import numpy as np
    places = []
    graph = model.graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == attribute.INT:
                places.append(lambda a=attribute: setattr(a, 'i', rng.choice(INTEGERS)))
            elif attribute.type == attribute.FLOAT:
                places.append(lambda a=attribute: setattr(a, 'f', rng.choice(FLOATS)))
            elif attribute.type == attribute.INTS and attribute.ints:
                places.append(lambda a=attribute: a.ints.__setitem__(rng.randrange(len(a.ints)), rng.choice(INTEGERS)))
            elif attribute.type == attribute.FLOATS and attribute.floats:
                places.append(lambda a=attribute: a.floats.__setitem__(rng.randrange(len(a.floats)), rng.choice(FLOATS)))
    for value in [*graph.input, *graph.output, *graph.value_info]:
        tensor = value.type.tensor_type
        for dim in tensor.shape.dim:
            places.append(lambda d=dim: setattr(d, 'dim_value', rng.choice(INTEGERS)))
        places.append(lambda t=tensor: setattr(t, 'elem_type', rng.randrange(1, 17)))

    def content(tensor):
        try:
            array = numpy_helper.to_array(tensor).copy()
        except Exception:
            return
        if array.size == 0 or array.dtype.kind not in 'iuf':
            return
        with np.errstate(all='ignore'):
            new = np.array(rng.choice(FLOATS if array.dtype.kind == 'f' else INTEGERS), dtype=object)
            array.reshape(-1)[rng.randrange(array.size)] = new.astype(np.float64).astype(array.dtype) if array.dtype.kind == 'f' \
                else int(new) & ((1 << 8 * array.dtype.itemsize - 1) - 1)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    tensors = [*graph.initializer, *(a.t for node in graph.node for a in node.attribute if a.type == a.TENSOR)]
    places += [lambda t=tensor: content(t) for tensor in tensors] * 3
    return places


def make_constant(model, value, dtype='int64'):
    from onnx import numpy_helper
    import numpy as np
    name = f'made_{len(model.graph.initializer)}'
    model.graph.initializer.append(numpy_helper.from_array(np.array(value, dtype=dtype), name))
    return name


def add_maker(model, rng):
    """Nodes whose results have any size, which a few bytes state."""
    from onnx import TensorProto, helper
    size = lambda: rng.choice([5, 1000, 1 << 20, 1 << 27, 1 << 31, 1 << 32, 1 << 40, 1 << 50, 1 << 62, -1])
    constant = lambda value, dtype='int64': make_constant(model, value, dtype)
    kind = rng.randrange(12)
    name = f'grown_{len(model.graph.node)}'
    node = lambda op, inputs, **attributes: helper.make_node(op, inputs, [name], **attributes)
    for number in range(rng.choice([1, 1, 1, 40, 150])):
        name = f'grown_{len(model.graph.node)}'
        if kind == 0:
            made = node('Range', [constant(0), constant(size()), constant(1)])
        elif kind == 1:
            made = node('ConstantOfShape', [constant([size() for _ in range(rng.randrange(1, 4))])])
        elif kind == 2:
            made = node('Expand', [constant([1.0], 'float32'), constant([size(), size()])])
        elif kind == 3:
            made = node('Tile', [constant([1.0, 2.0], 'float32'), constant([size()])])
        elif kind == 4:
            made = node('OneHot', [constant([1, 2]), constant(size()), constant([0.0, 1.0], 'float32')])
        elif kind == 5:
            made = node('Pad', [constant([[1.0]], 'float32'), constant([0, size(), size(), 0])])
        elif kind == 6:
            model.graph.node.append(helper.make_node('Cast', [constant(float(size()), 'float64')], [name + '_size'], to=TensorProto.INT64))
            made = node(rng.choice(['HannWindow', 'HammingWindow', 'BlackmanWindow']), [name + '_size'])
        elif kind == 7:
            made = node(rng.choice(['RandomNormal', 'RandomUniform']), [], shape=[size(), size()])
        elif kind == 8:
            made = node('CenterCropPad', [constant([[1.0, 2.0]], 'float32'), constant([size(), size()])])
        elif kind == 9:
            made = node('MaxUnpool', [constant([[[[1.0]]]], 'float32'), constant([[[[0]]]]), constant([1, 1, size(), size()])],
                        kernel_shape=[2, 2])
        elif kind == 10:
            block = rng.choice([2, 1 << 16, 1 << 31, 1 << 32, 1 << 62])
            op = rng.choice(['DepthToSpace', 'SpaceToDepth'])
            made = node(op, [constant([[[[1.0]]]], 'float32')], blocksize=block)
        else:
            made = node('Resize', [constant([[[[1.0]]]], 'float32'), '', '', constant([1, 1, size(), size()])])
        model.graph.node.append(made)
        if number < 3:
            ty = TensorProto.INT64 if kind == 0 else TensorProto.FLOAT
            model.graph.output.append(helper.make_tensor_value_info(name, ty, [rng.choice([5, 1 << 20, 1 << 40])] * rng.randrange(1, 4)))


def rewire(model, rng):
    graph = model.graph
    names = [value.name for value in [*graph.input, *graph.initializer]] + [name for node in graph.node for name in node.output]
    node = rng.choice(graph.node)
    choice = rng.randrange(6)
    if choice == 0 and node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice(names + [''])
    elif choice == 1 and node.attribute:
        del node.attribute[rng.randrange(len(node.attribute))]
    elif choice == 2:
        node.op_type = rng.choice(OPERATORS)
    elif choice == 3:
        graph.node.append(node)
    elif choice == 4 and graph.initializer:
        tensor = rng.choice(graph.initializer)
        del tensor.dims[:]
        tensor.dims.extend(rng.choice(INTEGERS) for _ in range(rng.randrange(4)))
    elif graph.initializer:
        tensor = rng.choice(graph.initializer)
        tensor.ClearField('raw_data')
        tensor.data_location = 1
        for key, value in (('location', rng.choice(['model.onnx', '.', '../x', 'absent'])), ('length', str(rng.choice(INTEGERS)))):
            tensor.external_data.add(key=key, value=value)


def sparse(model, rng):
    from onnx import helper, numpy_helper
    import numpy as np
    for number in range(rng.choice([1, 20])):
        values = numpy_helper.from_array(np.array([1.0], 'float32'), f'sparse_{number}')
        indices = numpy_helper.from_array(np.array([rng.choice(INTEGERS)], 'int64'), '')
        dims = [rng.choice(INTEGERS) for _ in range(rng.randrange(1, 3))]
        model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, dims))


def flipped(data, rng):
    data = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(data) + 1)
        choice = rng.randrange(5)
        if choice == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif choice == 1:
            del data[at:at + rng.randrange(40)]
        elif choice == 2:
            data[at:at] = data[(start := rng.randrange(len(data) + 1)):start + rng.randrange(100)]
        elif choice == 3:
            data[at:at + 8] = rng.choice(INTEGERS).to_bytes(8, 'little', signed=True)
        elif rng.random() < 0.1:
            del data[at:]
        if not data:
            data = bytearray(b'\x08')
    return bytes(data)


OPERATORS = []


def mutated_onnx(seeds, rng):
    import onnx
    if not OPERATORS:
        OPERATORS.extend(sorted({schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ''}))
    data = open(rng.choice(seeds), 'rb').read()
    if rng.random() < 0.15:
        return flipped(data, rng)
    model = onnx.ModelProto.FromString(data)
    for _ in range(rng.choice([1, 1, 2, 3])):
        choice = rng.random()
        try:
            if choice < 0.6:
                places = numbers_of(model, rng)
                if places:
                    rng.choice(places)()
            elif choice < 0.8 and model.graph.node:
                rewire(model, rng)
            elif choice < 0.95:
                add_maker(model, rng)
            else:
                sparse(model, rng)
        except (ValueError, TypeError, OverflowError):
            pass
    try:
        return model.SerializeToString()
    except Exception:
        return flipped(data, rng)


# Relay

def relay_seeds():
    found = sorted(glob.glob(ROOT + '/models/*.relay') + glob.glob(ROOT + '/tests/data/relay/**/*.relay', recursive=True))
    found += sorted(glob.glob(SHARED + '/relay/cases/*/*.relay'))
    return [path for path in found if os.path.getsize(path) <= LARGEST_SEED]


NUMBER = re.compile(r'(?<![\w.%@])-?\d+(?![\w.]*[%@])')
NAME = re.compile(r'(?<![\w.%@"])[a-z][a-z_0-9]*(?:\.[a-z_0-9]+)*(?=\()')
SIZES = ['zeros(shape=[{0}, {1}], dtype="float32")', 'ones(shape=[{0}], dtype="int8")', 'full(1f, shape=[{0}, {1}], dtype="float32")',
         'arange(0f, {0}f, 1f, start=0f, stop={0}f, step=1f, dtype="float32")', 'tile(ones(shape=[2], dtype="float32"), reps=[{0}])',
         'repeat(ones(shape=[2], dtype="float32"), repeats={0}, axis=0)', 'broadcast_to(1f, shape=[{0}, {1}])',
         'nn.pad(ones(shape=[2], dtype="float32"), 0f, pad_width=[[0, {0}]])', 'one_hot(1, 1f, 0f, depth={0}, axis=-1, dtype="float32")',
         'floor_divide(ones(shape=[2], dtype="int32"), zeros(shape=[2], dtype="int32"))',
         'nn.depth_to_space(ones(shape=[1, 4, 1, 1], dtype="float32"), block_size={0})',
         'nn.space_to_depth(ones(shape=[1, 4, 8, 8], dtype="float32"), block_size={0})',
         'image.resize2d(ones(shape=[1, 1, 2, 2], dtype="float32"), size=[{0}, {1}], roi=[0f, 0f, 0f, 0f])',
         'split(ones(shape=[{0}], dtype="float32"), indices_or_sections={1}).0']


def mutated_relay(seeds, rng):
    text = open(rng.choice(seeds)).read()
    if rng.random() < 0.1:
        return flipped(text.encode(), rng)
    names = sorted({name for path in rng.sample(seeds, min(len(seeds), 40)) for name in NAME.findall(open(path).read())})
    for _ in range(rng.choice([1, 1, 2, 3, 5])):
        choice = rng.random()
        if choice < 0.6:
            places = list(NUMBER.finditer(text))
            new = str(rng.choice(INTEGERS))
        elif choice < 0.8:
            places, new = list(NAME.finditer(text)), rng.choice(names)
        elif choice < 0.95:
            # An operand becomes one of any size.
            places = list(re.finditer(r'%[\w.]+(?=[,)])', text))
            new = rng.choice(SIZES).format(rng.choice(INTEGERS), rng.choice(INTEGERS))
        else:
            places, new = list(re.finditer(r'\b(float32|float16|float64|int8|uint8|int32|int64|bool)\b', text)), rng.choice(['int64', 'int8', 'bool', 'float16', 'uint8'])
        if places:
            place = rng.choice(places)
            text = text[:place.start()] + new + text[place.end():]
    if rng.random() < 0.5:
        # Stated types are what mutations contradict first.
        text = re.sub(r' /\* ty=.*?\*/', '', text)
    return text.encode()


def runs(form, path, number):
    yield ['inspect', path]
    yield ['run', path, '--engine', 'tract']
    if form == 'onnx' and number % 3 == 0:
        yield ['run', path, '--engine', 'onnxruntime']


def check(form, binary, number, data, kept):
    """Findings of one file, and whether a run was slow."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, f'model.{form}')
        open(path, 'wb').write(data)
        found, slow = [], 0
        for arguments in runs(form, path, number):
            code, text = outcome(binary, arguments)
            is_slow_run = code == 'slow' and arguments[0] == 'run'
            slow += is_slow_run
            if code not in (0, 1, 2, 3) and not is_slow_run or 'panicked' in text:
                found.append(f'{number}: {arguments[0]} {" ".join(arguments[2:])}: exit {code}: {text.strip()[-300:]}')
        if found or slow:
            open(os.path.join(kept, f'{number}.{form}'), 'wb').write(data)
        return found, slow


def main():
    form, binary, *rest = sys.argv[1:]
    kept = tempfile.mkdtemp(prefix=f'mutated-{form}-')
    if rest[:1] == ['--file']:
        found, slow = check(form, binary, 0, open(rest[1], 'rb').read(), kept)
        print('\n'.join(found) or ('slow' if slow else 'no finding'))
        return bool(found)
    count, seed = (int(rest[0]) if rest else 2000), (int(rest[1]) if len(rest) > 1 else 1)
    seeds = onnx_seeds() if form == 'onnx' else relay_seeds()
    mutate = mutated_onnx if form == 'onnx' else mutated_relay
    work = lambda number: check(form, binary, number, mutate(seeds, random.Random(f'{seed}.{number}')), kept)
    findings = slow = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for found, was_slow in pool.map(work, range(count)):
            findings, slow = findings + bool(found), slow + bool(was_slow)
            for line in found:
                print(line, flush=True)
    print(f'{count} {form} files mutated from {len(seeds)}: {findings} findings, {slow} slow runs; kept in {kept}')
    return findings > 0


if __name__ == '__main__':
    sys.exit(main())
