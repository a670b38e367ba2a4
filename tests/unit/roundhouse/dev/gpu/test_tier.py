"""The runner of tests/gpu on rows that pass, fail, are skipped, end their process, or break."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.gpu.__main__ import (
    ROOT,
    commit,
    earlier_rows,
    files,
    format_row,
    report_name,
    run_rows,
    run_tier,
    write_report,
)
from tests.unit.roundhouse.dev.gpu.test_machine import SOUND

ROWS = """
import os, pytest
def test_measures(record_property): record_property("p50_ms", 0.29123456)
@pytest.mark.skip(reason="no such thing")
def test_cannot(): pass
def test_fails(): assert 1 == 2, "one is not two"
def test_dies(): os._exit(9)
def test_comes_after(): pass
@pytest.fixture
def broken():
    yield
    raise RuntimeError("in the end")
def test_breaks(broken): pass
"""
FACTS = {
    "gpu": "NVIDIA H100",
    "commit": "c",
    "tensorrt": "10.6",
    "driver": "580",
    "date": "2026-11-24T",
}


@pytest.fixture
def rows(tmp_path):
    (tmp_path / "test_a.py").write_text(ROWS)
    (tmp_path / "test_b.py").write_text("import no_such_module\n")
    lacks = """raise ModuleNotFoundError("No module named 'torch'")\n"""
    (tmp_path / "test_c.py").write_text(lacks)
    return [f"{tmp_path}/test_{name}.py" for name in "abc"]


def test_every_row_has_an_outcome_even_where_the_process_dies(rows):
    # A row that is a whole file is named by its path.
    found = {
        row["row"].rpartition("::")[2].rpartition("/")[2]: row
        for row in run_rows(rows, time.monotonic() + 60)
    }
    outcomes = {name: row["outcome"] for name, row in found.items()}
    assert outcomes == {
        "test_b.py": "fail",
        "test_c.py": "not run",
        "test_measures": "pass",
        "test_cannot": "not run",
        "test_fails": "fail",
        "test_dies": "fail",
        "test_comes_after": "pass",
        "test_breaks": "fail",
    }
    assert found["test_measures"]["figures"] == {"p50_ms": 0.29123456}
    assert found["test_c.py"]["reason"] == "needs torch, which this machine has not"
    assert "no such thing" in found["test_cannot"]["reason"]
    assert "code 9" in found["test_dies"]["reason"]
    assert "one is not two" in format_row(found["test_fails"])
    assert "p50_ms=0.29123" in format_row(found["test_measures"])


def test_rows_that_would_begin_too_late_are_not_run(rows):
    (row,) = run_rows([f"{rows[0]}::test_measures"], time.monotonic() - 1)
    assert row["outcome"] == "not run" and "time is over" in row["reason"]


def test_the_report_keeps_rows_of_the_same_commit_and_names_no_place(tmp_path):
    path = tmp_path / "report.json"
    row = {"row": "r", "outcome": "pass", "seconds": 1.0, "figures": {"log": f"{ROOT}/x"}}
    write_report(path, FACTS, [row])
    report = json.loads(path.read_text())
    assert report["counts"] == {"pass": 1, "fail": 0, "not run": 0}
    assert report["rows"][0]["figures"] == {"log": "./x"}
    assert [known["row"] for known in earlier_rows(path, FACTS)] == ["r"]
    assert earlier_rows(path, FACTS | {"commit": "d"}) == []
    assert report_name(FACTS) == "nvidia-h100-2026-11-24.json"


def test_a_tier_of_which_nothing_ran_has_not_passed(rows, tmp_path, capsys):
    row = f"{rows[0]}::test_measures"
    assert run_tier(SOUND, [row], 0, tmp_path) == 5
    assert "0 pass, 0 fail, 1 not run" in capsys.readouterr().out
    assert run_tier(SOUND, [row], 1, tmp_path) == 0
    assert run_tier(SOUND, [f"{rows[0]}::test_fails"], 1, tmp_path) == 1
    (report,) = map(json.loads, map(Path.read_text, tmp_path.glob("nvidia-h100-*.json")))
    assert report["counts"] == {"pass": 1, "fail": 1, "not run": 0}


def test_minilms_builds_come_last_and_the_commit_is_known():
    assert files()[-2] == "tests/gpu/test_minilm.py" and "tests/gpu/test_trtexec.py" in files()
    assert commit()
