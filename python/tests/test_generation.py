"""Tokens of a decoder: here, by a plan on two agents, and ended early."""

import gc
import signal
import subprocess
import sys
import threading

import pytest

import edgecut

from conftest import ROOT, agents, processes

DECODER = ROOT / "tests" / "data" / "decoder"
PROMPT = [3, 5, 7, 11, 13]


def quiet(step):
    pass


@pytest.fixture(scope="module")
def tokens():
    """Those of this machine."""
    return list(edgecut.generate(DECODER, PROMPT, tokens=8, progress=quiet))


def test_tokens_come_with_figures(tokens, capfd):
    generation = edgecut.generate(DECODER, iter(PROMPT), tokens=8, prompt=2, progress=quiet)
    assert iter(generation) is generation and generation.figures is None
    assert next(generation) == tokens[0]
    assert list(generation) == tokens[1:] and list(generation) == []
    figures = generation.figures
    assert figures.tokens == tuple(tokens) and figures.prompt_tokens == 5 and figures.prefill_us > 0
    assert figures.token_us.n == 7 and 0 < figures.token_us.min_us <= figures.token_us.median_us
    assert figures.is_equal is None and figures.exchanges == 0
    assert capfd.readouterr() == ("", "")
    assert len(set(tuple(edgecut.generate(DECODER, PROMPT, tokens=8, top_k=50, sampling_seed=seed)) for seed in range(4))) > 1


def test_a_plan_generates_the_same_tokens(tokens, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with agents(command, ["one", "two"]) as cluster:
        (tmp_path / "cluster.toml").write_text(cluster)
        plan = edgecut.plan(
            DECODER,
            context=32,
            prompt=len(PROMPT),
            cluster="cluster.toml",
            memory="2MiB",
            profile_budget="1s",
            rehearse=0,
            progress=quiet,
        )
        assert plan.prefill.prompt == len(PROMPT) and plan.prefill.time_us > 0 and plan.prefill.bound_us is None
        generation = edgecut.generate(plan, PROMPT, tokens=8, progress=quiet)
        assert list(generation) == tokens and generation.figures.is_equal is True
        predicted = generation.figures.predicted
        assert predicted.prefill_us == plan.prefill.time_us and predicted.token_us == plan.predicted.latency_us
        with edgecut.generate(plan, PROMPT, tokens=8, progress=quiet) as early:
            assert next(early) == tokens[0]
        assert early.figures is None and list(early) == []
        # The agents are free again.
        assert list(edgecut.generate(plan, PROMPT, tokens=2, check=False, progress=quiet)) == tokens[:2]


def test_a_sequence_goes_on_without_a_lost_agent(tokens, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # So slow that halves pay, and that tokens are left when the agent is killed.
    with processes(command, ["one", "two"], "--dilate", "300") as (started, cluster):
        (tmp_path / "cluster.toml").write_text(cluster)
        options = {"profile_budget": "300ms", "rehearse": 0, "budget": 2000, "progress": quiet}
        plan = edgecut.plan(DECODER, context=64, cluster="cluster.toml", **options)
        assert all(device.groups for device in plan.devices)
        steps = []
        generation = edgecut.generate(plan, PROMPT, tokens=40, progress=steps.append)
        first = [next(generation) for _ in range(2)]
        started[1].kill()
        found = first + list(generation)
        assert found[:8] == tokens and len(found) == 40
        assert any("tokens left, on one/cpu" in step.text for step in steps)
        assert generation.figures.is_equal is True and generation.figures.tokens == tuple(found)


@pytest.mark.parametrize(
    ("call", "expected", "part"),
    [
        (lambda: edgecut.generate("missing", PROMPT), edgecut.ModelError, "missing"),
        (lambda: edgecut.generate(DECODER, []), edgecut.InputError, "option `prompt_ids`"),
        (lambda: edgecut.generate(DECODER, PROMPT, tokens=0), edgecut.InputError, "option `tokens`"),
        (lambda: edgecut.generate(DECODER, [10**9]), edgecut.InputError, "there is no token"),
        (lambda: edgecut.generate(DECODER, PROMPT, context=4), edgecut.InputError, "context"),
        (lambda: edgecut.generate(ROOT / "models" / "lstm.relay", PROMPT), edgecut.EdgecutError, "decoder"),
    ],
)
def test_wrong_input_is_raised_at_the_first_token(call, expected, part):
    generation = call()
    with pytest.raises(expected) as caught:
        next(generation)
    assert part in str(caught.value)
    assert list(generation) == []


@pytest.fixture(scope="module")
def slow(command, tmp_path_factory):
    """A plan for an agent that computes a thousand times as slowly."""
    folder = tmp_path_factory.mktemp("slow")
    with agents(command, ["slow"], "--dilate", "1000") as cluster:
        (folder / "cluster.toml").write_text(cluster)
        yield edgecut.plan(
            DECODER,
            context=64,
            cluster=folder / "cluster.toml",
            profile=folder,
            profile_budget="1s",
            rehearse=0,
            output=folder / "plan.json",
            progress=quiet,
        )


def test_a_dropped_generation_leaves_its_agents(slow, tokens):
    generation = edgecut.generate(slow, PROMPT, tokens=60, progress=quiet)
    assert next(generation) == tokens[0]
    del generation
    gc.collect()
    # An agent that is in use refuses after 5 s, which is less than the other tokens would take.
    again = edgecut.generate(slow, PROMPT, tokens=1, check=False, progress=quiet)
    assert list(again) == tokens[:1]


def test_another_thread_is_refused(slow):
    with edgecut.generate(slow, PROMPT, tokens=60, progress=quiet) as generation:
        refused = []

        def read():
            try:
                while not refused:
                    next(generation)
            except ValueError as error:
                refused.append(error)

        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert refused and "another thread" in str(refused[0])


def test_ctrl_c_ends_it(slow):
    code = f"""
import edgecut
plan = edgecut.Plan.load({str(slow.path)!r})
for token in edgecut.generate(plan, {PROMPT}, tokens=60, progress=lambda step: None):
    print(token, flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout.readline().strip().isdecimal()
    child.send_signal(signal.SIGINT)
    others, errors = child.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors and len(others.split()) < 59
