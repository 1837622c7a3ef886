"""`edgecut.InferenceSession`: ONNX Runtime's interface and results, on one device and on real agents."""

import threading
import time
import warnings

import numpy
import pytest

import edgecut

from conftest import ROOT, processes

onnxruntime = pytest.importorskip("onnxruntime")

#: One input, `image`, of a fixed shape.
CONVOLUTIONS = ROOT / "tests" / "data" / "interface" / "convolutions.onnx"
#: Its inputs `condition` and `shape` decide what it computes of `x`.
DECIDED = ROOT / "tests" / "data" / "interface" / "decided.onnx"
#: Two inputs of any size.
OPEN = ROOT / "tests" / "data" / "interface" / "open.onnx"

#: Little is measured, nothing is run before.
QUICK = {"profile_budget": "1s", "rehearse": 0, "split": False}


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """Plans and profiles are in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGECUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("EDGECUT_CLUSTER", raising=False)


@pytest.fixture
def servers(command, tmp_path):
    """Two agents, as processes, and their cluster file."""
    path = tmp_path / "cluster.toml"
    with processes(command, ("one", "two"), "--engine", "onnxruntime") as (started, text):
        path.write_text(text)
        yield started, path
        # Sessions that are not collected yet have plans loaded, for which an agent that is terminated waits.
        for agent in started:
            agent.kill()


def image(seed=0):
    return {"image": numpy.random.default_rng(seed).standard_normal((1, 16, 48, 48), dtype="float32")}


def expected(model, feed):
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feed)


def assert_same(found, wanted):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted):
        assert one.dtype == other.dtype and one.shape == other.shape and one.flags.writeable
        numpy.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def planned(cluster):
    """A plan with groups on both agents."""
    pins = ["#0=one/cpu", "#1=two/cpu"]
    return edgecut.plan(CONVOLUTIONS, cluster=cluster, pin=pins, progress=lambda step: None, **QUICK)


def test_one_device_is_onnx_runtime():
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = edgecut.InferenceSession(CONVOLUTIONS.read_bytes(), options, providers=["CPUExecutionProvider"])
    theirs = onnxruntime.InferenceSession(CONVOLUTIONS, options, providers=["CPUExecutionProvider"])
    assert isinstance(session, onnxruntime.InferenceSession) and session.plans == ()
    for metadata in ("get_inputs", "get_outputs"):
        ours, other = ([(arg.name, arg.shape, arg.type) for arg in getattr(s, metadata)()] for s in (session, theirs))
        assert ours == other
    assert session.get_providers() == theirs.get_providers()
    assert session.get_modelmeta().graph_name == theirs.get_modelmeta().graph_name
    assert (session.run(["r3"], image())[0] == theirs.run(["r3"], image())[0]).all()


@pytest.mark.parametrize(
    "names, feed",
    [
        (None, {}),
        (None, {"picture": image()["image"]}),
        (["r4"], image()),
        (None, {"image": image()["image"].astype("float64")}),
        (None, {"image": image()["image"][:, :8]}),
        (None, {"image": image()["image"][0]}),
    ],
)
def test_errors_are_those_of_onnx_runtime(servers, names, feed):
    plan = planned(servers[1])
    session, theirs = edgecut.InferenceSession(CONVOLUTIONS, plan=plan), onnxruntime.InferenceSession(CONVOLUTIONS)
    assert session.plans == (plan,)
    with pytest.raises(Exception) as wanted:
        theirs.run(names, feed)
    with pytest.raises(type(wanted.value)) as found:
        session.run(names, feed)
    assert str(found.value) == str(wanted.value)


def test_a_plan_computes_and_failover_goes_on(servers):
    started, cluster = servers
    plan = planned(cluster).save("plan.json")
    session = edgecut.InferenceSession(CONVOLUTIONS, plan=plan.path)
    wanted = [expected(CONVOLUTIONS, image(seed)) for seed in range(30)]
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", RuntimeWarning)
        warnings.simplefilter("ignore", ResourceWarning)
        for seed in range(30):
            if seed == 10:
                assert not heard, [str(warning.message) for warning in heard]
                started[1].kill()
            assert_same(session.run(None, image(seed)), wanted[seed])
    assert any("falling back to ONNX Runtime" in str(warning.message) for warning in heard)


def test_a_plan_of_another_model_is_refused(servers):
    with pytest.raises(edgecut.InputError, match="hash"):
        edgecut.InferenceSession(DECIDED, plan=planned(servers[1]))


def test_the_first_call_plans_and_the_plan_is_kept(servers, monkeypatch):
    monkeypatch.setenv("EDGECUT_CLUSTER", str(servers[1]))
    feed = image()
    for _ in range(2):
        session = edgecut.InferenceSession(CONVOLUTIONS.read_bytes(), plan_options=QUICK)
        assert session.plans == ()
        assert_same(session.run(None, feed), expected(CONVOLUTIONS, feed))
        (plan,) = session.plans
        assert [path.name for path in plan.path.parent.glob("*.json")] == [plan.path.name]
        del session


def test_threads_share_a_session(servers):
    session = edgecut.InferenceSession(CONVOLUTIONS, plan=planned(servers[1]))
    wrong = []

    def call(seed):
        for at in range(seed, seed + 20):
            try:
                assert_same(session.run(None, image(at)), expected(CONVOLUTIONS, image(at)))
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=call, args=(100 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(session.plans) == 1


def test_run_async_calls_back(servers):
    session = edgecut.InferenceSession(CONVOLUTIONS, plan=planned(servers[1]))
    heard, done = [], threading.Event()

    def callback(outputs, user_data, message):
        heard.append((outputs, user_data, message))
        done.set()

    session.run_async(["r3"], image(), callback, 7)
    assert done.wait(60)
    ((outputs, user_data, message),) = heard
    assert_same(outputs, expected(CONVOLUTIONS, image()))
    assert user_data == 7 and message == ""


def test_contents_that_decide_have_plans_of_their_own(servers):
    session = edgecut.InferenceSession(DECIDED, cluster=servers[1], plan_options=QUICK)
    for _ in range(3):
        for condition in (True, False):
            for shape in ((3, 4), (2, 6)):
                feed = {
                    "x": numpy.arange(12, dtype="float32").reshape(2, 6),
                    "condition": numpy.array(condition),
                    "shape": numpy.array(shape, dtype="int64"),
                }
                assert_same(session.run(None, feed), expected(DECIDED, feed))


def test_further_shapes_are_planned_in_the_background(servers):
    session = edgecut.InferenceSession(OPEN, cluster=servers[1], plan_options=QUICK, max_shapes=2)

    def call(tokens):
        rng = numpy.random.default_rng(tokens)
        ids, image = rng.integers(0, 2, (1, tokens)), rng.standard_normal((1, 3, 2, tokens), dtype="float32")
        # ONNX Runtime takes lists, too.
        assert_same(session.run(None, {"ids": ids.tolist(), "image": image}), expected(OPEN, {"ids": ids, "image": image}))
        return {plan.path.stem for plan in session.plans}

    def call_until(tokens, holds):
        deadline = time.monotonic() + 60
        while not holds(call(tokens)):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        return call(tokens)

    first = call(4)
    assert len(first) == 1
    both = call_until(5, lambda plans: len(plans) == 2)
    assert first < both and call(4) == both
    # The shape that was unused for longest gives way.
    others = call_until(6, lambda plans: len(plans) == 2 and plans != both)
    assert first < others


def test_sessions_share_agents(servers):
    plan = planned(servers[1])
    sessions = [edgecut.InferenceSession(CONVOLUTIONS, plan=plan) for _ in range(3)]
    assert all(session.plans for session in sessions)
    for seed in range(6):
        assert_same(sessions[seed % 3].run(None, image(seed)), expected(CONVOLUTIONS, image(seed)))
