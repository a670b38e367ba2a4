"""A scaling run's record and its drawing; the run itself is a benchmark."""

import json
import threading
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks.scaling.chart import drawing
from benchmarks.scaling.endpoint import Load
from benchmarks.scaling.record import Phase, ScalingRun, Second, offered_rate

pytestmark = pytest.mark.unit
PHASES = (Phase(rate=5, seconds=2), Phase(rate=20, seconds=3), Phase(rate=5, seconds=3))
SVG = "{http://www.w3.org/2000/svg}"
DOCS = Path(__file__).parents[3] / "docs"


def second(at, current, **more):
    given = {
        "offered": 5.0,
        "answered": 5,
        "failed": 0,
        "p99_ms": 1.0,
        "per_instance": 300.0,
        "desired": current,
    }
    return Second(at=at, current=current, **{**given, **more})


def scaling_run(*counts):
    seconds = tuple(second(at, current) for at, current in enumerate(counts))
    return ScalingRun(target=600.0, low=1, high=3, phases=PHASES, seconds=seconds, activities=())


def test_record_tells_when_counts_came():
    found = scaling_run(1, 1, 1, 2, 3, 3, 3, 1)
    assert (found.most, found.last, found.answers, found.failed) == (3, 1, 40, 0)
    assert found.seconds_until(3, found.begin(1)) == 2
    assert found.seconds_until(1, found.begin(2)) == 2
    assert scaling_run(1, 1).seconds_until(3, 0) is None


def test_rate_is_the_phase_s():
    assert [offered_rate(PHASES, at) for at in (0, 1.9, 2, 4.9, 5, 8)] == [5, 5, 20, 20, 5, 0]


def test_load_asks_as_often_as_the_phases_say_and_counts_failures():
    turn, request = threading.Lock(), []

    def ask():
        with turn:
            request.append(None)
            if len(request) % 2:
                raise ValueError("refused")

    load = Load(ask=ask, phases=(Phase(rate=100, seconds=0.2), Phase(rate=200, seconds=0.1)))
    load.start()
    load._thread.join(10)
    assert load.has_ended
    assert 39 <= len(load.request) <= 41
    assert sum(item.failed for item in load.request) == (len(request) + 1) // 2


def test_drawing_holds_three_panels_with_the_target():
    root = ET.fromstring(drawing(scaling_run(1, 2, 3, 1), "40 requests & no <fault>"))
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
