"""Verdicts, tables and files of benchmarks, their trees, and the usage of a program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.child import measure_usage, process_trees, resident_bytes
from benchmarks.context import Context
from benchmarks.measure import Bar, Circumstances, Measure, of_rounds, table, with_command, write
from benchmarks.trees import merge, read_yaml, tree_with
from onboarding.tree import read_tree
from roundhouse.paths import find_paths
from roundhouse.processes import Command, Processes

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("kind", "limit", "value", "verdict"),
    [
        ("at most", 60, 60, "held"),
        ("at most", 60, 60.1, "missed"),
        ("at least", 0.8, 0.8, "held"),
        ("at least", 0.8, 0.79, "missed"),
        ("exactly", 1, 1, "held"),
        ("exactly", 1, 0, "missed"),
        ("exactly", 1, 2, "missed"),
    ],
)
def test_bar_is_held_up_to_its_limit(kind, limit, value, verdict):
    assert Measure("a build", value, "s", Bar(kind=kind, limit=limit)).verdict == verdict


def test_measure_without_a_bar_has_no_verdict():
    assert Measure("a build", 3, "s").verdict == ""


def test_measure_of_rounds_has_median_lowest_and_highest_round():
    measure = of_rounds("x", [3, 2, 4], "s")
    assert (measure.value, measure.low, measure.high) == (3, 2, 4)
    assert of_rounds("x", [3, 2, 4], "s", value=max).value == 4
    assert of_rounds("x", [5], "s") == Measure("x", 5, "s", low=5, high=5)


def test_written_numbers_carry_their_circumstances(tmp_path):
    path = tmp_path / "bench/x.json"
    measures = with_command("make it", [Measure("a", 3, "s", Bar(kind="at most", limit=2))])
    measures += with_command("make it", [of_rounds("b", [1, 2, 3], "x")])
    write(measures, Circumstances(machine="2 cores", date="2026-01-01"), path)
    origin = {"command": "make it", "machine": "2 cores", "date": "2026-01-01"}
    bar = {"bar": "at most 2", "verdict": "missed"}
    assert json.loads(path.read_text()) == [
        {"name": "a", "value": 3, "unit": "s", **bar, **origin},
        {"name": "b", "value": 2, "unit": "x", "bar": None, "verdict": "", "low": 1, "high": 3}
        | origin,
    ]
    assert table("x", measures).row_count == 2


HOLDS_MEMORY = """
import sys, time
from pathlib import Path
memory = bytearray(60 << 20)
with open(sys.argv[1], "a") as file:
    file.write("x")
while len(Path(sys.argv[1]).read_text()) < 2:  # until another one holds as much
    time.sleep(0.01)
time.sleep(1.5)
"""


def test_usage_has_memory_and_time_of_a_process_and_all_that_it_started(tmp_path):
    program = tmp_path / "holds_memory.py"
    program.write_text(HOLDS_MEMORY)
    child = f"{sys.executable} {program} {tmp_path / 'holding'}"
    command = Command(argv=("sh", "-c", f"{child} & {child}; wait"), folder=ROOT)
    usage = measure_usage(command, tmp_path / "usage.json", Processes())
    assert 60 < usage.peak_mib < 100 and 126 < usage.peak_sum_mb < 250
    assert usage.seconds >= 1.5 and usage.processor_seconds <= 2 * usage.seconds


def test_refuses_the_usage_of_a_program_that_fails(tmp_path):
    command = Command(argv=(sys.executable, "-c", "exit('no engine')"), folder=ROOT)
    with pytest.raises(ValueError, match="ended with code 1: no engine"):
        measure_usage(command, tmp_path / "usage.json", Processes())


def test_processes_that_have_ended_have_no_memory():
    ended = subprocess.Popen((sys.executable, "-c", ""))
    ended.wait()
    assert resident_bytes(ended.pid) == 0
    assert resident_bytes(os.getpid()) > 1 << 20 and os.getpid() in process_trees([os.getpid()])


def test_tree_of_a_benchmark_has_no_fault(tmp_path):
    root = tree_with(ROOT, tmp_path / "tree", {"engine": {"precision": "int8"}, "serving": None})
    assert read_tree(root).faults == ()
    assert [path.name for path in (root / "models").glob("*.yaml")] == ["sentence-embedder.yaml"]
    spec = read_yaml(root / "models/sentence-embedder.yaml")
    assert spec["engine"]["precision"] == "int8" and "calibration" in spec["engine"]
    assert "serving" not in spec


def test_merging_removes_nones_and_keeps_the_rest():
    merged = merge({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": None, "e": 4}})
    assert merged == {"a": {"c": 2, "e": 4}, "d": 3}


def context(**variables):
    return Context(paths=find_paths(ROOT), run=Processes(), variables=variables)


def test_rounds_have_a_default():
    assert context().rounds(5) == 5 and context(BENCH_ROUNDS="2").rounds(5) == 2


@pytest.mark.parametrize("text", ["0", "-1", "two"])
def test_refuses_rounds_that_are_no_count(text):
    with pytest.raises(ValueError, match="whole number from 1 up"):
        context(BENCH_ROUNDS=text).rounds(5)


def test_refuses_an_unknown_benchmark(capsys):
    with pytest.raises(SystemExit):
        main(["engine"])
    allowed = "engine_build, repackaging, bert_large, server_cpu, server_cpu_wide, server_echo"
    assert f"unknown benchmark engine; allowed: {allowed}" in capsys.readouterr().err
