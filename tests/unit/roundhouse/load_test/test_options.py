"""The load that options describe, and the options that exclude each other."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from roundhouse.errors import NotReadyError, RoundhouseError
from roundhouse.load_test.options import (
    LatencyStop,
    LoadOptions,
    Loop,
    Phase,
    parse_latency_stop,
    parse_phase,
)
from roundhouse.load_test.subject import load_test
from roundhouse.paths import find_paths
from roundhouse.report import Report
from tests.unit.roundhouse.engines import REPOSITORY, copied_tree

URL = "http://127.0.0.1:8080"
ENDPOINT = {"endpoint": "e", "env": "dev"}


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return find_paths(REPOSITORY, copied_tree(tmp_path_factory.mktemp("tree")))


def resolved_test(paths, **options):
    return load_test(paths, Report(console=Console(quiet=True)), LoadOptions(**options))


def test_without_a_load_the_saturation_point_is_searched_for():
    assert LoadOptions(url=URL).phases() == ()


def test_a_rate_is_an_open_loop_of_one_phase():
    (phase,) = LoadOptions(url=URL, rate=50.0, spawn=60.0, seconds=10.0).phases()
    assert (phase.loop, phase.start, phase.spawn, phase.seconds) == (Loop.open, 50, 60, 10)


def test_a_closed_loop_has_users():
    (phase,) = LoadOptions(url=URL, closed_loop=True).phases()
    assert (phase.loop, phase.start, phase.seconds) == (Loop.closed, 8, 30)
    texts = ("start=1,seconds=5", "start=2,spawn=60,seconds=5")
    phases = LoadOptions(url=URL, closed_loop=True, phase=texts).phases()
    rows = [(phase.name, phase.start, phase.loop) for phase in phases]
    assert rows == [("phase 1", 1, Loop.closed), ("phase 2", 2, Loop.closed)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "ENDPOINT or --url: give one of them"),
        ({"url": URL, "endpoint": "e"}, "ENDPOINT or --url"),
        ({"endpoint": "e"}, "--env: is missing"),
        ({"url": URL, "env": "dev"}, "--env: belongs to an ENDPOINT"),
        ({"url": URL, "closed_loop": True, "rate": 5.0}, "a closed loop has no rate"),
        ({"url": URL, "users": 5}, "--users: belongs to --closed-loop"),
        ({"url": URL, "rate": 1.0, "phase": ("start=1,seconds=1",)}, "leave --rate, --users"),
        ({"url": URL, "seconds": 5.0}, "the search has --step-seconds"),
        ({"url": URL, "stop": "p99=5"}, "the search stops by itself"),
        ({"url": URL, "rate": 1.0, "first_rate": 5.0}, "belongs to the search"),
        ({"url": URL, "first_rate": 1e6}, "--first-rate: at most 100,000"),
        ({"url": URL, "rate": 1.0, "expected_interval": 5.0}, "an open loop needs no correction"),
        ({"url": URL, "rate": math.nan}, "--rate: nan is not allowed; give a finite number"),
        ({"url": URL, "slo": math.inf}, "--slo: inf is not allowed; give a finite number"),
        ({"url": URL, "warm_up": math.inf}, "--warm-up: inf is not allowed"),
        ({"url": URL, "record": True}, "a server by its URL has no lock"),
        ({**ENDPOINT, "record": True, "rate": 5.0}, "--record: takes no load"),
    ],
)
def test_refuses_options_that_exclude_each_other(options, message):
    with pytest.raises(RoundhouseError, match=message):
        LoadOptions(**options).require_consistent()


EMPTY, STEEP = "start=0,seconds=5", "start=1,spawn=1e9,seconds=60"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 0.0}, "--rate 0: sends nothing"),
        ({"phase": (EMPTY,)}, f"--phase '{EMPTY}': sends nothing"),
        ({"rate": 1e308}, r"1e\+308: comes to 1e\+308 requests a second; at most 100,000 can be"),
        ({"rate": 5.0, "spawn": 1e300}, r"--rate 5 --spawn 1e\+300 --seconds 30: comes to"),
        ({"closed_loop": True, "users": 100_001}, "--users 100001: comes to 100,001 users; at"),
        ({"phase": (STEEP,)}, f"--phase '{STEEP}': comes to"),
    ],
)
def test_refuses_a_load_of_nothing_and_one_that_no_memory_holds(options, message):
    with pytest.raises(RoundhouseError, match=message):
        LoadOptions(url=URL, **options).phases()


def test_a_bare_server_takes_a_models_inputs_and_slo(paths):
    test = resolved_test(paths, url=URL, model="sentence-embedder")
    assert (test.slo_ms, test.destination.region) == (50, None)
    assert test.destination.url == f"{URL}/invocations"
    assert "validation-sentences.txt" in test.inputs.description
    assert resolved_test(paths, url=URL, model="sentence-embedder", slo=7.0).slo_ms == 7


def test_a_shared_endpoints_slo_is_its_models(paths):
    lines = (paths.tree / "endpoints" / "text-shared.yaml").read_text().splitlines()
    slos = [float(line.split()[1]) for line in lines if "latency_slo_ms" in line]
    test = resolved_test(paths, url=URL, model="sentence-embedder-int8", rate=1.0)
    assert test.slo_ms == next(iter(slos), None)


def test_slo_of_a_model_that_joins_is_that_of_the_endpoint_it_answers_behind(tmp_path):
    tree = copied_tree(tmp_path)
    own = (tree / "models" / "sentence-embedder.yaml").read_text()
    joined = own[: own.index("\nserving:")].replace("name: sentence-embedder ", "name: candidate ")
    text = f"{joined}\nendpoint: {{joins: sentence-embedder}}\n"
    (tree / "models" / "candidate.yaml").write_text(text)
    assert resolved_test(find_paths(REPOSITORY, tree), url=URL, model="candidate").slo_ms == 50


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 1.0}, "give --input FILE, or --model"),
        ({"model": "nothing"}, "no such model; allowed"),
        ({}, "needs an SLO; give --slo"),
    ],
)
def test_refuses_a_bare_server_without_inputs_or_slo(paths, options, message):
    with pytest.raises(RoundhouseError, match=message):
        resolved_test(paths, url=URL, **options)


def test_refuses_an_endpoint_of_a_cloud_that_is_not_there(paths, tmp_path):
    with pytest.raises(NotReadyError, match="The local cloud is not up"):
        resolved_test(
            dataclasses.replace(paths, build=tmp_path), endpoint="sentence-embedder", env="local"
        )


def open_phase(**changes):
    return Phase(**{"name": "phase 1", "loop": Loop.open, "start": 10.0, "seconds": 60.0} | changes)


@given(start=st.floats(0.1, 1e4), spawn=st.floats(0, 1e4), seconds=st.floats(0.1, 600))
def test_as_many_requests_are_due_by_a_moment_as_the_rate_has_come_to(start, spawn, seconds):
    count = start * seconds + spawn / 60 * seconds**2 / 2
    moment = open_phase(start=start, spawn=spawn).moment(count)
    assert moment == pytest.approx(seconds, rel=1e-6)


def test_a_phase_that_begins_at_nothing_ramps_up():
    assert open_phase(start=0.0, spawn=120.0).moment(1) == pytest.approx(1.0)
    assert open_phase(start=0.0).moment(1) == math.inf


def test_phases_and_stops_are_parsed_from_texts():
    phase = Phase(name="phase 2", loop=Loop.closed, start=1, spawn=60, seconds=120)
    assert parse_phase("start=1, spawn=60,seconds=120", Loop.closed, 2) == phase
    assert parse_phase("seconds=5,start=2.5", Loop.open, 1).spawn == 0
    assert parse_latency_stop("p99.9=250") == LatencyStop(percentile=99.9, milliseconds=250)


NO_PHASES = (
    "|start=1|start=1,seconds=0|start=-1,seconds=5|start=x,seconds=5|start=1,seconds=5,users=3|"
    "start=1.5,seconds=5|start=1,start=1,seconds=5|start=1,seconds=nan|start=1,seconds=inf"
)


@pytest.mark.parametrize("text", NO_PHASES.split("|"))
def test_refuses_a_phase_that_is_none(text):
    with pytest.raises(RoundhouseError, match="write start=NUMBER,spawn=NUMBER,seconds=NUMBER"):
        parse_phase(text, Loop.closed, 1)


@pytest.mark.parametrize(
    "text", ["", "p99", "99=5", "p100=5", "p0=5", "p99=0", "p99=x", "p99=inf", "pnan=5"]
)
def test_refuses_a_stop_that_is_none(text):
    with pytest.raises(RoundhouseError, match="such as p99=200"):
        parse_latency_stop(text)
