"""What the command line may ask for, and what that comes to."""

from __future__ import annotations

import pytest
from rich.console import Console

from roundhouse.errors import NotReadyError, RoundhouseError
from roundhouse.load_test.subject import asked
from roundhouse.load_test.traffic import Loop
from roundhouse.load_test.wishes import Wishes, phases, require_sound
from roundhouse.paths import find_paths
from roundhouse.report import Report
from tests.unit.roundhouse.engines import REPOSITORY, copied_tree

URL = "http://127.0.0.1:8080"


@pytest.fixture(scope="module")
def at(tmp_path_factory):
    return find_paths(REPOSITORY, copied_tree(tmp_path_factory.mktemp("tree")))


def ordered(at, **wishes):
    return asked(at, Report(console=Console(quiet=True)), Wishes(**wishes))


def test_without_a_load_the_saturation_point_is_searched_for():
    assert phases(Wishes(url=URL)) == ()


def test_a_rate_is_an_open_loop_of_one_phase():
    (found,) = phases(Wishes(url=URL, rate=50.0, spawn=60.0, seconds=10.0))
    assert (found.loop, found.start, found.spawn, found.seconds) == (Loop.open, 50, 60, 10)


def test_a_closed_loop_has_users():
    (found,) = phases(Wishes(url=URL, closed_loop=True))
    assert (found.loop, found.start, found.seconds) == (Loop.closed, 8, 30)
    found = phases(
        Wishes(
            url=URL, closed_loop=True, phases=("start=1,seconds=5", "start=2,spawn=60,seconds=5")
        )
    )
    assert [(each.name, each.start, each.loop) for each in found] == [
        ("phase 1", 1, Loop.closed),
        ("phase 2", 2, Loop.closed),
    ]


@pytest.mark.parametrize(
    ("wishes", "said"),
    [
        ({}, "ENDPOINT or --url"),
        ({"url": URL, "endpoint": "e"}, "ENDPOINT or --url"),
        ({"endpoint": "e"}, "--env"),
        ({"url": URL, "closed_loop": True, "rate": 5.0}, "a closed loop has no rate"),
        ({"url": URL, "users": 5}, "belongs to --closed-loop"),
        (
            {"url": URL, "rate": 1.0, "phases": ("start=1,seconds=1",)},
            "says start, spawn and seconds itself",
        ),
        ({"url": URL, "seconds": 5.0}, "the search has --step-seconds"),
        ({"url": URL, "stop": "p99=5"}, "the search stops by itself"),
        ({"url": URL, "rate": 1.0, "first_rate": 5.0}, "belongs to the search"),
        (
            {"url": URL, "rate": 1.0, "expected_interval_ms": 5.0},
            "an open loop needs no correction",
        ),
        ({"url": URL, "environment": "dev"}, "--env: belongs to an ENDPOINT"),
        ({"url": URL, "rate": float("nan")}, "--rate: nan is no amount"),
        ({"url": URL, "slo_ms": float("inf")}, "--slo: inf is no amount"),
        ({"url": URL, "warm_up_seconds": float("inf")}, "--warm-up: inf is no amount"),
    ],
)
def test_refuses_wishes_that_exclude_each_other(wishes, said):
    with pytest.raises(RoundhouseError, match=said):
        require_sound(Wishes(**wishes))


@pytest.mark.parametrize(
    ("wishes", "said"),
    [
        ({"rate": 0.0}, r"--rate 0: sends nothing"),
        (
            {"phases": ("start=0,seconds=5",), "rate": None},
            "--phase 'start=0,seconds=5': sends nothing",
        ),
        (
            {"rate": 1e308},
            r"--rate 1e\+308: comes to 1e\+308 requests a second; at most 100,000 can be sent",
        ),
        ({"rate": 5.0, "spawn": 1e300}, r"--rate 5 --spawn 1e\+300 --seconds 30: comes to"),
        (
            {"closed_loop": True, "users": 100_001},
            r"--users 100001: comes to 100,001 users; at most",
        ),
        (
            {"phases": ("start=1,spawn=1e9,seconds=60",), "rate": None},
            r"--phase 'start=1,spawn=1e9,seconds=60': comes to",
        ),
    ],
)
def test_refuses_a_load_of_nothing_and_one_that_no_memory_holds(wishes, said):
    with pytest.raises(RoundhouseError, match=said):
        phases(Wishes(url=URL, **{"closed_loop": "phases" in wishes} | wishes))


def test_refuses_a_first_rate_that_no_memory_holds():
    with pytest.raises(RoundhouseError, match="--first-rate: at most 100,000"):
        require_sound(Wishes(url=URL, first_rate=1e6))


def test_a_bare_server_takes_a_models_inputs_and_slo(at):
    found = ordered(at, url=URL, model="sentence-embedder")
    assert (found.slo_ms, found.destination.url, found.destination.region) == (
        50,
        f"{URL}/invocations",
        None,
    )
    assert "validation-sentences.txt" in found.inputs.told
    assert ordered(at, url=URL, model="sentence-embedder", slo_ms=7.0).slo_ms == 7


def test_a_shared_endpoints_slo_is_its_models(at):
    text = (at.tree / "endpoints" / "text-shared.yaml").read_text()
    expected = next(
        (float(line.split()[1]) for line in text.splitlines() if "latency_slo_ms" in line), None
    )
    assert ordered(at, url=URL, model="sentence-embedder-int8", rate=1.0).slo_ms == expected


def test_slo_of_a_model_that_joins_is_that_of_the_endpoint_it_answers_behind(tmp_path):
    tree = copied_tree(tmp_path)
    own = (tree / "models" / "sentence-embedder.yaml").read_text()
    joined = own[: own.index("\nserving:")].replace("name: sentence-embedder ", "name: candidate ")
    (tree / "models" / "candidate.yaml").write_text(
        f"{joined}\nendpoint: {{joins: sentence-embedder}}\n"
    )
    assert ordered(find_paths(REPOSITORY, tree), url=URL, model="candidate").slo_ms == 50


def test_refuses_a_search_without_an_slo(at, tmp_path):
    (tmp_path / "a.txt").write_text("a\n")
    with pytest.raises(RoundhouseError, match="give --slo"):
        ordered(at, url=URL, input=tmp_path / "a.txt")


@pytest.mark.parametrize(
    ("wishes", "said"),
    [
        ({"rate": 1.0}, "give --input FILE, or --model"),
        ({"model": "nothing"}, "no such model; allowed"),
    ],
)
def test_refuses_a_bare_server_without_inputs(at, wishes, said):
    with pytest.raises(RoundhouseError, match=said):
        ordered(at, url=URL, **wishes)


def test_refuses_an_endpoint_of_a_cloud_that_is_not_there(at, tmp_path):
    apart = find_paths(REPOSITORY, at.tree)
    with pytest.raises(NotReadyError, match="The local cloud is not up"):
        asked(
            type(apart)(code=apart.code, tree=apart.tree, build=tmp_path),
            Report(console=Console(quiet=True)),
            Wishes(endpoint="sentence-embedder", environment="local"),
        )
