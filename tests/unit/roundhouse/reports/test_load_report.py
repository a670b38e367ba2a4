"""The headline, the JSON and the page of a result."""

from __future__ import annotations

import dataclasses
import json
import math
from html.parser import HTMLParser

import pytest

from roundhouse.measure.destination import Destination
from roundhouse.measure.generation import GenerationTest
from roundhouse.measure.options import LoadOptions, Loop
from roundhouse.measure.prompts import Workload, parse_lengths
from roundhouse.measure.result import EngineResult
from roundhouse.reports.charts import Line, axis, element, line_chart, scale
from roundhouse.reports.load_report import FRAME, load_page
from tests.unit.roundhouse.measure.phases import (
    HERE,
    STREAM_PHASES,
    STREAM_SLO,
    load_of,
    load_test,
    measurement,
    searched,
    second,
    stream_search,
)

VOID = {"meta", "br"}


class Page(HTMLParser):
    """Fails on a tag that is not closed, and keeps the texts."""

    def __init__(self, result):
        super().__init__()
        self.open, self.texts = [], []
        self.feed(load_page(result).decode())
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def text_of(result):
    return " ".join(Page(result).texts)


def step(number, rate, *milliseconds):
    return measurement(*map(second, milliseconds), rate=rate, name=f"step {number}")


def holding_steps():
    return [step(number, 1000.0, 5.0, 6.0) for number in (1, 4)]


def missing_steps():
    return [step(number, 1030.0, 30.0, 40.0) for number in (2, 3)]


def broken_off():
    return EngineResult(
        test=load_test(), phases=missing_steps()[:1], circumstances=HERE, broken_off=True
    )


def test_headline_names_the_saturation_point():
    result = searched(*holding_steps(), *missing_steps())
    assert result.highest.is_exact
    assert result.headline == (
        "Saturates at 1,000 requests a second (2,000 texts a second) with p99 ≤ 20 ms: there "
        "p50 5.50 ms, p95 6.00 ms, p99 6.00 ms, no errors."
    )


def test_the_highest_load_is_of_the_last_step_that_held_it():
    missed = step(3, 1000.0, 30.0, 40.0)
    result = searched(*holding_steps(), missed, *missing_steps())
    assert result.highest.phase is result.phases[1] and result.highest.load == 1000


def load(seconds, **changes):
    return load_of(measurement(seconds, **changes))


UNANSWERED = load(second(count=0, errors={"no connection": 3}))


@pytest.mark.parametrize(
    ("result", "part"),
    [
        (searched(holding_steps()[0]), "Proven: 1,000 requests a second"),
        (
            searched(*missing_steps()),
            "No load that was tried holds p99 ≤ 20 ms; the lowest was 1,030 req",
        ),
        (broken_off(), "No step was run to its end, so nothing is known of p99 ≤ 20 ms. Broken o"),
        (UNANSWERED, "No request was answered: 3 errors (most: no connection)."),
        (load(second(count=0)), "No request was answered."),
        (load(second(offered=20_000)), "1,000 answers a second of 20,000 requests offered: p50"),
        (load(second(errors={"HTTP 503: full": 7})), "7 errors (most: HTTP 503: full)"),
        (load(second(), loop=Loop.closed), "A closed loop: users wait for answers before they as"),
    ],
    ids=["no miss", "no hold", "broken off", "unanswered", "nothing", "few", "errors", "closed"],
)
def test_headline_names_what_is_not_known_or_doubtful(result, part):
    assert part in result.headline


@pytest.mark.parametrize(("slo_ms", "is_missed"), [(20.0, False), (1.0, True)])
def test_headline_of_a_load_names_the_phases_that_missed(slo_ms, is_missed):
    result = load_of(measurement(second()), slo_ms=slo_ms)
    assert ("missed the SLO" in result.headline) == result.slo_missed == is_missed


def test_offered_rate_is_shown_where_little_was_answered():
    assert "at 20,000 requests a second offered" in text_of(load(second(offered=20_000)))
    assert "offered" not in load(second()).headline


def test_json_is_plain_and_whole():
    result = searched(*holding_steps(), *missing_steps())
    data = json.loads(json.dumps(result.document(), allow_nan=False))
    saturation = {"rate": 1000.0, "phase": 1, "lowest_missed": 1030.0, "exact": True}
    assert data["saturation"] == saturation
    assert data["phases"][0]["latency_ms"]["p99.99"] is None
    assert [phase["outcome"] for phase in data["phases"]] == ["held", "held", "missed", "missed"]
    assert data["circumstances"]["machine"] == "a machine"


def test_page_shows_headline_phases_plots_and_how_it_was_measured():
    result = searched(*holding_steps(), *missing_steps())
    text = text_of(result)
    plots = ("Latency by load", "SLO 20 ms", "Throughput over time")
    for part in (result.headline, "step 3", *plots, "a machine", "10 texts"):
        assert part in text


def test_page_shows_errors():
    assert "no connection" in text_of(UNANSWERED)


@pytest.mark.parametrize("subject", ["<script>alert(1)</script>", 'a"b&c'])
def test_page_shows_names_as_they_are(subject):
    result = searched(*holding_steps(), *missing_steps())
    named = dataclasses.replace(result, test=load_test(subject=subject))
    assert subject in text_of(named)
    assert b"<script" not in load_page(named)


def test_line_is_broken_where_nothing_is_known():
    points = [(0, 1), (1, 2), (4, 1), (5, 3)]
    axes = axis(scale(0, 5, 0, 100)), axis(scale(0, 3, 100, 0))
    for gap, pieces in ((1.01, 2), (math.inf, 1)):
        line = Line(name="p99", points=points, longest_gap=gap)
        assert line_chart("t", [line], FRAME, *axes).count("<polyline") == pieces


pytestmark = pytest.mark.unit


def test_element_escapes_text_and_attributes_but_not_markup():
    text = element("text", "<&", [element("b", "")], title='"<')
    assert text == '<text title="&#34;&lt;">&lt;&amp;<b></b></text>'
    line = element("line", x1=1.0, stroke_width=1.255, class_=None)
    assert line == '<line x1="1" stroke-width="1.25"/>'


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 9.3, (0, 2.5, 5, 7.5, 10)),
        (0.99, 0.99998, (0.99, 0.9925, 0.995, 0.9975, 1.0)),
        (0, 0.0004, (0, 0.0001, 0.0002, 0.0003, 0.0004)),
        (-0.2, 1.0, (-0.5, 0, 0.5, 1.0)),
    ],
)
def test_scale_has_round_ticks_around_its_values(low, high, ticks):
    axis = scale(low, high, 0, 100)
    assert axis.ticks == pytest.approx(ticks)
    assert axis.low <= low and axis.high >= high
    assert 0 <= axis(low) <= axis(high) <= 100


def test_page_of_a_text_generator_shows_its_loads_and_the_knee():
    test = GenerationTest(
        subject="chat", destination=Destination(url="http://h"), phases=(),
        options=LoadOptions(url="http://h"), schema="chat", model="m", slo=STREAM_SLO,
        workload=Workload(lengths=parse_lengths("chat", None)), first_concurrency=8,
    )  # fmt: skip
    text = text_of(dataclasses.replace(stream_search(*STREAM_PHASES), test=test))
    for part in (
        *("Load test of a text generator", "search for the knee", "8 at once", "SLO 300 ms"),
        *("Requests and goodput by load", "Time to the first token by load", "8 at once"),
        *("Time between tokens by load", "profile chat", "Goodput"),
    ):
        assert part in text
