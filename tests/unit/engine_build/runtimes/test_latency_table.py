"""The classic table."""

from __future__ import annotations

import numpy as np

from engine_build.runtimes.latency_table import summaries, summary, table
from engine_build.runtimes.rounds import Latencies, Subject
from engine_build.samples.feed import Shape

SUBJECT = Subject(runtime="onnxruntime", precision="fp32", run=len)


def test_summary_has_percentiles_and_rates():
    found = summary(SUBJECT, Shape(batch=4, sequence=8), np.arange(1.0, 102.0))
    assert (found.average_ms, found.p50_ms, found.p95_ms, found.p99_ms) == (51.0, 51.0, 96.0, 100.0)
    assert (found.rows_per_second, found.repetitions) == (78.43, 101)


def test_table_has_a_line_for_every_subject_and_shape():
    shapes = [Shape(batch=1, sequence=8), Shape(batch=4)]
    found = [Latencies(shape=shape, milliseconds=np.full((3, 1, 2), 20.0)) for shape in shapes]
    lines = table(summaries([SUBJECT], found)).splitlines()
    assert (
        " ".join(lines[0].split())
        == "runtime precision batch x tokens average ms p50 p95 p99 requests/s rows/s runs"
    )
    assert lines[1].split() == [
        "onnxruntime",
        "fp32",
        "1",
        "x",
        "8",
        "20.00",
        "20.00",
        "20.00",
        "20.00",
        "50.0",
        "50",
        "6",
    ]
    assert lines[2].split() == [
        "onnxruntime",
        "fp32",
        "4",
        "20.00",
        "20.00",
        "20.00",
        "20.00",
        "50.0",
        "200",
        "6",
    ]
    assert len({len(line) for line in lines}) == 1


def test_subject_that_sat_rounds_out_is_summed_up_by_its_own_runs():
    values = np.array([[[1.0], [2.0]], [[1.0], [np.nan]]])
    first, second = summaries(
        [SUBJECT, SUBJECT], [Latencies(shape=Shape(batch=1), milliseconds=values)]
    )
    assert (first.repetitions, second.repetitions, second.average_ms) == (2, 1, 2.0)
