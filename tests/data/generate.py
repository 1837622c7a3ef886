#!/usr/bin/env python3
"""generate.py: makes the small problems of this folder whose optima are known.

Pure Python and seeded: the same files each time.

arena/*.csv          packing: `id,lower,upper,size[,alignment]`, half-open lifetimes, bytes
arena/optimum.json   the least height of each
placement/{throughput,latency}/*.json, placement/best.json
                     device-placement workloads and their optima
memory/*.pattern.json, memory/*.graph.json, memory/front.json
                     programs to schedule under a memory limit, and the exact front of peak and time of each

An optimum is known by construction, then the argument is in the comment of the function that makes the problem, or by
exhaustive search in this file, which shares no code with the program under test.
"""
import heapq, json, os, random, shutil

HERE = os.path.dirname(os.path.abspath(__file__))


def jigsaw(rng, count, width, height):
    """`count` rectangles (lower, upper, bottom, top) that tile width x height: guillotine cuts, and some pinwheels of five
    pieces, which no sequence of guillotine cuts makes."""
    pieces = [(0, width, 0, height)]
    while len(pieces) < count:
        # One of the larger pieces, so that sizes do not drift apart.
        pieces.sort(key=lambda p: (p[1] - p[0]) * (p[3] - p[2]))
        left, right, bottom, top = pieces.pop(-1 - min(len(pieces) - 1, rng.randrange(3)))
        wide, tall = right - left, top - bottom
        if count - len(pieces) >= 5 and min(wide, tall) >= 12 and rng.random() < 0.3:
            a, b = sorted(rng.sample(range(left + 2, right - 1), 2))
            c, d = sorted(rng.sample(range(bottom + 2, top - 1), 2))
            pieces += [(left, a, bottom, d), (left, b, d, top), (b, right, c, top), (a, right, bottom, c), (a, b, c, d)]
        elif wide >= 4 and (tall < 4 or rng.random() < 0.5):
            at = min(max(rng.randint(left + wide // 4, right - wide // 4 - 1), left + 1), right - 1)
            pieces += [(left, at, bottom, top), (at, right, bottom, top)]
        elif tall >= 4:
            at = min(max(rng.randint(bottom + tall // 4, top - tall // 4 - 1), bottom + 1), top - 1)
            pieces += [(left, right, bottom, at), (left, right, at, top)]
        else:
            pieces.insert(0, (left, right, bottom, top))
    rng.shuffle(pieces)
    return pieces


def planted(seed, count, width, height, unit, slack):
    """Buffers of a jigsaw: all of them fit below its height, and at the time in the middle they fill it, so that the
    height is the optimum. With `slack`, buffers that do not live in the middle are smaller than their pieces."""
    rng = random.Random(f"jigsaw {seed}")
    middle, buffers = width // 2, []
    for left, right, bottom, top in jigsaw(rng, count, width, height):
        size = (top - bottom) * unit
        if slack and not left <= middle < right:
            size -= rng.randrange(0, max(1, int(size * slack)))
        buffers.append((left, right, size, 1))
    return buffers, height * unit


def load(buffers):
    """Largest sum of sizes at any time."""
    return max(sum(s for l, u, s, _ in buffers if l <= time < u) for time, _, _, _ in buffers)


def exact_height(buffers):
    """The least height, by branch and bound. In some optimal packing every buffer lies on the floor or on another one. Taken
    by rising offset, each then lies, aligned, on the highest of those before it whose lifetimes meet its own."""
    times = sorted({l for l, _, _, _ in buffers})
    alive = [[at for at, time in enumerate(times) if l <= time < u] for l, u, _, _ in buffers]
    bound, best = load(buffers), sum(s + a for _, _, s, a in buffers)
    top, rest = [0] * len(times), [sum(s for l, u, s, _ in buffers if l <= time < u) for time in times]
    left = set(range(len(buffers)))

    def place(last):
        nonlocal best
        if not left:
            best = max(top)
            return
        for at in sorted(left):
            _, _, size, align = buffers[at]
            offset = -(-max(top[t] for t in alive[at]) // align) * align
            if (offset, at) < last:
                continue
            before = [top[t] for t in alive[at]]
            left.remove(at)
            for t in alive[at]:
                top[t], rest[t] = offset + size, rest[t] - size
            if all(high + more < best for high, more in zip(top, rest)):
                place((offset, at))
            for t, old in zip(alive[at], before):
                top[t], rest[t] = old, rest[t] + size
            left.add(at)
            if best == bound:
                return

    place((0, -1))
    return best


def tiny(rng, count, aligns):
    buffers = []
    for _ in range(count):
        lower = rng.randrange(0, 8)
        buffers.append((lower, lower + rng.randint(1, 5), rng.randint(1, 9), rng.choice(aligns)))
    return buffers


def with_gap(seed):
    """Twelve buffers whose load is constant and whose optimum is above it: buffers that end together and are replaced by
    others of the same total size need not be adjacent. The lower bound by load is not reached."""
    rng = random.Random(f"gap {seed}")
    while True:
        live, buffers = [(0, size) for size in divided(rng, 20, 4)], []
        for time in range(1, 5):
            rng.shuffle(live)
            ending, live = live[:2], live[2:]
            buffers += [(start, time, size, 1) for start, size in ending]
            live += [(time, size) for size in divided(rng, sum(size for _, size in ending), 2)]
        buffers += [(start, 5, size, 1) for start, size in live]
        rng.shuffle(buffers)
        height = exact_height(buffers)
        if height > load(buffers):
            return buffers, height


def divided(rng, total, parts):
    cuts = sorted(rng.sample(range(1, total), min(parts, total) - 1))
    return [high - low for low, high in zip([0] + cuts, cuts + [total])]


def gaps_in_sequence(seeds):
    """Problems with a gap, one after the other in time: the optimum is the largest of their optima."""
    buffers, height, start = [], 0, 0
    for seed in seeds:
        part, least = with_gap(seed)
        buffers += [(l + start, u + start, s, a) for l, u, s, a in part]
        height, start = max(height, least), max(u for _, u, _, _ in buffers)
    random.Random(f"sequence {seeds}").shuffle(buffers)
    return buffers, height


def arena():
    problems = {}
    full = [(12, 0), (20, 0), (30, 0), (45, 0), (60, 0), (90, 0)]
    slack = [(40, 0.5), (80, 0.3), (160, 0.5), (300, 0.6)]
    for at, (count, slack) in enumerate(full + slack):
        name = f"jigsaw_{count}" + ("_slack" if slack else "")
        problems[name] = planted(at, count, 20 * count, 1024, 64, slack)
    for seed in range(4):
        buffers = tiny(random.Random(f"tiny {seed}"), 5 + seed, [1])
        problems[f"tiny_{seed}"] = buffers, exact_height(buffers)
    buffers = tiny(random.Random("aligned 0"), 7, [1, 2, 4])
    problems["aligned"] = buffers, exact_height(buffers)
    for seed in range(3):
        problems[f"gap_{seed}"] = with_gap(seed)
    problems["gaps_in_sequence"] = gaps_in_sequence([10, 11, 12, 13])
    for name, (buffers, _) in problems.items():
        aligned = any(a > 1 for _, _, _, a in buffers)
        rows = ["id,lower,upper,size" + ",alignment" * aligned]
        rows += [f"b{at},{l},{u},{s}" + f",{a}" * aligned for at, (l, u, s, a) in enumerate(buffers)]
        write(f"arena/{name}.csv", "\n".join(rows) + "\n")
    write_json("arena/optimum.json", {name: height for name, (_, height) in sorted(problems.items())})


def operator(id, cpu, accelerator, size=0, supported=True, colour=None, backward=False):
    found = {"id": id, "supportedOnFpga": supported, "cpuLatency": cpu, "fpgaLatency": accelerator, "size": size,
             "isBackwardNode": backward}
    return found if colour is None else {**found, "colorClass": colour}


def workload(accelerators, cpus, memory, operators, edges, costs):
    """`edges` by position; `costs` by position of the source. The keys are those of the published workloads."""
    ids = [o["id"] for o in operators]
    edges = [{"sourceId": ids[a], "destId": ids[b], "cost": costs[a]} for a, b in edges]
    return {"maxSizePerFPGA": memory, "maxFPGAs": accelerators, "maxCPUs": cpus, "nodes": operators, "edges": edges}


def random_workload(seed, count, accelerators, cpus, training):
    rng = random.Random(f"workload {seed}")
    backward = count // 2 if training else 0
    operators = []
    for at in range(count):
        # The backward operator of a pair has the colour of the forward one.
        mirrored = count - 1 - at
        colour = min(at, mirrored) if training and rng.random() < 0.7 else None
        operators.append(operator(10 + 3 * at, rng.randint(4, 100), rng.randint(2, 80) / 4, rng.randint(1, 50),
                                  rng.random() < 0.85, colour, at >= count - backward))
    edges = {(max(0, to - 1 - rng.randrange(2)), to) for to in range(1, count)}
    edges |= {(rng.randrange(to), to) for to in range(2, count) if rng.random() < 0.4}
    memory = max(50, int(sum(o["size"] for o in operators) * rng.uniform(0.4, 0.8)))
    return workload(accelerators, cpus, memory, operators, sorted(edges), [rng.randint(0, 20) / 4 for _ in range(count)])


def edges_of(w):
    index = {o["id"]: at for at, o in enumerate(w["nodes"])}
    return [(index[e["sourceId"]], index[e["destId"]], e["cost"]) for e in w["edges"]]


def largest_load(w, device):
    """Largest load of a device; devices 0 .. maxFPGAs - 1 are accelerators, the CPUs follow."""
    accelerators = w["maxFPGAs"]
    loads = [0] * (accelerators + w["maxCPUs"])
    for o, d in zip(w["nodes"], device):
        loads[d] += o["fpgaLatency"] if d < accelerators else o["cpuLatency"]
    moved = set()
    for a, b, cost in edges_of(w):
        if device[a] != device[b]:
            moved |= {(a, d, cost) for d in (device[a], device[b]) if d < accelerators}
    for _, d, cost in moved:
        loads[d] += cost
    return max(loads)


def finish(w, device):
    """When one sample is finished, None if blocks wait for each other. An accelerator runs its operators as one block, or,
    where such blocks would wait for each other, as one block for each time that a path comes back to it."""
    count, edges = len(w["nodes"]), edges_of(w)
    returns = [0] * count
    for accelerator in range(w["maxFPGAs"]):
        visits = [0] * count
        for _ in range(count):
            for a, b, _ in edges:
                enters = device[b] == accelerator and device[a] != accelerator
                visits[b] = max(visits[b], max(visits[a], device[a] == accelerator) + enters)
        for at in range(count):
            if device[at] == accelerator:
                returns[at] = max(1, visits[at]) - 1
    whole = timetable(w, edges, device, [0] * count)
    return timetable(w, edges, device, returns) if whole is None else whole


def timetable(w, edges, device, part):
    unit = [("block", d, p) if d < w["maxFPGAs"] else ("alone", at) for at, (d, p) in enumerate(zip(device, part))]
    time = {}
    for o, u in zip(w["nodes"], unit):
        time[u] = time.get(u, 0) + (o["fpgaLatency"] if u[0] == "block" else o["cpuLatency"])
    moves = {(a, u, c) for a, b, c in edges if unit[a] != unit[b] for u in (unit[a], unit[b]) if u[0] == "block"}
    for _, u, cost in moves:
        time[u] += cost
    waits = {u: set() for u in time}
    for a, b, _ in edges:
        if unit[a] != unit[b]:
            waits[unit[b]].add(unit[a])
    blocks = sorted(u for u in time if u[0] == "block")
    for one, two in zip(blocks, blocks[1:]):
        if one[1] == two[1]:
            waits[two].add(one)
    end = {}
    while len(end) < len(time):
        ready = [u for u in time if u not in end and waits[u] <= end.keys()]
        if not ready:
            return None
        for u in ready:
            end[u] = time[u] + max((end[v] for v in waits[u]), default=0)
    return max(end.values())


def best_placement(w, value):
    """The least value over all placements that keep support, colours and memory. Devices of one kind are alike, so a
    device is only used after the one before it."""
    accelerators, cpus = w["maxFPGAs"], w["maxCPUs"]
    best, device, nodes = None, [], w["nodes"]

    def extend():
        nonlocal best
        at = len(device)
        if at == len(nodes):
            found = value(w, device)
            if found is not None and (best is None or found < best):
                best = found
            return
        o = nodes[at]
        for d in range(accelerators + cpus):
            on_accelerator = d < accelerators
            first = 0 if on_accelerator else accelerators
            if d > first and d - 1 not in device:
                continue
            if on_accelerator and not o["supportedOnFpga"]:
                continue
            if on_accelerator and o["size"] + sum(n["size"] for n, e in zip(nodes, device) if e == d) > w["maxSizePerFPGA"]:
                continue
            colour = o.get("colorClass")
            if colour is not None and any(n.get("colorClass") == colour and e != d for n, e in zip(nodes, device)):
                continue
            device.append(d)
            extend()
            device.pop()

    extend()
    return best


def planted_throughput(seed, blocks, length):
    """A chain of `blocks` blocks that take equal time on accelerators, with free transfers between blocks, and a CPU on which
    any one operator takes longer than a block. The largest load is at least the total time divided by the number of
    accelerators; one block per accelerator reaches that."""
    rng = random.Random(f"planted throughput {seed}")
    operators, costs, total = [], [], 240
    for block in range(blocks):
        cuts = sorted(rng.sample(range(1, total), length - 1))
        for at, (low, high) in enumerate(zip([0] + cuts, cuts + [total])):
            operators.append(operator(len(operators), 2 * total + rng.randrange(100), (high - low) / 4, rng.randint(1, 40)))
            costs.append(0 if at == length - 1 else rng.randint(8, 40) / 4)
    memory = max(sum(o["size"] for o in operators[b * length:(b + 1) * length]) for b in range(blocks))
    chain = [(at, at + 1) for at in range(len(operators) - 1)]
    return workload(blocks, 1, memory, operators, chain, costs), total / 4


def planted_latency(seed, branches, length):
    """Branches between a first and a last operator that only the CPU supports; on the CPU, one operator of a branch takes
    longer than everything else together. So every branch is on accelerators and takes at least the transfer of its input,
    the times of its operators and the transfer of its output. One branch per accelerator takes no more."""
    rng = random.Random(f"planted latency {seed}")
    operators, edges, costs = [operator(0, 12, 0, 0, False)], [], [rng.randint(4, 20) / 4]
    longest, ends = 0, []
    for _ in range(branches):
        times = [rng.randint(8, 80) / 4 for _ in range(length)]
        for at, time in enumerate(times):
            edges.append((0 if at == 0 else len(operators) - 1, len(operators)))
            operators.append(operator(len(operators), 10000, time, rng.randint(1, 40)))
            costs.append(rng.randint(4, 20) / 4)
        ends.append(len(operators) - 1)
        longest = max(longest, costs[0] + sum(times) + costs[-1])
    edges += [(end, len(operators)) for end in ends]
    operators.append(operator(len(operators), 7, 0, 0, False))
    memory = max(sum(o["size"] for o in operators[1 + b * length:1 + (b + 1) * length]) for b in range(branches))
    return workload(branches, 1, memory, operators, edges, costs + [0]), 12 + longest + 7


def placement():
    best = {"throughput": {}, "latency": {}}
    # Operators, accelerators, CPUs, and whether there is a backward pass.
    tiny = [(5, 1, 1, False), (7, 2, 1, False), (8, 2, 1, True), (8, 2, 2, False), (9, 1, 1, True), (9, 3, 1, False)]
    for seed, (count, accelerators, cpus, training) in enumerate(tiny):
        w = random_workload(seed, count, accelerators, cpus, training)
        for objective, value in [("throughput", largest_load), ("latency", finish)]:
            name = f"tiny_{seed}" + ("_training" if training else "")
            write_json(f"placement/{objective}/{name}.json", w)
            best[objective][name] = best_placement(w, value)
    for objective, plant, sizes in [("throughput", planted_throughput, [(3, 5), (4, 12)]),
                                    ("latency", planted_latency, [(2, 6), (3, 10)])]:
        for seed, (blocks, length) in enumerate(sizes):
            name = f"planted_{blocks}x{length}"
            w, best[objective][name] = plant(seed, blocks, length)
            write_json(f"placement/{objective}/{name}.json", w)
    write_json("placement/best.json", best)


class Program:
    """Operators in program order. An operand is a resident tensor or a value; a value lies in a storage, which it shares
    with the value that it overwrites."""

    def __init__(self):
        self.sizes, self.resident, self.operators, self.view_of = [], [], [], {}

    def tensor(self, size):
        self.sizes.append(size)
        return len(self.sizes) - 1

    def input(self, size):
        self.resident.append(self.tensor(size))
        return self.resident[-1]

    def run(self, name, time, ins, size=None, over=None, workspace=0, attr=None):
        """Adds an operator with a result of `size` units, or one that overwrites `over`, and returns its result."""
        out = self.tensor(size) if over is None else over
        self.operators.append((name, time, list(ins), out, workspace, attr or {}))
        return out

    def view(self, of):
        out = self.tensor(self.sizes[of])
        self.view_of[out] = of
        self.operators.append((".share", 0, [of], out, 0, {}))
        return out

    def outputs(self):
        read = {self.root(x) for _, _, ins, _, _, _ in self.operators for x in ins}
        made = dict.fromkeys(self.root(out) for _, _, _, out, _, _ in self.operators)
        return [x for x in made if x not in read]

    def root(self, x):
        return self.root(self.view_of[x]) if x in self.view_of else x


KIB = 1024


def pattern(program):
    """The program as a pattern file, every value freed after its last use."""
    outputs, last = set(program.outputs()), {}
    for at, (_, _, ins, out, _, _) in enumerate(program.operators):
        last.update((x, at) for x in (*ins, out))
    code = []
    for at, (name, time, ins, out, workspace, attr) in enumerate(program.operators):
        code.append({"name": name, "attr": attr, "ins": ins, "outs": [out], "workspace": workspace * KIB, "time": time})
        kept = outputs | set(program.resident)
        freed = sorted(x for x in {*ins, out} if last[x] == at and x not in kept)
        if freed:
            code.append({"name": ".dealloc", "attr": {}, "ins": [], "outs": freed, "workspace": 0, "time": 0})
    data = [{"id": at, "type": "Float32", "shape": [size * KIB // 4], "arch": "CPU", "size": size * KIB}
            for at, size in enumerate(program.sizes)]
    return {"code": code, "data": data, "inputs": program.resident, "outputs": sorted(outputs), "version": "generated-1"}


def graph(program):
    """The same program as tensors and operators, without frees."""
    outputs = set(program.outputs())
    kind = lambda x: "input" if x in program.resident else "output" if x in outputs else "act"
    tensors = [{"id": at, "size": size * KIB, "kind": kind(at), "shape": [size * KIB // 4], "dtype": "float32"}
               for at, size in enumerate(program.sizes)]
    ops = [{"name": name, "ins": ins, "outs": [out], "ws": workspace * KIB, "time_us": time}
           for name, time, ins, out, workspace, _ in program.operators]
    return {"tensors": tensors, "ops": ops}


class States:
    """All schedules of a program, recomputation included, as paths through sets of live values.

    An operator may run whenever the values that it reads are live. Its result stays until it is freed; any live value that is
    not an output of the program may be freed at any time. While an operator runs, its result and its workspace count."""

    def __init__(self, program):
        self.steps, current, count = [], {}, 0
        self.sizes = []
        for name, time, ins, out, workspace, _ in program.operators:
            if name == ".share":
                continue
            reads = 0
            for x in ins:
                root = program.root(x)
                if root not in program.resident:
                    reads |= 1 << current[root]
            root = program.root(out)
            replaced = 1 << current[root] if root in current else 0
            current[root] = count
            self.sizes.append(program.sizes[root])
            self.steps.append((reads, replaced, 1 << count, time, workspace))
            count += 1
        # Values of one storage exclude each other: to write one is to lose the others.
        storage = [program.root(out) for name, _, _, out, _, _ in program.operators if name != ".share"]
        self.rivals = [sum(1 << j for j in range(count) if j != i and storage[i] == storage[j]) for i in range(count)]
        self.goal = sum(1 << current[x] for x in program.outputs())
        self.base = sum(program.sizes[x] for x in program.resident)
        self.count = count
        self.bytes = [0] * (1 << count)
        for state in range(1, 1 << count):
            low = state & -state
            self.bytes[state] = self.bytes[state ^ low] + self.sizes[low.bit_length() - 1]

    def next(self, state):
        """What can be done: the state after it, its time and the bytes that it takes."""
        for index, (reads, replaced, made, time, workspace) in enumerate(self.steps):
            if state & reads == reads and not state & made:
                # What is overwritten without being read is freed first.
                after = state & ~self.rivals[index] | made
                yield after, time, self.base + self.bytes[after] + workspace
        free = state & ~self.goal
        while free:
            low = free & -free
            yield state ^ low, 0, 0
            free ^= low

    def least_time(self, limit):
        """The least time of a schedule that takes at most `limit`, None if there is none: Dijkstra's algorithm."""
        best, queue = {0: 0}, [(0, 0)]
        while queue:
            time, state = heapq.heappop(queue)
            if state & self.goal == self.goal:
                return time
            if time > best[state]:
                continue
            for after, more, peak in self.next(state):
                if peak <= limit and time + more < best.get(after, float("inf")):
                    best[after] = time + more
                    heapq.heappush(queue, (time + more, after))
        return None

    def front(self):
        """All pairs of peak and least time that no other pair is better than, by falling peak."""
        high, points = self.base + sum(self.sizes) + max(s[4] for s in self.steps), []
        time = self.least_time(high)
        while time is not None:
            low, top = self.base, high
            while low < top:
                middle = (low + top) // 2
                found = self.least_time(middle)
                low, top = (low, middle) if found is not None and found <= time else (middle + 1, top)
            points.append((top, time))
            high = top - 1
            time = self.least_time(high)
        return points


def original(program):
    """Peak and time in program order."""
    states, state, peak, time = States(program), 0, 0, 0
    last = {}
    for at, (reads, replaced, made, _, _) in enumerate(states.steps):
        for value in range(states.count):
            if (reads | made) >> value & 1:
                last[value] = at
    for at, (reads, replaced, made, spent, workspace) in enumerate(states.steps):
        state = state & ~replaced | made
        peak, time = max(peak, states.base + states.bytes[state] + workspace), time + spent
        for value, use in last.items():
            if use == at and not states.goal >> value & 1:
                state &= ~(1 << value)
    return peak, time


def branches():
    """Two branches that swell and shrink: a bad order holds both swellings."""
    p = Program()
    x = p.input(4)
    a = p.run("expand", 3, [x], 40)
    b = p.run("expand", 3, [x], 48)
    c = p.run("reduce", 2, [a], 6)
    d = p.run("reduce", 2, [b], 5)
    e = p.run("expand", 4, [c], 30)
    f = p.run("reduce", 1, [e], 4)
    p.run("join", 1, [d, f], 8)
    return p


def skip():
    """A long skip connection whose value is cheap to compute again."""
    p = Program()
    x = p.input(8)
    a = p.run("cheap", 1, [x], 32)
    b = p.run("conv", 9, [a], 20, workspace=6)
    c = p.run("conv", 9, [b], 44, workspace=4)
    d = p.run("conv", 9, [c], 24)
    e = p.run("pool", 2, [d], 6)
    p.run("add", 1, [a, e], 8)
    return p


def random_program(seed, count):
    rng = random.Random(f"program {seed}")
    p = Program()
    values = [p.input(rng.randint(2, 12))]
    for at in range(count):
        ins = list(dict.fromkeys(rng.choice(values[-5:]) for _ in range(rng.randint(1, 3))))
        time, size, workspace = rng.randint(1, 12), rng.randint(2, 60), rng.choice([0, 0, rng.randint(1, 20)])
        values.append(p.run(f"op{at % 3}", time, ins, size, workspace=workspace, attr={"index": at}))
    return p


def training(layers):
    """A chain of layers with its backward pass: the gradient of a layer needs what the layer read."""
    p = Program()
    x, w = p.input(16), [p.input(4 + at) for at in range(layers)]
    kept = [x]
    for at in range(layers):
        kept.append(p.run("layer", 4 + at % 3, [kept[-1], w[at]], 16 + 4 * (at % 2), workspace=2, attr={"layer": at}))
    gradient = p.run("loss", 1, [kept[-1]], 18)
    for at in reversed(range(layers)):
        p.run("weight_gradient", 3, [gradient, kept[at]], 4 + at, attr={"layer": at})
        if at:
            gradient = p.run("input_gradient", 5, [gradient, w[at]], 16 + 4 * ((at + 1) % 2), attr={"layer": at})
    return p


def in_place():
    """Activations overwritten in place, and a view."""
    p = Program()
    x, w = p.input(6), p.input(5)
    a = p.run("conv", 6, [x, w], 40)
    p.run("relu_", 1, [a], over=a)
    b = p.run("conv", 8, [a], 36)
    p.run("relu_", 1, [b], over=b)
    v = p.view(b)
    c = p.run("dense", 4, [v], 12)
    d = p.run("pool", 2, [a], 10)
    p.run("add", 1, [c, d], 12)
    return p


def memory():
    programs = {"branches": branches(), "skip": skip(), "random_7": random_program(0, 7), "random_9": random_program(1, 9),
                "random_12": random_program(2, 12), "training_3": training(3), "training_4": training(4),
                "in_place": in_place()}
    fronts = {}
    for name, program in programs.items():
        write_json(f"memory/{name}.pattern.json", pattern(program))
        peak, time = original(program)
        points = States(program).front()
        fronts[name] = {"original": {"peak_bytes": peak * KIB, "time_us": time},
                        "front": [{"peak_bytes": p * KIB, "time_us": t} for p, t in reversed(points)]}
    write_json("memory/training_4.graph.json", graph(programs["training_4"]))
    write_json("memory/front.json", fronts)


def write(path, text):
    path = os.path.join(HERE, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)


def write_json(path, value):
    """One entry of the outer lists a line, so that a diff shows what changed."""
    lines = []
    for key, entry in value.items():
        if isinstance(entry, list) and entry and isinstance(entry[0], dict):
            entry = "[\n" + ",\n".join("  " + json.dumps(e) for e in entry) + "\n ]"
        elif isinstance(entry, dict) and path.endswith(("best.json", "front.json")):
            entry = "{\n" + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in entry.items()) + "\n }"
        else:
            entry = json.dumps(entry)
        lines.append(f" {json.dumps(key)}: {entry}")
    write(path, "{\n" + ",\n".join(lines) + "\n}\n")


def main():
    for folder in ("arena", "placement", "memory"):
        shutil.rmtree(os.path.join(HERE, folder), ignore_errors=True)
    arena()
    placement()
    memory()


if __name__ == "__main__":
    main()
