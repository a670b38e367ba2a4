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
from benchmarks.text_generation.comparison import SAME, Load, measures
from onboarding.serve_environment import serve_environment
from onboarding.tree import read_tree
from roundhouse.measure.prompts import read_prompts

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
    allowed = "allowed: runtimes, servers, text_generation"
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


def test_triton_starts_with_the_environment_that_endpoints_give_it(tmp_path):
    assert serve_environment(MODEL).items() <= triton(tmp_path, tmp_path).environment.items()


@pytest.mark.parametrize(
    "fault", [{"refused": 1}, {"socket_errors": 1}, {"timeouts": 1}, {"requests": 0}, {}]
)
def test_load_with_a_fault_is_not_clean(fault):
    numbers = {"requests": 10, "seconds": 2, "p50_ms": 1, "p99_ms": 3, "refused": 0}
    line = json.dumps({**numbers, "socket_errors": 0, "timeouts": 0, **fault})
    assert read_load(f"noise\nROUNDHOUSE {line}\n", "wrk").clean == (fault == {})
