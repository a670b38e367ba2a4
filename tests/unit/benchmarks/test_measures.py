"""What benchmarks conclude from rounds: bars, medians, ratios, files; and their command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.measure import Bar, Measure, of_rounds
from benchmarks.servers.fixtures import MODEL, write_tree
from benchmarks.servers.harness import Point, ratio, read_load, round_measures
from benchmarks.servers.running_server import triton
from onboarding.serve_environment import serve_environment
from onboarding.tree import read_tree

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("bar", "value", "verdict"),
    [
        (Bar(kind="at most", limit=60), 60, "held"),
        (Bar(kind="at most", limit=60), 60.1, "missed"),
        (Bar(kind="at least", limit=0.8), 0.8, "held"),
        (Bar(kind="at least", limit=0.8), 0.79, "missed"),
        (None, 3, ""),
    ],
)
def test_bar_is_held_up_to_its_limit(bar, value, verdict):
    assert Measure("a build", value, "s", bar).verdict == verdict


def test_measure_of_rounds_has_median_lowest_and_highest_round():
    found = of_rounds("x", [3, 2, 4], "s")
    assert (found.value, found.low, found.high) == (3, 2, 4)
    assert of_rounds("x", [3, 2, 4], "s", value=max).value == 4
    assert of_rounds("x", [5], "s") == Measure("x", 5, "s", low=5, high=5)


def test_refuses_an_unknown_benchmark(capsys):
    with pytest.raises(SystemExit):
        main(["engine"])
    allowed = "allowed: runtimes, servers"
    assert f"unknown benchmark engine; {allowed}" in capsys.readouterr().err


def test_tree_that_is_built_has_no_fault(tmp_path):
    tree = read_tree(write_tree(ROOT, tmp_path / "tree"))
    assert tree.faults == () and list(tree.environments) == ["local"]
    assert tree.models[MODEL].engine.precision == "fp32"


def point(rate):
    return Point(rate=rate, busy_p50_ms=2, busy_p99_ms=3, busy_cpu_ms=4, lone_p50_ms=5)


def test_ratio_is_taken_within_a_round():
    results = [{"a": point(a), "b": point(b)} for a, b in ((2, 1), (9, 3), (8, 2))]
    (found,) = round_measures(results, [("a / b", "x", ratio("a", "b"), None)])
    assert (found.value, found.low, found.high) == (3, 2, 4)


def test_triton_starts_with_the_environment_that_endpoints_give_it(tmp_path):
    assert serve_environment(MODEL).items() <= triton(tmp_path, tmp_path).environment.items()


@pytest.mark.parametrize(
    "fault", [{"refused": 1}, {"socket_errors": 1}, {"timeouts": 1}, {"requests": 0}, {}]
)
def test_load_with_a_fault_is_not_clean(fault):
    numbers = {"requests": 10, "seconds": 2, "p50_ms": 1, "p99_ms": 3, "refused": 0}
    line = json.dumps({**numbers, "socket_errors": 0, "timeouts": 0, **fault})
    assert read_load(f"noise\nROUNDHOUSE {line}\n", "wrk").clean == (fault == {})
