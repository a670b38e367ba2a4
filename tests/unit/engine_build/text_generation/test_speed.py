"""Rounds of a checkpoint and its source, whose processes a stand-in plays."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from engine_build.log import Log
from engine_build.runner import TIMED_OUT, Ended
from engine_build.settings import Settings
from engine_build.text_generation.speed import MODULE, SECONDS, measure_speed
from tests.unit.onboarding.text_generation.test_planner import _spec

SOURCE, OURS = Path("/w/source"), Path("/w/checkpoint")
ON_CPU = Settings(vllm_python=sys.executable, speed_on_cpu=True)


class Engines:
    """Plays vLLM's processes: the rates of each folder, one list a process, in their order.

    Each takes so many seconds of its clock, or the time that its command is given.
    """

    def __init__(self, seconds=60, **rates):
        self.rates = {name: list(rows) for name, rows in rates.items()}
        self.commands, self.seconds, self.now = [], seconds, 1000.0

    def run(self, command):
        self.commands.append(command)
        self.now += min(self.seconds, command.timeout_seconds)
        if self.seconds > command.timeout_seconds:
            return Ended(code=TIMED_OUT, output="", errors="still running; stopped")
        request = json.loads(command.argv[-1])
        rows = self.rates[Path(request["engine"]["model"]).name]
        row = rows.pop(0)
        if isinstance(row, str):
            return Ended(code=1, output="", errors=row)
        report = {"output_tokens_per_second": row, "vllm": "0.30.0"}
        return Ended(code=0, output=f"INFO\n{json.dumps(report)}\n", errors="")


def measure(engines, settings=ON_CPU, **spec):
    stream = io.StringIO()
    log, folders = Log(stream), (SOURCE, OURS)
    record = measure_speed(
        _spec(**spec),
        folders,
        2,
        settings,
        engines,
        log,
        gpu=lambda count: None,
        clock=lambda: engines.now,
    )
    return record, stream.getvalue()


def test_rounds_alternate_and_medians_are_kept():
    engines = Engines(
        source=[[100, 99, 101], [90, 89, 500], [110, 111, 109]],
        checkpoint=[[150, 149, 151], [140, 141, 139], [160, 161, 159]],
    )
    record, log = measure(engines)
    assert (record.output_tokens_per_second, record.reference_tokens_per_second) == (150, 100)
    assert [item.output_tokens_per_second for item in record.rounds] == [150, 140, 160]
    assert record.ratio.value == 1.5 and record.engine == "vllm 0.30.0"
    assert "round 2: 140.0 output tokens/s, its source 90.0 output tokens/s" in log
    folders = [json.loads(item.argv[-1])["engine"]["model"] for item in engines.commands]
    names = [Path(folder).name for folder in folders]
    assert names == ["source", "checkpoint", "checkpoint", "source", "source", "checkpoint"]


def test_engine_has_the_arguments_of_the_plan():
    engines = Engines(source=[[1.0]] * 3, checkpoint=[[1.0]] * 3)
    spec = {"quantization": {"kv_cache": "fp8"}}
    measure(engines, **spec)
    source, ours = (json.loads(command.argv[-1]) for command in engines.commands[:2])
    assert engines.commands[0].argv[:3] == (sys.executable, "-m", MODULE)
    assert engines.commands[0].variables["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert ours["engine"]["kv_cache_dtype"] == "fp8" and "kv_cache_dtype" not in source["engine"]
    assert ours["engine"]["tensor_parallel_size"] == 2
    assert ours["engine"]["max_model_len"] == _spec(**spec).context.max_model_len
    assert ours["concurrency"] == _spec(**spec).slo.concurrency


def test_source_larger_than_the_machine_is_tried_once():
    engines = Engines(source=["ValueError: no memory"], checkpoint=[[50.0]] * 3)
    record, log = measure(engines)
    assert record.reference_tokens_per_second is None and len(record.rounds) == 3
    assert "vLLM ended with code 1: ValueError: no memory" in log


@pytest.mark.parametrize(
    ("seconds", "finished"),
    [(299, 3), (400, 2), (450, None), (600, None), (5000, None), (SECONDS / 5, 2)],
)
def test_rounds_that_end_within_one_deadline_count(seconds, finished):
    engines = Engines(seconds, source=[[100.0]] * 3, checkpoint=[[150.0]] * 3)
    record, log = measure(engines)
    assert (None if record is None else len(record.rounds)) == finished
    assert engines.now <= 1000 + SECONDS and len(engines.commands) <= 6
    assert ("not measured; the plan's estimate stands" in log) == (record is None)
    if finished != 3:
        assert "1800 seconds are over after" in log


@pytest.mark.parametrize(
    "rates",
    [
        {"source": [[1.0]], "checkpoint": ["ValueError: no kernel"]},
        {"source": [[1.0], "killed"], "checkpoint": [[1.0], [1.0]]},
        {"source": [[1.0]], "checkpoint": [[]]},
    ],
)
def test_engine_that_ends_with_a_fault_measures_nothing(rates):
    record, log = measure(Engines(**rates))
    assert record is None and "not measured: vLLM does not run it here" in log


@pytest.mark.parametrize("settings", [Settings(), Settings(vllm_python=sys.executable)])
def test_machine_without_a_gpu_or_vllm_measures_nothing(settings):
    engines = Engines()
    record, log = measure(engines, settings)
    assert record is None and not engines.commands
    assert "not measured: this machine has no GPU with vLLM" in log
