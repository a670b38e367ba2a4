"""A scaling run's record and its chart; the run itself is a benchmark."""

import json
import threading
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks.scaling.chart import chart
from benchmarks.scaling.endpoint import Load
from benchmarks.scaling.record import Phase, ScalingRun, Second, offered_rate

pytestmark = pytest.mark.unit
PHASES = (Phase(rate=5, seconds=2), Phase(rate=20, seconds=3), Phase(rate=5, seconds=3))
SVG = "{http://www.w3.org/2000/svg}"
DOCS = Path(__file__).parents[3] / "docs"


def second(at, current):
    load = {"offered": 5.0, "answered": 5, "failed": 0, "p99_ms": 1.0, "per_instance": 300.0}
    return Second(at=at, current=current, desired=current, **load)


def scaling_run(*counts):
    seconds = tuple(second(at, current) for at, current in enumerate(counts))
    return ScalingRun(target=600.0, low=1, high=3, phases=PHASES, seconds=seconds, activities=())


def test_record_holds_when_counts_came():
    run = scaling_run(1, 1, 1, 2, 3, 3, 3, 1)
    assert (run.most, run.last, run.answers, run.failed) == (3, 1, 40, 0)
    assert run.seconds_until(3, run.begin(1)) == 2
    assert run.seconds_until(1, run.begin(2)) == 2
    assert scaling_run(1, 1).seconds_until(3, 0) is None


def test_rate_is_the_phase_s():
    assert [offered_rate(PHASES, at) for at in (0, 1.9, 2, 4.9, 5, 8)] == [5, 5, 20, 20, 5, 0]


def test_load_sends_as_often_as_the_phases_say_and_counts_failures():
    lock, count = threading.Lock(), 0

    def send():
        nonlocal count
        with lock:
            count += 1
            if count % 2:
                raise ValueError("refused")

    load = Load(send=send, phases=(Phase(rate=100, seconds=0.2), Phase(rate=200, seconds=0.1)))
    load.start()
    load._thread.join(10)
    assert load.has_ended
    assert 39 <= len(load.requests) <= 41
    assert sum(request.failed for request in load.requests) == (count + 1) // 2


def test_chart_holds_three_panels_with_the_target():
    root = ET.fromstring(chart(scaling_run(1, 2, 3, 1), "40 requests & no <fault>"))
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert len(list(root.iter(f"{SVG}polyline"))) == 5
    assert "target 600" in texts
    assert texts[-1] == "40 requests & no <fault>"


def test_the_published_run_rose_and_fell_without_a_lost_request():
    record = json.loads((DOCS / "benchmarks" / "scaling-run.json").read_text())
    assert {measure["verdict"] for measure in record["measures"] if measure["bar"]} == {"held"}
    assert max(second["current"] for second in record["seconds"]) == 3
    assert record["seconds"][-1]["current"] == 1
    ET.parse(DOCS / "images" / "scaling-run.svg")
