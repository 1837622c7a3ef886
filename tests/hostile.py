"""Hostile clients and models against a real agent: how soon it serves an honest client after each, and the peak memory of its
worker.

    python3 tests/hostile.py BINARY [NAME …]      # all attacks, or those whose name contains NAME

Starts `BINARY agent --memory 512MiB`, attacks it, and asks it for its devices until it answers. Exits with 1 if that takes longer
than 5 s after an attack, or if the worker held more than 512 + 128 MiB. Needs numpy and onnx, and onnxruntime for the worst
models: edgecut finds it through the `python3` of PATH. Memory is only measured on Linux.
"""

import os, random, selectors, signal, socket, struct, subprocess, sys, tempfile, threading, time

MIB = 1 << 20
MEMORY, ROOM = 512 * MIB, 128 * MIB
SOON = 5.0
PATIENCE = 120.0
PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
DATA, HEADERS, SETTINGS, PING = 0, 1, 4, 6
END_STREAM, END_HEADERS, ACK = 1, 4, 1


class Agent:
    """An agent in a folder of its own, and the peak of its worker's memory."""

    def __init__(self, binary, stderr=subprocess.DEVNULL):
        self.binary = binary
        self.folder = tempfile.TemporaryDirectory()
        # Locks of measurements are in the folder for temporary files: others' measurements must not be waited for.
        self.environment = dict(os.environ, TMPDIR=self.folder.name, EDGECUT_CONFIG='', NO_COLOR='1')
        self.environment.pop('EDGECUT_CLUSTER', None)
        command = [binary, 'agent', '--name', 's0', '--listen', '127.0.0.1:0', '--threads', '1', '--memory', '512MiB']
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, env=self.environment, cwd=self.folder.name)
        line = self.process.stdout.readline().decode()
        if not line.startswith('listening on '):
            sys.exit(f'the agent did not start: {line!r}')
        address = line.split()[-1]
        host, port = address.rsplit(':', 1)
        self.address = host, int(port)
        self.write('lab.toml', f'[[server]]\nname = "s0"\naddress = "{address}"\n')
        self.peak, self.workers, self.is_watched = 0, set(), True
        threading.Thread(target=self.watch, daemon=True).start()

    def write(self, name, content):
        path = os.path.join(self.folder.name, name)
        with open(path, 'wb') as file:
            file.write(content.encode() if isinstance(content, str) else content)
        return path

    def worker(self):
        pid = self.process.pid
        try:
            with open(f'/proc/{pid}/task/{pid}/children') as file:
                return int(file.read().split()[0])
        except (OSError, IndexError):
            return None

    def watch(self):
        """A worker that is killed takes its peak with it, so the peak is read often."""
        while self.is_watched:
            worker = self.worker()
            if worker is not None:
                self.workers.add(worker)
                self.peak = max(self.peak, status(worker, 'VmHWM:'))
            time.sleep(0.02)

    def begin(self):
        """Forgets the peak and the workers so far."""
        worker = self.worker()
        try:
            with open(f'/proc/{worker}/clear_refs', 'w') as file:
                file.write('5')
        except OSError:
            pass
        self.peak, self.workers = 0, {worker}

    def connect(self):
        return socket.create_connection(self.address, timeout=PATIENCE)

    def run(self, *arguments, patience=PATIENCE):
        """The exit code of a client, `None` if it does not end in time."""
        command = [self.binary, *arguments, '--cluster', 'lab.toml']
        try:
            ran = subprocess.run(command, cwd=self.folder.name, env=self.environment, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=patience)
            return ran.returncode
        except subprocess.TimeoutExpired:
            return None

    def serves_after(self):
        """Seconds until a client is served."""
        begin = time.monotonic()
        while self.run('devices', patience=PATIENCE) != 0 and time.monotonic() - begin < PATIENCE:
            time.sleep(0.05)
        return time.monotonic() - begin

    def stop(self):
        self.is_watched = False
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()


