"""What benchmarks conclude from rounds: bars, medians, ratios, files; and their command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.context import Context
from benchmarks.measure import Bar, Circumstances, Measure, of_rounds, table, with_command, write
from benchmarks.runtimes.comparison import row_measures
from benchmarks.servers.fixtures import MODEL, write_tree
from benchmarks.servers.harness import Point, points, ratio, round_measures, rounds, start_measures
from benchmarks.text_generation.comparison import SAME, Load, measures
from onboarding.tree import read_tree
from roundhouse.load_test.generation.requests import read_prompts
from roundhouse.paths import find_paths
from roundhouse.processes import Processes

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


def test_written_numbers_carry_their_circumstances(tmp_path):
    path = tmp_path / "bench/x.json"
    found = with_command("make it", [Measure("a", 3, "s", Bar(kind="at most", limit=2))])
    found += with_command("make it", [of_rounds("b", [1, 2, 3], "x")])
    write(found, Circumstances(machine="2 cores", date="2026-01-01"), path)
    origin = {"command": "make it", "machine": "2 cores", "date": "2026-01-01"}
    bar = {"bar": "at most 2", "verdict": "missed"}
    assert json.loads(path.read_text()) == [
        {"name": "a", "value": 3, "unit": "s", **bar, **origin},
        {"name": "b", "value": 2, "unit": "x", "bar": None, "verdict": "", "low": 1, "high": 3}
        | origin,
    ]
    assert table("x", found).row_count == 2


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
    allowed = "allowed: runtimes, servers, text_generation"
    assert f"unknown benchmark engine; {allowed}" in capsys.readouterr().err


def test_tree_that_is_built_has_no_fault(tmp_path):
    tree = read_tree(write_tree(ROOT, tmp_path / "tree"))
    assert tree.faults == () and list(tree.environments) == ["local"]
    assert tree.models[MODEL].engine.precision == "fp32"


def test_rounds_run_everyone_in_changing_orders():
    order = []
    tests = {name: lambda name=name: order.append(name) or len(order) for name in "abcd"}
    results = rounds(tests, 6, say=lambda line: None)
    assert all(set(result) == set("abcd") for result in results)
    assert len({tuple(order[start : start + 4]) for start in range(0, 24, 4)}) > 1


def point(rate):
    return Point(rate=rate, busy_p50_ms=2, busy_p99_ms=3, busy_cpu_ms=4, lone_p50_ms=5)


def test_ratio_is_taken_within_a_round():
    results = [{"a": point(a), "b": point(b)} for a, b in ((2, 1), (9, 3), (8, 2))]
    (found,) = round_measures(results, [("a / b", "x", ratio("a", "b"), None)])
    assert (found.value, found.low, found.high) == (3, 2, 4)


def test_points_are_of_the_median_round():
    found = points([{"a": point(rate)} for rate in (3, 1, 2)], "a", "ours")
    assert [item.value for item in found] == [2, 2, 3, 4, 5]


def test_starts_are_held_against_their_bars():
    found = start_measures("ours", (0.5, 3.0, 0.6), (100, 251, 90))
    assert [(item.value, item.verdict) for item in found] == [(0.6, "held"), (251, "missed")]


def test_rows_of_runtimes_are_measures_with_their_intervals():
    row = {"model": "minilm", "runtime": "ONNX Runtime", "precision": "fp32", "batch": 8}
    latency = {"p50_ms": 2.0, "p50_interval": [1.9, 2.2]}
    rate = {"rows_per_second": 4e3, "rows_per_second_interval": [3.6e3, 4.2e3]}
    p50, rows, cosine = row_measures([{**row, **latency, **rate, "cosine_worst": 0.99}])
    assert p50.name == "minilm, ONNX Runtime fp32, batch 8: p50"
    assert (p50.value, p50.low, p50.high, p50.unit) == (2.0, 1.9, 2.2, "ms")
    assert (rows.value, rows.high, cosine.value) == (4e3, 4.2e3, 0.99)


def test_ratios_of_load_tools_are_of_one_round_and_held_against_the_bars():
    found = {
        (item.name, str(item.bar)): item
        for item in measures(
            [
                {
                    "ours": dict.fromkeys(SAME, ours),
                    "vllm": dict.fromkeys(SAME, vllm),
                    "again": dict.fromkeys(SAME, again),
                }
                for ours, vllm, again in ((10, 10, 10), (52, 60, 40), (6, 1, 3), (5, 0, 1))
            ]
        )
    }
    ttft = found["TTFT, mean, ours / vllm bench serve", "at most 1.05"]
    assert (ttft.value, ttft.low, ttft.high, ttft.verdict) == (1.04, 1.0, 3.0, "held")
    assert found["TTFT, mean, ours / vllm bench serve", "at least 0.95"].verdict == "held"
    control = found["ITL, mean, vllm bench serve twice", "None"]
    assert (control.value, control.high) == (1.0, 3.0) and control.low == pytest.approx(2 / 3)


def test_both_load_tools_read_one_file_of_prompts(tmp_path):
    load = Load(url="", model="m", tokenizer=tmp_path, folder=tmp_path, requests=3, prompt_words=5)
    load.write_prompts()
    prompts = read_prompts(load.prompts, None).prompts
    assert [prompt.output_tokens for prompt in prompts] == [48] * 3
    assert all(len(str(prompt.content).split()) == 5 for prompt in prompts)
    assert len(set(prompts)) == 3
