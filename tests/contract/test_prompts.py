"""Prompts of an embedder: the default, the one that a request names, and none that there is not."""

from __future__ import annotations

import numpy as np
import pytest

from onboarding.manifest import Prompts
from tests.contract.conftest import rows, serving
from tests.contract.head_archives import write_form
from tests.contract.requests import json_request
from tests.contract.test_long_texts import sentence
from tests.fixtures.tiny_embedder.archive import EMBEDDER

PROMPTS = Prompts(
    texts={"query": "a fast red train : ", "document": ""}, default_prompt_name="query"
)
TEXTS = ("the cat sat on the mat", "a dog", "", "cat " * 60)
SERVERS = [("python-server", "cpu"), ("triton-sme", "cpu"), ("triton-sme", "ensemble")]


@pytest.fixture(scope="module", params=SERVERS, ids="-".join)
def prompted(request, tmp_path_factory):
    """A server of an archive with prompts."""
    kind, form = request.param
    folder = tmp_path_factory.mktemp("prompted")
    root = folder / "archive" / "model"
    write_form(root, EMBEDDER, form, prompts=PROMPTS)
    with serving(kind, root, folder / "server") as one:
        yield one


@pytest.mark.parametrize("name", [None, "query", "document"])
def test_prompt_stands_before_every_text(name, prompted, launched):
    fields = {} if name is None else {"parameters": {"prompt_name": name}}
    written = [PROMPTS.prefix(name) + text for text in TEXTS]
    expected = rows(launched("python-server").ask(json_request(written)))
    assert np.allclose(rows(prompted.ask(json_request(TEXTS, **fields))), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("title", "Unknown prompt 'title'; the model has 'document', 'query'."),
        (3, '"prompt_name" is 3; it must be a string.'),
    ],
)
def test_refuses_a_prompt_that_there_is_not(name, words, prompted):
    answer = prompted.ask(json_request(TEXTS, parameters={"prompt_name": name}))
    assert sentence(answer).endswith(words)


def test_refuses_a_prompt_where_there_is_none(launched):
    for kind in ("python-server", "triton-sme"):
        answer = launched(kind).ask(json_request(["a"], parameters={"prompt_name": "query"}))
        assert sentence(answer).endswith("Unknown prompt 'query'; the model has no prompts.")