def status(pid, name):
    """A size in a process's status, in bytes; 0 where the system does not report it."""
    try:
        with open(f'/proc/{pid}/status') as file:
            return next((int(line.split()[1]) << 10 for line in file if line.startswith(name)), 0)
    except OSError:
        return 0


def frame(kind, flags=0, stream=0, payload=b''):
    return struct.pack('>I', len(payload))[1:] + struct.pack('>BBI', kind, flags, stream) + payload


# Sockets

class IdleConnections:
    """HTTP/2 connections that send no request and answer settings and pings, until closed."""

    def __init__(self, agent, count):
        self.selector, self.is_open = selectors.DefaultSelector(), True
        for _ in range(count):
            connection = agent.connect()
            connection.sendall(PREFACE + frame(SETTINGS))
            connection.setblocking(False)
            self.selector.register(connection, selectors.EVENT_READ, bytearray())
        self.thread = threading.Thread(target=self.answer, daemon=True)
        self.thread.start()

    def answer(self):
        while self.is_open:
            for key, _ in self.selector.select(0.1):
                try:
                    read = key.fileobj.recv(1 << 16)
                    if not read:
                        raise ConnectionResetError
                    key.data.extend(read)
                    self.answer_frames(key.fileobj, key.data)
                except BlockingIOError:
                    pass
                except OSError:
                    self.selector.unregister(key.fileobj)
                    key.fileobj.close()

    def answer_frames(self, connection, buffer):
        while len(buffer) >= 9 and len(buffer) >= 9 + (length := int.from_bytes(buffer[:3], 'big')):
            kind, flags, payload = buffer[3], buffer[4], bytes(buffer[9:9 + length])
            del buffer[:9 + length]
            if kind in (SETTINGS, PING) and not flags & ACK:
                connection.send(frame(kind, ACK, 0, payload if kind == PING else b''))

    def close(self):
        self.is_open = False
        self.thread.join()
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()


class Sockets:
    """Sockets on which something was sent, open until closed."""

    def __init__(self, agent, sent):
        self.sockets = []
        for content in sent:
            connection = agent.connect()
            try:
                connection.sendall(content)
            except OSError:
                pass
            self.sockets.append(connection)

    def close(self):
        for connection in self.sockets:
            connection.close()


def idle(agent):
    connections = IdleConnections(agent, 600)
    # Pings come every 5 s.
    time.sleep(7)
    return connections


def silent(agent):
    return Sockets(agent, [b''] * 800)


def garbage(agent):
    rng = random.Random(1)
    return Sockets(agent, (rng.choice([b'', PREFACE, PREFACE + frame(SETTINGS)]) + rng.randbytes(1 << 16) for _ in range(400)))


# Setups

def document(content, last=True):
    """A chunk of a document, for the call that it is sent to: see `crates/agent/src/protocol/frame.rs`."""
    def message(method):
        text = lambda characters: bytes([0xa0 | len(characters)]) + characters
        head = b'\x81' + text(b'Task' if method == b'Profile' else b'Setup') + b'\x81' + text(b'last') + (b'\xc3' if last else b'\xc2')
        return struct.pack('<I', len(head)) + head + content
    return message


def header(name, value):
    """A header that is not compressed."""
    return b'\x00' + bytes([len(name)]) + name + bytes([len(value)]) + value


def receive(connection, count):
    """Exactly `count` bytes, or fewer if it ends."""
    received = bytearray()
    while len(received) < count and (read := connection.recv(count - len(received))):
        received += read
    return bytes(received)


