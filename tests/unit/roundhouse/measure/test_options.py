"""The load that options describe, and the options that exclude each other."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from rich.console import Console

from onboarding.tree import read_tree
from roundhouse.errors import RoundhouseError, UsageError
from roundhouse.measure.destination import Destination, Requests, server_url, signer
from roundhouse.measure.inputs import Body
from roundhouse.measure.options import LoadOptions, Loop, parse_slo
from roundhouse.measure.subject import endpoint_stream, engine_test, server_stream
from roundhouse.paths import find_paths
from roundhouse.report import Report
from tests.unit.onboarding.text_generation.shapes import FIXTURES, generator_tree
from tests.unit.roundhouse.engines import REPOSITORY, copied_tree

BASE = (FIXTURES / "text_generation" / "base.yaml").read_text()
URL = "http://127.0.0.1:8080"
ENDPOINT = {"endpoint": "e", "env": "dev"}


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return find_paths(REPOSITORY, copied_tree(tmp_path_factory.mktemp("tree")))


def resolved_test(paths, **options):
    return engine_test(paths, Report(console=Console(quiet=True)), LoadOptions(**options))


OPEN, CLOSED = Loop.open, Loop.closed


@pytest.mark.parametrize(
    ("options", "phases"),
    [
        ({}, []),
        ({"rate": "50", "seconds": 90.0}, [(OPEN, 50, 90)]),
        ({"users": "8"}, [(CLOSED, 8, 30)]),
        ({"users": "1, 4", "seconds": 5.0}, [(CLOSED, 1, 5), (CLOSED, 4, 5)]),
    ],
)
def test_options_are_a_plan_of_load(options, phases):
    found = LoadOptions(url=URL, **options).phases()
    assert [(phase.loop, phase.start, phase.seconds) for phase in found] == phases


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "ENDPOINT or --url: give one of them"),
        ({"url": URL, "endpoint": "e"}, "ENDPOINT or --url"),
        ({"endpoint": "e"}, "--env: is missing"),
        ({"url": URL, "env": "dev"}, "--env: belongs to an ENDPOINT"),
        ({"url": URL, "users": "5", "rate": "5"}, "a load is open or closed"),
        ({"url": URL, "seconds": math.nan}, "--seconds nan: is not allowed"),
        ({"url": URL, "seconds": 0.5}, "--seconds 0.5: is not allowed; give a number from 1 on"),
        ({"url": URL, "record": True}, "a server by its URL has no lock"),
        ({**ENDPOINT, "record": True, "rate": "5"}, "--record: takes no load"),
    ],
)
def test_refuses_options_that_exclude_each_other(options, message):
    with pytest.raises(UsageError, match=message):
        LoadOptions(**options).require_consistent()


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("rate", "0|-1|x||5:10|1e308|nan|inf|100001"),
        ("users", "0|-1|1.5|1,,2||x|100001|1,x"),
    ],
)
def test_refuses_a_load_of_nothing_and_one_that_no_memory_holds(name, texts):
    for text in texts.split("|"):
        with pytest.raises(UsageError, match=rf"--{name} .*: give .*100,000"):
            LoadOptions(url=URL, **{name: text}).phases()


def test_an_slo_has_one_limit_of_engines_and_two_of_text_generators():
    assert parse_slo("50", 1) == (50,) and parse_slo("300:60", 2) == (300, 60)
    assert parse_slo(None, 2) == ()
    for text, count in (("300:60", 1), ("50", 2), ("0", 1), ("x", 1), ("1:", 2), ("inf", 1)):
        with pytest.raises(RoundhouseError, match=f"--slo {text}: give the p9"):
            parse_slo(text, count)


def test_a_bare_server_takes_a_models_inputs_and_slo(paths):
    test = resolved_test(paths, url=URL, model="sentence-embedder")
    assert (test.slo.first_ms, test.destination.region) == (50, None)
    assert test.destination.url == f"{URL}/invocations"
    assert "validation-sentences.txt" in test.inputs.description
    assert resolved_test(paths, url=URL, model="sentence-embedder", slo="7").slo.first_ms == 7


def test_slo_of_a_model_that_joins_is_that_of_the_endpoint_it_answers_behind(tmp_path):
    tree = copied_tree(tmp_path)
    own = (tree / "models" / "sentence-embedder.yaml").read_text()
    joined = own[: own.index("\nserving:")].replace("name: sentence-embedder ", "name: candidate ")
    text = f"{joined}\nendpoint: {{joins: sentence-embedder}}\n"
    (tree / "models" / "candidate.yaml").write_text(text)
    assert (
        resolved_test(find_paths(REPOSITORY, tree), url=URL, model="candidate").slo.first_ms == 50
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": "1"}, "give --input FILE, or --model"),
        ({"model": "nothing"}, "no such model; allowed"),
        ({}, "needs an SLO; give --slo"),
    ],
)
def test_refuses_a_bare_server_without_inputs_or_slo(paths, options, message):
    with pytest.raises(RoundhouseError, match=message):
        resolved_test(paths, url=URL, **options)


def test_stream_of_invocations_is_signed_and_names_its_component(tmp_path):
    tree = read_tree(generator_tree(tmp_path, BASE))
    runtime = SimpleNamespace(meta=SimpleNamespace(endpoint_url="https://runtime"))
    session = SimpleNamespace(environment=tree.environments["cloud"], clients=lambda name: runtime)
    found = endpoint_stream(session, tree.generators["chat"])
    assert found.url == "https://runtime/endpoints/cloud-chat/invocations-response-stream"
    named = {"X-Amzn-SageMaker-Inference-Component": "cloud-chat"}
    assert found.headers == named
    assert found.is_framed and found.region == session.environment.region


BODIES = tuple(Body(text, "application/json") for text in (b"a", b"bb", b"ccc"))
SERVER = Destination(url="http://h/", headers={"X-A": "b"})


def test_every_body_has_its_turn_its_headers_and_is_signed_once():
    both = [Requests(SERVER, BODIES, 1, None) for _ in range(2)]
    first, second = ([requests.next()[0] for _ in range(6)] for requests in both)
    assert first == second == first[:3] * 2 and len(set(first)) == 3
    signed = []
    requests = Requests(SERVER, BODIES, 1, lambda body: signed.append(body.data) or {"A": "s"})
    headers = [requests.next()[1] for _ in range(6)]
    assert sorted(signed) == [b"a", b"bb", b"ccc"]
    assert headers[5] == {"Content-Type": "application/json", "X-A": "b", "A": "s"}


def test_a_request_to_sagemaker_is_signed_with_its_body_and_headers(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    headers = {"X-Amzn-SageMaker-Target-Model": "m"}
    url = "https://h/endpoints/e/invocations"
    sign = signer(Destination(url=url, headers=headers, region="eu-west-1"))
    signature = sign(BODIES[0])
    names = "content-type;host;x-amz-date;x-amz-security-token;x-amzn-sagemaker-target-model"
    assert "/eu-west-1/sagemaker/aws4_request" in signature["Authorization"]
    assert names in signature["Authorization"]
    assert signature["X-Amz-Security-Token"] == "token"
    assert signature["Authorization"] != sign(BODIES[1])["Authorization"]


@pytest.mark.parametrize(
    ("url", "engine", "chat"),
    [
        ("http://h:8080", "http://h:8080/invocations", "http://h:8080/v1/chat/completions"),
        ("http://h:8080/", "http://h:8080/invocations", "http://h:8080/v1/chat/completions"),
        ("https://h/v2/models/m/infer",) * 3,
    ],
)
def test_a_url_without_a_path_means_sagemakers_or_chats(url, engine, chat):
    found = server_stream(url)
    assert (server_url(url), found.url, found.is_framed) == (engine, chat, False)


def test_refuses_a_url_of_no_server():
    wrong = "", "h:8080", "ftp://h", "http://", "http://u:p@h", "http://h/#a"
    for url in (*wrong, "http://h:x", "http://h:99999"):
        with pytest.raises(RoundhouseError, match="no server's address"):
            server_url(url)
