"""The headline, the JSON and the page of a result."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser

import pytest

from engine_build.card.charts import Line, axis, line_chart, scale
from roundhouse.load_test.load_test import Measured
from roundhouse.load_test.options import Loop
from roundhouse.load_test.summary import load_result
from roundhouse.reports.load_report import FRAME, load_page
from tests.unit.roundhouse.load_test.phases import (
    HERE,
    load_of,
    load_test,
    measurement,
    searched,
    second,
)

VOID = {"meta", "br"}


class Checked(HTMLParser):
    """Fails on a tag that is not closed, and keeps the texts."""

    def __init__(self):
        super().__init__()
        self.open, self.texts = [], []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def texts_of(result):
    page = Checked()
    page.feed(load_page(result).decode())
    assert page.open == []
    return " ".join(page.texts)


def steps():
    held = [
        measurement(second(5.0), second(6.0), rate=1000.0, name=f"step {number}")
        for number in (1, 4)
    ]
    missed = [
        measurement(second(30.0), second(40.0), rate=1030.0, name=f"step {number}")
        for number in (2, 3)
    ]
    return *held, *missed


def test_headline_says_the_saturation_point():
    found = searched(*steps())
    assert found.saturation.exact
    assert found.headline == (
        "Saturates at 1,000 requests a second (2,000 texts a second) with p99 ≤ 20 ms: there "
        "p50 5.00 ms, p95 6.00 ms, "
        "p99 6.00 ms, no errors."
    )


def test_headline_says_at_least_where_no_rate_missed():
    assert searched(steps()[0]).headline.startswith("Holds at least 1,000 requests a second")


def test_headline_says_when_nothing_held():
    *_, first, last = steps()
    missed = (first, last)
    assert searched(*missed).headline.startswith(
        "No rate that was tried holds p99 ≤ 20 ms; the lowest was 1,030"
    )


def test_headline_of_a_search_broken_off_in_its_first_step_judges_nothing():
    found = load_result(
        load_test(), Measured(phases=[steps()[2]], verdicts=[None], interrupted=True), HERE
    )
    assert found.headline.startswith(
        "No step was run to its end, so nothing is known of p99 ≤ 20 ms. Broken off:"
    )


def test_headline_and_page_say_what_was_offered_where_little_was_answered():
    found = load_of(measurement(second(intended=20_000)))
    assert found.headline.startswith("1,000 answers a second of 20,000 requests offered: p50")
    assert "at 20,000 requests a second offered" in texts_of(found)
    assert "offered" not in load_of(measurement(second())).headline


def test_headline_of_a_closed_loop_says_what_it_leaves_out():
    message = load_of(measurement(second(), loop=Loop.closed)).headline
    assert "A closed loop: users wait for answers before they ask again" in message


def test_headline_says_errors():
    message = load_of(measurement(second(errors={"HTTP 503: full": 7}))).headline
    assert "7 errors (most: HTTP 503: full)" in message


def test_headline_of_nothing_answered():
    nothing = measurement(second(count=0, errors={"no connection": 3}))
    assert load_of(nothing).headline == "No request was answered: 3 errors (most: no connection)."
    assert load_of(measurement(second(count=0))).headline == "No request was answered."
    assert "no connection" in texts_of(load_of(nothing))


def test_json_is_plain_and_whole():
    data = json.loads(json.dumps(searched(*steps()).as_dict(), allow_nan=False))
    assert data["saturation"] == {
        "rate": 1000.0,
        "phase": 1,
        "lowest_missed": 1030.0,
        "exact": True,
    }
    assert data["phases"][0]["latency_ms"]["p99.99"] is None
    assert [phase["outcome"] for phase in data["phases"]] == ["held", "held", "missed", "missed"]
    assert data["circumstances"]["machine"] == "a machine"


def test_the_page_shows_headline_phases_plots_and_how_it_was_measured():
    found = searched(*steps())
    text = texts_of(found)
    for message in (
        found.headline,
        "step 3",
        "Latency against offered rate",
        "SLO 20 ms",
        "Latency by percentile",
        "a machine",
        "10 texts",
    ):
        assert message in text
    assert text.count("Users over time") == 0


def test_the_page_of_a_closed_loop_shows_corrected_values():
    seconds = second(1000.0, 100), second(1000.0, 100, users=3)
    phase = measurement(*seconds, loop=Loop.closed, interval=0.001)
    text = texts_of(load_of(phase, expected_interval=1.0))
    assert re.search(r"corrected for an expected interval: p50 50\d ms", text)
    assert "Users over time" in text


@pytest.mark.parametrize("subject", ["<script>alert(1)</script>", 'a"b&c'])
def test_the_page_shows_names_as_they_are(subject):
    import dataclasses

    assert subject in texts_of(dataclasses.replace(searched(*steps()), subject=subject))
    assert b"<script" not in load_page(dataclasses.replace(searched(*steps()), subject=subject))


def test_a_line_is_broken_where_nothing_is_known():
    points = [(0, 1), (1, 2), (4, 1), (5, 3)]
    axes = axis(scale(0, 5, 0, 100)), axis(scale(0, 3, 100, 0))
    for gap, pieces in ((1.01, 2), (math.inf, 1)):
        line = Line(name="p99", points=points, longest_gap=gap)
        assert line_chart("t", [line], FRAME, *axes).count("<polyline") == pieces