def call(agent, method, messages):
    """Makes a call of the agent's service without a client's checks; returns the connection, without waiting for the reply."""
    headers = [(b':method', b'POST'), (b':scheme', b'http'), (b':path', b'/edgecut.v2.Agent/' + method), (b':authority', b's0'),
               (b'content-type', b'application/grpc'), (b'te', b'trailers')]
    connection = agent.connect()
    try:
        connection.sendall(PREFACE + frame(SETTINGS))
        # The agent's windows of 16 MiB, more than any document here, hold once its settings are acknowledged.
        settings = receive(connection, 9)
        receive(connection, int.from_bytes(settings[:3], 'big'))
        connection.sendall(frame(SETTINGS, ACK))
        connection.sendall(frame(HEADERS, END_HEADERS, 1, b''.join(header(*pair) for pair in headers)))
        for message in messages:
            message = message(method) if callable(message) else message
            message = b'\0' + struct.pack('>I', len(message)) + message
            for begin in range(0, len(message), 1 << 14):
                connection.sendall(frame(DATA, 0, 1, message[begin:begin + (1 << 14)]))
        connection.sendall(frame(DATA, END_STREAM, 1))
    except OSError:
        pass
    return connection


def chunked(content):
    pieces = [content[begin:begin + MIB] for begin in range(0, len(content), MIB)] or [b'']
    return [document(piece, number == len(pieces) - 1) for number, piece in enumerate(pieces)]


class Calls:
    def __init__(self, connections):
        self.connections = connections
        # They are read: an agent that has closed one has answered it.
        for connection in connections:
            connection.settimeout(1)
            try:
                while connection.recv(1 << 16):
                    pass
            except OSError:
                pass

    def close(self):
        for connection in self.connections:
            connection.close()


def setups(agent):
    rng = random.Random(1)
    empty = b'{"session":"s","server":"s0","peers":[%s],"values":[%s],"partitions":[],"sends":[],"source":null,"sink":null,' \
            b'"in_flight":1,"streamed":[]}'
    peer, value = b'{"server":"","address":""}', b'{"name":"v","ty":{"dtype":"float32","shape":[]}}'
    documents = [b'', b'{', b'null', b'[' * (1 << 20), b'{"session":' * (1 << 16), rng.randbytes(1 << 20), b'\xff' * 100,
                 empty % (b'', b''), empty % (b','.join([peer] * 400_000), b''), empty % (b'', b','.join([value] * 200_000)),
                 b'{"session":"' + b's' * (10 << 20) + b'"']
    calls = [chunked(content) for content in documents]
    calls += [[rng.randbytes(1 << 16)], [b''] * 10_000, [document(b'{', False)] * 10_000]
    methods = [b'Run', b'Profile', b'Transfer', b'Absorb', b'Probe', b'Describe']
    return Calls([call(agent, method, messages) for messages in calls for method in (methods if len(messages) < 2 else methods[:2])])


# Models

def onnx_model(nodes, outputs, inputs=(('x', 1, []),), initializers=(), hidden=()):
    """A model that declares smaller tensors than its nodes compute."""
    from onnx import helper, numpy_helper
    import numpy as np
    info = lambda name, element, shape: helper.make_tensor_value_info(name, element, shape)
    constants = [numpy_helper.from_array(np.array(content), name) for name, content in initializers]
    graph = helper.make_graph([helper.make_node(*node, **attributes) for node, attributes in nodes], 'g',
                              [info(*each) for each in inputs], [info(*each) for each in outputs], initializer=constants,
                              value_info=[info(*each) for each in hidden])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid('', 18)], ir_version=9).SerializeToString()


def models():
    """Models that compute 2^40 elements, which cannot be allocated, or 2^30 (4 GiB), which can; and such constants."""
    for exponent in 40, 30:
        for name, content in computed(1 << exponent):
            yield f'{name}-{exponent}.onnx', content
    yield 'zeros.relay', '''def @main(%x: Tensor[(4), float32]) {
  %0 = zeros(shape=[1073741824], dtype="float32");
  %1 = sum(%0, axis=[0]);
  add(%x, %1)
}
'''
    yield 'sliced.relay', '''def @main(%x: Tensor[(4), float32], %w_weight: Tensor[(1073741824), float32]) {
  %0 = strided_slice(%w_weight, begin=[0], end=[4], strides=[1], axes=None);
  add(%x, %0)
}
'''


