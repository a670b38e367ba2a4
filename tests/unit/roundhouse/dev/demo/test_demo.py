"""The demo's own judgement: what it finds, and what it refuses."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console

from roundhouse.dev.demo.answers import (
    DOCUMENTS,
    EXPECTED,
    QUESTIONS,
    Answer,
    least_cosine,
    require_sound,
    scores,
    search_table,
    summary_table,
    worst_cosine,
)
from roundhouse.errors import WrongAnswerError
from tests.unit.roundhouse.engines import copied_tree, entry_for, local_deployments


def vectors(answers=EXPECTED):
    """Sentence vectors are the axes; each question points at the sentence given for it."""
    axes = [tuple(float(i == j) for j in range(len(DOCUMENTS))) for i in range(len(DOCUMENTS))]
    return (*axes, *(axes[sentence] for sentence in answers))


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    deployment = local_deployments(copied_tree(tmp_path_factory.mktemp("tree")))[0]
    return deployment, deployment.targets[0]


@pytest.fixture
def answer(pair):
    return Answer(
        model="m", endpoint="local-m", server="Triton", manifest=entry_for(*pair).manifest,
        vectors=vectors(), milliseconds=12.0, worst=worst_cosine(vectors(), vectors()),
        least=0.9999,
    )  # fmt: skip


def test_the_nearest_sentence_comes_first():
    assert [next(iter(scores(vectors(), position))) for position in range(3)] == list(EXPECTED)
    assert scores(vectors(), 0)[EXPECTED[0]] == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"worst": 0.9}, r"0\.90000 with PyTorch's; fp32 must have at least 0\.9999"),
        ({"vectors": vectors((0, *EXPECTED[1:]))}, "finds the wrong sentence for 'How do I get"),
    ],
)
def test_refuses_a_vector_that_strays_and_a_wrong_sentence(answer, changes, message):
    with pytest.raises(WrongAnswerError, match=message):
        require_sound(dataclasses.replace(answer, **changes))


def test_fp32_is_held_to_more_than_its_budget(pair):
    _, target = pair
    assert least_cosine(target, entry_for(*pair).manifest) == 0.9999
    int8 = entry_for(*pair, precision="int8").manifest
    assert least_cosine(target, int8) == target.model.accuracy.budget.worst


def test_the_tables_show_every_question_and_model(answer):
    console = Console(file=io.StringIO(), width=200)
    console.print(search_table([answer]))
    console.print(summary_table([answer], {"m": 12.5}))
    text = console.file.getvalue()
    assert all(question in text for question in QUESTIONS)
    assert "12.5 s" in text and "local-m" in text
