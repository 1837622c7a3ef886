"""docs/python.md: its code runs, block by block, and prints what is shown, numbers aside.

`EDGECUT_WRITE_DOCS=1 python -m pytest python/tests/test_document.py` puts what it prints now into the file.
"""

import contextlib
import io
import os
import re

import pytest

from conftest import ROOT, agents

DOCUMENT = ROOT / "docs" / "python.md"
UNITS = {"ns", "us", "ms", "s", "B", "KiB", "MiB", "GiB", "%"}

#: What stands for any number of lines, and at the end of a line for any text.
ANY = "…"


def blocks(lines):
    """Pairs of a block of Python, and the range of lines of the block of text that follows it or None."""
    fences = [at for at, line in enumerate(lines) if line.startswith("```")]
    spans = [(lines[begin][3:], begin + 1, end) for begin, end in zip(fences[::2], fences[1::2])]
    for (language, begin, end), after in zip(spans, spans[1:] + [("", 0, 0)]):
        if language == "python":
            yield "\n".join(lines[begin:end]), range(*after[1:]) if after[0] == "text" else None


def shape(line):
    """A line without what differs from run to run or by machine: numbers, units, how wide columns are, digests of hardware."""
    line = re.sub(r"-[0-9a-f]{4}-(?=\d+t-)", "-", line)
    words = [re.sub(r"[\d.,+\-:─═]+", "", word).strip("()") for word in line.split()]
    return " ".join(word for word in words if word and word not in UNITS)


def is_shown(shown, printed):
    if shown.endswith(ANY):
        return shape(printed).startswith(shape(shown[: -len(ANY)]))
    return shape(printed) == shape(shown)


def matching(shown, printed):
    """The printed line for each shown one, where a line of dots stands for any number of lines; else the line that is missing."""
    rest, matched, may_skip = iter(printed), [], False
    for line in shown:
        if line == ANY:
            may_skip = True
            matched.append(line)
            continue
        found = next((made for made in rest if is_shown(line, made) or not may_skip), None)
        if found is None or not is_shown(line, found):
            return None, line
        matched.append(line if line.endswith(ANY) else found)
        may_skip = False
    return matched, None


@pytest.mark.parametrize(
    "shown, printed, missing",
    [
        ("a 1\n…\nd 2", "a 5\nb\nc\nd 9\ne", None),
        ("a 1\nc", "a 5\nb\nc", "c"),
        ("one/cpu: 3 groups …", "one/cpu: 30 groups, busy", None),
        ("two …", "one 1", "two …"),
        ("p/local-cpu-2a8c-1t-x.csv", "p/local-cpu-07bf-2t-x.csv", None),
    ],
)
def test_lines_are_compared_by_their_words(shown, printed, missing):
    assert matching(shown.split("\n"), printed.split("\n"))[1] == missing


def test_the_code_of_the_document_prints_what_it_shows(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EDGECUT_CLUSTER", raising=False)
    monkeypatch.setenv("EDGECUT_CACHE", str(tmp_path / "cache"))
    # The document shows what is printed where no device tells its energy, as on most machines.
    monkeypatch.setenv("EDGECUT_SYSFS", str(tmp_path / "sys"))
    for folder in ("models", "tests"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    lines = DOCUMENT.read_text().split("\n")
    written, wrong, names = list(lines), [], {}
    with agents(command, ("one", "two", "three")) as servers:
        (tmp_path / "cluster").mkdir()
        (tmp_path / "cluster" / "loopback.toml").write_text(servers)
        for code, span in blocks(lines):
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(code, str(DOCUMENT), "exec"), names)
            if span is None:
                continue
            printed = out.getvalue().rstrip("\n").split("\n")
            matched, missing = matching(lines[span.start : span.stop], printed)
            if missing is not None:
                wrong.append(f"docs/python.md:{span.start}: does not print {missing!r}, but\n{out.getvalue()}")
            written[span.start : span.stop] = ["\n".join(matched or printed)] + [None] * (len(span) - 1)
        assert len(names) > 5
        # Agents that are terminated wait for the plan of the session.
        names.clear()
    if "EDGECUT_WRITE_DOCS" in os.environ:
        DOCUMENT.write_text("\n".join(line for line in written if line is not None))
    else:
        assert not wrong, "\n\n".join(wrong)
