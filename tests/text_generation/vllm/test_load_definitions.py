"""Our load test computes metrics as `vllm bench serve` does. Nothing is timed."""

from __future__ import annotations

import json
import subprocess
from array import array
from itertools import pairwise
from pathlib import Path

import pytest

from roundhouse.measure.measurement import Answer
from roundhouse.measure.options import closed_phase
from roundhouse.measure.slo import ITL, TTFT, stream_slo
from roundhouse.measure.streams import StreamMeasurement, TokenTimes, metrics

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".venvs" / "vllm" / "bin" / "python"
SLO = stream_slo(ttft_ms=250, itl_ms=45)
ANSWERS = [
    (0.0, (0.2, 0.24, 0.28, 0.32), 11, 4),
    (0.1, (0.5, 0.6), 7, 4),
    (0.4, (0.6, 0.65, 0.70), 5, 3),
    (0.5, (0.7,), 9, 1),
]
"""Due, moments of chunks, prompt tokens, output tokens."""


@pytest.fixture(scope="module")
def theirs():
    if not PYTHON.exists():
        pytest.skip("needs .venvs/vllm: make test-chat makes it")
    question = {
        "answers": [
            (
                chunks[0] - due,
                [b - a for a, b in pairwise(chunks)],
                chunks[-1] - due,
                output,
                prompt,
            )
            for due, chunks, prompt, output in ANSWERS
        ],
        "seconds": 0.7,
        "goodput": {"ttft": SLO.limits[TTFT], "tpot": SLO.limits[ITL]},
    }
    program = Path(__file__).with_name("vllm_definitions.py")
    result = subprocess.run(
        (str(PYTHON), str(program)),
        input=json.dumps(question),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return json.loads(result.stdout)


@pytest.fixture
def ours():
    phase = StreamMeasurement(phase=closed_phase("4 at once", 4, 1.0), slo=SLO)
    phase.start_second(0)
    for due, chunks, prompt, output in ANSWERS:
        times = TokenTimes(array("d", chunks), prompt, output)
        phase.record_answer(due, due, chunks[-1], Answer(content=times))
    return metrics(phase)


@pytest.mark.parametrize(
    ("name", "aiperf"),
    [
        ("ttft", "time_to_first_token"),
        ("tpot", "inter_token_latency"),
        ("itl", "inter_chunk_latency"),
        ("e2el", "request_latency"),
    ],
)
def test_times_have_vllms_means_and_percentiles(name, aiperf, theirs, ours):
    found, own = theirs, ours[aiperf]
    percentiles = dict(found[f"percentiles_{name}_ms"])
    assert own["avg"] == pytest.approx(found[f"mean_{name}_ms"])
    assert own["p50"] == pytest.approx(found[f"median_{name}_ms"])
    assert own["p95"] == pytest.approx(percentiles[95.0])


def test_rates_and_goodput_are_vllms(theirs, ours):
    found = theirs
    for name, aiperf in (
        ("request_throughput", "request_throughput"),
        ("request_goodput", "goodput"),
        ("output_throughput", "output_token_throughput"),
        ("total_token_throughput", "total_token_throughput"),
        ("completed", "request_count"),
        ("total_output", "total_osl"),
        ("total_input", "total_isl"),
    ):
        assert ours[aiperf]["avg"] == pytest.approx(found[name]), name
    assert ours["good_request_count"]["avg"] == 2
