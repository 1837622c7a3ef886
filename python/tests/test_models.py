"""Models: what is in them, and where they are wrong."""

import pickle

import pytest

import edgecut


def test_a_summary_has_what_is_in_the_model(small):
    found = edgecut.inspect(small)
    assert found.operators == len(found.graph) == 6
    assert [tensor.name for tensor in found.inputs] == ["data"]
    assert found.parameters.tensors == 3 and found.parameters.bytes == 4 * found.parameters.elements
    assert {kind.op: kind.count for kind in found.kinds}["nn.conv2d"] == 2
    assert found.flops == sum(kind.flops for kind in found.kinds) > 0
    assert "6 operators" in str(found)


def test_a_graph_is_tables_and_text(small, tmp_path):
    graph = edgecut.Graph(small)
    operators = graph.operators.to_pylist()
    assert [row["operator"] for row in operators][:2] == ["nn.conv2d", "nn.relu"]
    tensors = {row["id"]: row for row in graph.tensors.to_pylist()}
    assert tensors[int(operators[1]["inputs"])]["producer"] == 0
    copy = tmp_path / "copy.relay"
    copy.write_text(graph.to_relay())
    assert len(edgecut.Graph(copy)) == len(graph)


def test_an_error_has_its_place(tmp_path):
    path = tmp_path / "bad.relay"
    path.write_text('#[version = "0.0.5"]\ndef @main(%x: Tensor[(2, 2), float32]) {\n  nn.rulu(%x)\n}\n')
    with pytest.raises(edgecut.ModelError) as caught:
        edgecut.inspect(path)
    error = caught.value
    assert (error.path, error.line, error.column) == (str(path), 3, 3)
    assert error.message.startswith("unknown operator `nn.rulu` (did you mean `nn.relu`?)")
    assert str(error) == f"{path}:3:3: {error.message}"


@pytest.mark.parametrize(
    ("call", "expected", "part"),
    [
        (lambda path: edgecut.inspect("missing.relay"), edgecut.ModelError, "missing.relay: No such file"),
        (lambda path: edgecut.inspect(path, bind_dim="x:y=z"), edgecut.InputError, "option `bind_dim`"),
        (lambda path: edgecut.plan(path, memory="many"), edgecut.InputError, "option `memory`"),
        (lambda path: edgecut.plan(path, objective="beauty"), ValueError, "option `objective`"),
        (lambda path: edgecut.plan(path, cluster="none.toml"), edgecut.ClusterError, "none.toml"),
        (lambda path: edgecut.Plan.load(path), edgecut.InputError, "not a plan"),
        (lambda path: edgecut.Plan.load("no.json"), edgecut.InputError, "no.json: No such file"),
        (lambda path: edgecut.run("no.json"), edgecut.InputError, "no.json: No such file"),
        (lambda path: edgecut.Plan.load(path.parent), edgecut.InputError, "Is a directory"),
    ],
)
def test_wrong_input_has_a_class_and_a_message(small, call, expected, part):
    with pytest.raises(expected) as caught:
        call(small)
    assert isinstance(caught.value, edgecut.EdgecutError) and part in caught.value.message


def test_a_cluster_file_is_wrong(small, tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text('[[server]]\nname = "one"\naddres = "h:1"\n')
    with pytest.raises(edgecut.ClusterError, match="addres"):
        edgecut.profile(small, cluster=path)


def test_what_begins_with_a_dash_is_no_flag(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(edgecut.ModelError, match="--help"):
        edgecut.inspect("--help")


def test_a_summary_without_its_graph_is_plain_data(small):
    kinds = edgecut.inspect(small).kinds
    assert pickle.loads(pickle.dumps(kinds)) == kinds