def computed(size):
    """Models with a tensor of `size` elements whose declared type has four."""
    import numpy as np
    f32, i32, i64 = 1, 6, 7
    vast = [(('Mul', ['x', 'factor'], ['scaled']), {}), (('Cast', ['scaled'], ['size']), {'to': i64})]
    factor = [('factor', np.float32(size))]
    shape = [(('Reshape', ['size', 'one'], ['sizes']), {})]
    one = [('one', np.array([1], np.int64))]
    row, four = [('x', f32, [1])], [('y', f32, [4])]
    yield 'hann', onnx_model(vast + [(('HannWindow', ['size'], ['y']), {})], four, initializers=factor)
    yield 'multinomial', onnx_model([(('Multinomial', ['x'], ['y']), {'sample_size': size, 'dtype': i32})],
                                         [('y', i32, [1, 4])], [('x', f32, [1, 3])])
    yield 'crop', onnx_model(vast + shape + [(('CenterCropPad', ['x', 'sizes'], ['y']), {'axes': [0]})], four, row,
                                  factor + one)
    yield 'random', onnx_model([(('RandomNormal', [], ['r']), {'shape': [size]}), (('Add', ['r', 'x'], ['y']), {})],
                                    four, [('x', f32, [4])], hidden=[('r', f32, [4])])
    yield 'unpool', onnx_model(
        vast + shape + [(('Concat', ['ones', 'sizes'], ['whole']), {'axis': 0}),
                        (('MaxUnpool', ['values', 'indices', 'whole'], ['y']), {'kernel_shape': [2], 'strides': [2]})],
        [('y', f32, [1, 1, 4])], [*row, ('values', f32, [1, 1, 2]), ('indices', i64, [1, 1, 2])],
        factor + one + [('ones', np.array([1, 1], np.int64))])


def profiling(name, content, *flags):
    def attack(agent):
        agent.write(name, content)
        outcome = agent.run('profile', name, '--budget', '100ms', '--output', f'p{time.monotonic_ns()}', *flags)
        return f'exit code {outcome}'
    return attack


def deaf(binary):
    """An agent whose log cannot be written."""
    with open('/dev/full', 'wb') as full:
        agent = Agent(binary, stderr=full)
    for _ in range(50):
        agent.connect().close()
    return agent


def attacks():
    yield '600 idle connections', idle
    yield '800 silent sockets', silent
    yield '400 floods of garbage', garbage
    yield 'malformed setups', setups
    for name, content in models():
        engine = ['--engine', 'onnxruntime'] if name.endswith('.onnx') else []
        yield name, profiling(name, content, *engine)
        yield f'{name}, in situ', profiling(name, content, *engine, '--mode', 'in-situ')


def measured(name, agent, attack):
    """Attacks, and prints a row of the table; returns whether the agent met the limits."""
    agent.begin()
    held = attack(agent)
    seconds = agent.serves_after()
    # The watching thread has seen the last worker by then.
    time.sleep(0.05)
    restarts = len(agent.workers - {None}) - 1
    peak = agent.peak
    if hasattr(held, 'close'):
        held.close()
    is_kept = seconds <= SOON and peak <= MEMORY + ROOM
    print(f'{name:28} {seconds:8.2f} {peak / MIB:9.0f} {restarts:9} {"" if is_kept else "FAILED":6} '
          f'{held if isinstance(held, str) else ""}', flush=True)
    return is_kept


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    binary, names = os.path.abspath(sys.argv[1]), sys.argv[2:]
    is_chosen = lambda name: not names or any(part in name for part in names)
    print(f'{"attack":28} {"serves s":>8} {"peak MiB":>9} {"restarts":>9}')
    agent = Agent(binary)
    kept = [measured('none', agent, lambda _: None)]
    kept += [measured(name, agent, attack) for name, attack in attacks() if is_chosen(name)]
    agent.stop()
    if is_chosen('stderr to /dev/full'):
        agent = deaf(binary)
        kept.append(measured('stderr to /dev/full', agent, lambda _: None))
        agent.stop()
    print(f'{kept.count(False)} of {len(kept)} failed')
    sys.exit(0 if all(kept) else 1)


if __name__ == '__main__':
    main()
