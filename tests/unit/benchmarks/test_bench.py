"""What a benchmark's numbers become: verdicts, JSON, trees."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml

from benchmarks.__main__ import main
from benchmarks.child import measure_usage
from benchmarks.measure import Bar, Circumstances, Measure, table, write
from benchmarks.trees import merge, tree_with
from onboarding.tree import read_tree
from roundhouse.processes import Command, Processes

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]


def measure(value, bar=None):
    return Measure(name="a build", value=value, unit="s", command="make it", bar=bar)


@pytest.mark.parametrize(
    ("kind", "value", "verdict"),
    [
        ("at most", 60, "held"),
        ("at most", 60.1, "missed"),
        ("at least", 0.8, "held"),
        ("at least", 0.79, "missed"),
    ],
)
def test_bar_is_held_up_to_its_limit(kind, value, verdict):
    limit = 60 if kind == "at most" else 0.8
    assert measure(value, Bar(kind=kind, limit=limit)).verdict == verdict


def test_measure_without_a_bar_has_no_verdict():
    assert measure(3).verdict == ""


def test_written_numbers_carry_their_circumstances(tmp_path):
    path = tmp_path / "bench/x.json"
    write(
        [measure(3, Bar(kind="at most", limit=2))],
        Circumstances(machine="a desk, 2 cores", date="2026-01-01"),
        path,
    )
    assert json.loads(path.read_text()) == [
        {
            "name": "a build",
            "value": 3,
            "unit": "s",
            "bar": "at most 2",
            "verdict": "missed",
            "command": "make it",
            "machine": "a desk, 2 cores",
            "date": "2026-01-01",
        }
    ]
    assert table("x", [measure(3)]).row_count == 1


def test_child_tells_seconds_and_memory_of_its_own_program(tmp_path):
    program = Command(argv=(sys.executable, "-c", "x = bytearray(200 << 20)"), folder=ROOT)
    taken = measure_usage(program, tmp_path / "taken.json", Processes())
    assert taken.code == 0 and 200 < taken.peak_mib < 400


def test_child_tells_a_failure(tmp_path):
    assert (
        measure_usage(
            Command(argv=(sys.executable, "-c", "exit(3)"), folder=ROOT),
            tmp_path / "t.json",
            Processes(),
        ).code
        == 3
    )


def test_tree_of_a_benchmark_has_no_fault(tmp_path):
    root = tree_with(ROOT, tmp_path / "tree", {"engine": {"precision": "int8"}, "serving": None})
    assert read_tree(root).faults == ()
    assert [path.name for path in (root / "models").glob("*.yaml")] == ["sentence-embedder.yaml"]
    spec = yaml.safe_load((root / "models/sentence-embedder.yaml").read_text())
    assert (
        spec["engine"]["precision"] == "int8"
        and "calibration" in spec["engine"]
        and "serving" not in spec
    )


def test_merging_removes_nones_and_keeps_the_rest():
    assert merge({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": None, "e": 4}}) == {
        "a": {"c": 2, "e": 4},
        "d": 3,
    }


def test_refuses_an_unknown_benchmark(capsys):
    with pytest.raises(SystemExit):
        main(["engine"])
    allowed = "engine_build, bert_large, server_cpu, server_cpu_wide, server_echo, soak, processes"
    assert f"unknown benchmark engine; allowed: {allowed}" in capsys.readouterr().err
