"""Tables are read by others without a copy."""

import csv
import datetime
import subprocess

import pandas
import polars
import pyarrow

import edgecut


def test_arrow_reads_tables(small):
    table = edgecut.Graph(small).tensors
    arrow = pyarrow.table(table)
    assert arrow.column_names == table.column_names and arrow.num_rows == len(table) == table.num_rows
    assert arrow.to_pylist() == table.to_pylist()
    assert pyarrow.record_batch(table).to_pylist() == table.to_pylist()
    assert pyarrow.schema(table) == arrow.schema
    # The same memory, also after the table is gone.
    address = lambda found: found.column("bytes").chunk(0).buffers()[1].address
    assert address(arrow) == address(pyarrow.table(table))
    rows = table.to_pylist()
    del table
    assert arrow.to_pylist() == rows


def test_pandas_and_polars_read_tables(small):
    table = edgecut.Graph(small).operators
    assert table.to_pandas()["flops"].sum() == polars.DataFrame(table)["flops"].sum() == sum(table["flops"])
    if hasattr(pandas.DataFrame, "from_arrow"):
        assert list(pandas.DataFrame.from_arrow(table)["operator"]) == table["operator"]


def test_a_profile_has_the_columns_of_its_file(small):
    found = edgecut.profile(small, budget="1s", progress=lambda step: None)
    with found.devices[0].path.open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == found.table.column_names
    text = lambda cell: "" if cell is None else str(cell)
    for name in ("operator", "signature", "mode", "granularity", "shapes", "flops", "workspace_bytes", "axis", "n"):
        assert [row[name] for row in rows] == [text(cell) for cell in found.table[name]], name
    assert [float(row["time_us_median"]) for row in rows] == found.table["time_us_median"]
    measured = datetime.datetime.fromisoformat(rows[0]["measured_at"].replace("Z", "+00:00")[:19] + "+00:00")
    assert abs(found.table["measured_at"][0] - measured) < datetime.timedelta(seconds=1)


def test_plans_and_runs_have_the_columns_of_their_files(small, command):
    plan = edgecut.plan(small, rehearse=0, profile_budget="1s", output="plan.json", progress=lambda step: None)
    with open("plan.csv") as file:
        assert next(csv.reader(file)) == plan.table.column_names
    run = edgecut.run(plan, repeat=2)
    printed = subprocess.run(
        [command, "run", "plan.json", "--repeat", "2", "--format", "csv"], capture_output=True, text=True, check=True
    )
    assert printed.stdout.splitlines()[0].split(",") == run.table.column_names
