"""Texts longer than the longest sequence.

Refused alike by every server where the model file says so, else cut and counted.
"""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from container.client import rows_of
from engine_build.packaging.archive import model_repository
from engine_build.packaging.repository import repository
from engine_build.packaging.served import ANSWERS, member
from onboarding.model_spec import ServingSpec
from tests.contract.conftest import serve
from tests.contract.replies import KINDS
from tests.contract.requests import binary_request, json_request
from tests.contract.test_ensemble import STAND_IN, on_a_cpu
from tests.fixtures.tiny_embedder.archive import (
    CLASSIFIER,
    EMBEDDER,
    HERE,
    REPOSITORY,
    write_manifest,
)

LONGEST = 32
"""Tokens, of which two are special ones: a text of 30 words is the longest."""
SERVERS = [
    *((kind, EMBEDDER, "cpu") for kind in KINDS),
    *((kind, CLASSIFIER, "cpu") for kind in ("python-server", "triton-sme")),
    *((kind, EMBEDDER, "ensemble") for kind in ("triton-sme", "triton-mme")),
]
PYTHON_KINDS = tuple(kind for kind in KINDS if kind.startswith("python-"))
MIXED = ("a cat", "cat " * 31, "cat " * 30, "", "dog " * 200)
SAID = (
    "The request holds text of more than the 32 tokens that the model takes, special tokens "
    "included: "
)
MEND = "; shorten or split what is longer."


def write_refusing(root, tiny, form):
    """An archive as it is built of a model file with `auto_truncate: false`.

    An ensemble's plan is stood in for.
    """
    shown = replace(tiny.served, serving=ServingSpec(auto_truncate=False))
    is_cpu = form == "cpu"
    laid = repository(
        shown,
        HERE / f"{tiny.network}.onnx",
        HERE / "tokenizer.json",
        is_cpu=is_cpu,
        code_roots=(REPOSITORY,),
    )
    model_repository(root, laid.files)
    engine_file = laid.engine_file
    if not is_cpu:
        engine = root / member(tiny.model, "engine")
        engine_file = f"{engine.name}/1/model.onnx"
        (root / laid.engine_file).rename(root / engine_file)
        shutil.copy(STAND_IN, engine / "1" / "model.py")
        (engine / "config.pbtxt").write_text(on_a_cpu((engine / "config.pbtxt").read_text()))
    write_manifest(
        root, tiny, auto_truncate=False, engine_file=engine_file, tokenizer_file=laid.tokenizer_file
    )


@pytest.fixture(
    scope="module",
    params=SERVERS,
    ids=lambda each: "-".join((each[0], each[1].served.task, each[2])),
)
def refusing(request, tmp_path_factory):
    """A server of an archive whose long texts are refused, and its network."""
    kind, tiny, form = request.param
    folder = tmp_path_factory.mktemp("refusing")
    write_refusing(folder / "archive" / "model", tiny, form)
    one = serve(kind, folder / "archive" / "model", folder / "server", model=tiny.model)
    yield one, tiny
    one.client.close()
    one.container.stop(10)


def rows(answer, tiny):
    """The rows of an answer that is one."""
    assert answer.status == 200, answer.body
    return rows_of(answer.body, answer.headers["content-type"], ANSWERS[tiny.served.task])


def sentence(answer):
    """The sentence of a refusal of 400; Triton puts the ensemble before it."""
    assert answer.status == 400, (answer.status, answer.body)
    found = json.loads(answer.body)
    assert list(found) == ["error"]
    return found["error"]


def binary(texts, tiny):
    """A binary request for the network's own output."""
    body, content_type = binary_request([text.encode() for text in texts], binary_answer=True)
    header_size = int(content_type.rpartition("=")[2])
    header = body[:header_size].replace(
        b'"embedding"', json.dumps(ANSWERS[tiny.served.task]).encode()
    )
    return header + body[header_size:], f"{content_type.rpartition('=')[0]}={len(header)}"


