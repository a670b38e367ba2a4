"""Texts longer than the longest sequence.

Refused alike by every server where the model file says so, else cut and counted.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from engine_build.packaging.served import ANSWERS
from onboarding.serving_spec import ServingSpec
from tests.contract.conftest import rows, serving
from tests.contract.head_archives import write_form
from tests.contract.requests import binary_request, json_request
from tests.fixtures.tiny_embedder.archive import (
    CLASSIFIER,
    EMBEDDER,
)

LONGEST = 32
"""Tokens, of which two are special ones: a text of 30 words is the longest."""
SERVERS = [
    ("python-server", CLASSIFIER, "cpu"),
    ("triton-sme", CLASSIFIER, "cpu"),
    ("triton-mme", EMBEDDER, "ensemble"),
]
MIXED = ("a cat", "cat " * 31, "cat " * 30, "", "dog " * 200)
REFUSAL = (
    "The request holds text of more than the 32 tokens that the model takes, special tokens "
    "included: "
)
REMEDY = "; shorten or split what is longer."


@pytest.fixture(
    scope="module",
    params=SERVERS,
    ids=lambda server: "-".join((server[0], server[1].served.task, server[2])),
)
def refusing(request, tmp_path_factory):
    """A server of an archive whose long texts are refused, and its network."""
    kind, tiny, form = request.param
    folder = tmp_path_factory.mktemp("refusing")
    root = folder / "archive" / "model"
    served = replace(tiny.served, serving=ServingSpec(auto_truncate=False))
    write_form(root, replace(tiny, served=served), form, auto_truncate=False)
    with serving(kind, root, folder / "server", model=tiny.model) as one:
        yield one, tiny


def sentence(answer):
    """The sentence of a refusal of 400; Triton puts the ensemble before it."""
    assert answer.status == 400, (answer.status, answer.body)
    document = json.loads(answer.body)
    assert list(document) == ["error"]
    return document["error"]


def binary(texts, tiny):
    """A binary request for the network's own output."""
    output = ANSWERS[tiny.served.task]
    return binary_request([text.encode() for text in texts], output=output)


def test_long_texts_are_refused_by_index_tokens_and_limit_in_json_and_binary(refusing):
    served, tiny = refusing
    for request in ((json_request(MIXED),), binary(MIXED, tiny)):
        refusal = sentence(served.ask(*request))
        assert refusal.endswith(f"{REFUSAL}text[1] has 33, text[4] has 202{REMEDY}")


def test_texts_that_fit_are_answered_as_where_long_ones_are_cut(refusing, launched):
    served, tiny = refusing
    output = ANSWERS[tiny.served.task]
    fitting = [text for text in MIXED if len(text.split()) <= LONGEST - 2]
    expected = rows(launched("python-server", tiny).ask(json_request(fitting)), output)
    for request in ((json_request(fitting),), binary(fitting, tiny)):
        assert np.allclose(rows(served.ask(*request), output), expected, atol=1e-5)


def test_ensemble_warms_every_profile_size_and_pads_to_few_lengths(tmp_path):
    write_form(tmp_path / "model", EMBEDDER, "ensemble")
    with serving("triton-sme", tmp_path / "model", tmp_path / "server") as server:
        rows(server.ask(json_request(["cat " * count for count in (1, 9, 17, 200)])))
        log = server.container.spec.log.read_text()
    batches = re.findall(r"engine batch: requests \d+, rows (\d+), lengths \[([\d, ]+)\]", log)
    assert {("1", "8"), ("8", "16"), ("32", "32")} <= set(batches)
    assert {length for _, lengths in batches for length in lengths.split(", ")} == {"8", "16", "32"}


def truncated(served):
    """The number of truncated texts in the server's metrics, by model."""
    lines = served.client.request("GET", "/metrics").body.decode().splitlines()
    name = "roundhouse_truncated_texts_total{"
    samples = (line.rpartition(" ") for line in lines if line.startswith(name))
    return {sample.removeprefix(name): float(value) for sample, _, value in samples}


def test_cut_texts_are_answered_as_their_beginnings_and_counted(archive, tmp_path):
    model = f'model="{EMBEDDER.model}"}}'
    with serving("python-server", archive, tmp_path) as one:
        assert truncated(one) == {model: 0}
        mixed = rows(one.ask(json_request(MIXED)))
        beginnings = rows(one.ask(json_request(["cat " * 30, "dog " * 30])))
        assert np.allclose(mixed[[1, 4]], beginnings, atol=1e-6)
        long_enough_for_a_thread = ["dog " * 2000] * 3
        rows(one.ask(json_request(long_enough_for_a_thread)))
        assert truncated(one) == {model: 5}
