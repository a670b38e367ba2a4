"""The experiment before a GPU: its bars, its command line, and the stages of a load."""

from __future__ import annotations

import pytest

from benchmarks.h200.bars import bars
from benchmarks.h200.plan import plan_request
from benchmarks.h200.slo import CELLS, rate_at_slo, server_name
from benchmarks.h200.stages import means, sums

pytestmark = pytest.mark.unit


def load(rate, p50=1.0):
    return {"rate": rate, "p50_ms": p50}


def one_round(numbers, **changes):
    points = {
        "engine rate": load(100_000),
        "engine lone": load(0, 0.2),
    }
    for name in [*(f"ours {number}" for number in numbers), f"ours {numbers[0]} again"]:
        number = int(name.split()[1])
        points |= {
            f"{name} c=1": load(0, 0.5),
            f"{name} c=64": load(2000),
            f"{name} saturated": load(16_000 * number),
            f"{name} sixteen": load(2_000 * number),
        }
    return points | changes


def verdicts(model, results, cores):
    return {
        measure.name.removeprefix(f"{model}: "): (round(measure.value, 3), measure.verdict)
        for measure in bars(model, results, cores)
        if measure.bar is not None
    }


def test_experiment_of_a_large_model_is_held_against_its_bars():
    one, two = "(1 HTTP process, 2 cores)", "(2 HTTP processes, 3 cores)"
    assert verdicts("bert-large", [one_round([1, 2])] * 3, {1: 2, 2: 3}) == {
        f"saturated by requests of 16 / engine alone {two}": (0.64, "missed"),
        f"one client: p50 above the engine's own {one}": (0.3, "held"),
    }


GROWTH = "single sentences: growth from 2 to 4 HTTP processes, of linear growth"


def test_experiment_of_a_small_model_is_held_against_its_bars():
    assert verdicts("minilm", [one_round([1, 2, 4])] * 3, {1: 2, 2: 3, 4: 5}) == {
        "saturated by requests of 16 / engine alone (4 HTTP processes, 5 cores)": (1.28, "held"),
        "one client: p50 above the engine's own (1 HTTP process, 2 cores)": (0.3, "held"),
        "single sentences per core (1 HTTP process, 2 cores)": (8000, "held"),
        "single sentences per core (2 HTTP processes, 3 cores)": (10666.667, "held"),
        "single sentences per core (4 HTTP processes, 5 cores)": (12800, "held"),
        GROWTH: (1, "held"),
    }


def test_experiment_that_does_not_grow_misses_the_bar():
    flat = one_round([2, 4], **{"ours 4 saturated": load(32_000)})
    assert verdicts("minilm", [flat], {2: 3, 4: 5})[GROWTH] == (0.5, "missed")


def test_experiment_follows_its_command_line(tmp_path):
    setting = ("--set", "ROUNDHOUSE_QUEUE_ROWS=8192")
    plan = plan_request([str(tmp_path), "minilm", str(tmp_path / "out"), *setting])
    assert plan.processes == (1, 2, 4, 6)
    assert plan.variables == {"ROUNDHOUSE_QUEUE_ROWS": "8192"}
    assert plan.pinned_cores(6) == "0-7" and plan.cores(6) == 8 and plan.cores(1) == 2
    assert plan_request([str(tmp_path), "bert-large", "out"]).processes == (1, 2, 4)


def test_experiment_refuses_an_unknown_model(tmp_path, capsys):
    with pytest.raises(SystemExit):
        plan_request([str(tmp_path), "gpt", "out"])
    assert "invalid choice: 'gpt'" in capsys.readouterr().err


def rung(rate, p99, failed=0):
    return {"requests_per_second": rate, "p99_ms": p99, "failed": failed}


def test_rate_at_the_slo_is_the_best_whose_p99_holds_it():
    assert rate_at_slo([rung(60, 40), rung(110, 500), rung(120, 500.1)]) == 110
    assert rate_at_slo([rung(120, 80), rung(110, 90)]) == 120
    assert rate_at_slo([rung(120, 80, failed=1)]) is None
    assert rate_at_slo([rung(1, 700)]) is None


def test_every_cell_has_servers_of_its_own():
    assert len(CELLS) == len({server_name(*cell) for cell in CELLS}) == 8


EXPOSITION = """\
roundhouse_stage_seconds_bucket{le="+Inf",stage="wait"} 4.0
roundhouse_stage_seconds_count{stage="wait"} 4.0
roundhouse_stage_seconds_sum{stage="wait"} 0.008
roundhouse_engine_seconds_count{model="minilm"} 2.0
roundhouse_engine_seconds_sum{model="minilm"} 0.003
roundhouse_request_seconds_count 4.0
roundhouse_request_seconds_sum 0.012
roundhouse_batch_rows_count{model="minilm"} 2.0
roundhouse_batch_rows_sum{model="minilm"} 48.0
roundhouse_connections 1.0
"""


def test_time_of_a_load_is_split_into_stages_by_the_server_s_own_metrics():
    after = sums(EXPOSITION)
    assert means({}, after) == {"engine": 1.5, "request": 3.0, "rows": 24.0, "wait": 2.0}
    before = {**after, "wait_sum": 0.002, "wait_count": 1.0}
    assert means(before, after) == {"wait": 2.0}