def test_long_texts_are_refused_by_place_tokens_and_limit_in_json_and_binary(refusing):
    served, tiny = refusing
    for asked in ((json_request(MIXED),), binary(MIXED, tiny)):
        assert sentence(served.ask(*asked)).endswith(f"{SAID}text[1] has 33, text[4] has 202{MEND}")


def test_many_long_texts_are_refused_in_one_short_sentence(refusing):
    served, _ = refusing
    places = ", ".join(f"text[{place}] has 42" for place in range(5))
    assert sentence(served.ask(json_request(["cat " * 40] * 9))).endswith(
        f"{SAID}{places} and 4 more are too long{MEND}"
    )


def test_texts_that_fit_are_answered_as_where_long_ones_are_cut(refusing, launched):
    served, tiny = refusing
    fitting = [text for text in MIXED if len(text.split()) <= LONGEST - 2]
    expected = rows(launched("python-server", tiny).ask(json_request(fitting)), tiny)
    assert np.allclose(rows(served.ask(json_request(fitting)), tiny), expected, atol=1e-5)
    assert np.allclose(rows(served.ask(*binary(fitting, tiny)), tiny), expected, atol=1e-5)


def test_long_text_fails_alone_among_concurrent_clients(refusing):
    served, tiny = refusing
    fitting = [
        f"the {colour} {thing}"
        for colour in ("red", "green", "fast")
        for thing in ("cat", "dog", "train", "track")
    ]
    expected = {text: rows(served.ask(json_request([text])), tiny) for text in fitting}
    asked = [text for text in fitting for text in (text, "cat " * 40)] * 3

    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda text: served.ask(json_request([text])), asked))
    for text, answer in zip(asked, answers, strict=True):
        if text in expected:
            assert np.allclose(rows(answer, tiny), expected[text], atol=1e-5)
        else:
            assert sentence(answer).endswith(f"{SAID}text[0] has 42{MEND}")


def test_plain_inputs_are_refused_by_the_same_sentence(refusing):
    served, tiny = refusing
    if served.kind not in PYTHON_KINDS:
        assert served.ask(json.dumps({"inputs": list(MIXED)}).encode()).status == 400
        return
    assert (
        sentence(served.ask(json.dumps({"inputs": list(MIXED)}).encode()))
        == f"{SAID}text[1] has 33, text[4] has 202{MEND}"
    )
    assert (
        sentence(served.ask(json.dumps({"inputs": "cat " * 31}).encode()))
        == f"{SAID}text[0] has 33{MEND}"
    )
    rows(served.ask(json_request(["a cat"])), tiny)


def truncated(served):
    """The texts that a server says it has cut, by model."""
    lines = served.client.request("GET", "/metrics").body.decode().splitlines()
    found = (
        line.removeprefix("roundhouse_truncated_texts_total").rpartition(" ") for line in lines
    )
    return {labels: float(value) for labels, _, value in found if labels.startswith("{")}


@pytest.mark.parametrize(
    ("kind", "extra"), [(kind, "1") for kind in PYTHON_KINDS] + [("python-server", "2")]
)
def test_cut_texts_are_answered_as_their_beginnings_and_counted(kind, extra, archive, tmp_path):
    variables = {} if extra == "1" else {"ROUNDHOUSE_HTTP_PROCESSES": extra}
    one = serve(kind, archive, tmp_path, model=EMBEDDER.model, **variables)
    name = "hash" if kind == "python-mme" else EMBEDDER.model
    try:
        assert truncated(one) == {f'{{model="{name}"}}': 0}
        found = rows(one.ask(json_request(MIXED)), EMBEDDER)
        assert np.allclose(
            found[[1, 4]],
            rows(one.ask(json_request(["cat " * 30, "dog " * 30])), EMBEDDER),
            atol=1e-6,
        )
        long_enough_for_a_thread = ["dog " * 2000] * 3
        rows(one.ask(json_request(long_enough_for_a_thread)), EMBEDDER)
        assert truncated(one) == {f'{{model="{name}"}}': 5}
        if kind == "python-mme":
            assert one.client.request("DELETE", "/models/hash").status == 200
            assert truncated(one) == {}
    finally:
        one.client.close()
        one.container.stop(10)
