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
    TEXTS,
    Answer,
    hits,
    least_cosine,
    misses,
    require_sound,
    worst_cosine,
)
from roundhouse.dev.demo.result import search_table, summary_table
from roundhouse.errors import WrongAnswerError
from tests.unit.roundhouse.engines import copied_tree, entry_for, local_deployments


def _vectors(answers=EXPECTED):
    """Sentence vectors are the axes; each question points at the sentence given for it."""
    axes = [tuple(float(i == j) for j in range(len(DOCUMENTS))) for i in range(len(DOCUMENTS))]
    return (*axes, *(axes[place] for place in answers))


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    deployment = local_deployments(copied_tree(tmp_path_factory.mktemp("tree")))[0]
    return deployment, deployment.targets[0]


@pytest.fixture
def answer(pair):
    vectors = _vectors()
    return Answer(
        model="m", endpoint="local-m", server="Triton", manifest=entry_for(*pair).manifest,
        vectors=vectors,
        milliseconds=12.0, worst=worst_cosine(vectors, vectors), least=0.9999,
    )  # fmt: skip


def test_the_search_is_a_dozen_sentences_and_three_questions():
    assert (len(DOCUMENTS), len(QUESTIONS), len(TEXTS)) == (12, 3, 15)


def test_the_nearest_sentence_comes_first():
    assert [hits(_vectors(), place)[0].sentence for place in range(3)] == list(EXPECTED)
    assert hits(_vectors(), 0)[0].score == 1


def test_a_sound_answer_passes(answer):
    require_sound(answer)


def test_refuses_a_vector_that_strays_from_pytorch(answer):
    strayed = dataclasses.replace(answer, worst=0.9)
    with pytest.raises(
        WrongAnswerError, match=r"0\.90000 with PyTorch's; fp32 must have at least 0\.9999"
    ):
        require_sound(strayed)


def test_refuses_the_wrong_sentence(answer):
    wrong = dataclasses.replace(answer, vectors=_vectors((0, *EXPECTED[1:])))
    assert misses(wrong.vectors) == (QUESTIONS[0],)
    with pytest.raises(WrongAnswerError, match="finds the wrong sentence"):
        require_sound(wrong)


def test_fp32_is_held_to_more_than_its_budget(pair):
    _, target = pair
    assert least_cosine(target, entry_for(*pair).manifest) == 0.9999
    assert (
        least_cosine(target, entry_for(*pair, precision="int8").manifest)
        == target.model.accuracy.budget.worst
    )


def test_the_tables_show_every_question_and_model(answer):
    console = Console(file=io.StringIO(), width=200)
    console.print(search_table([answer]))
    console.print(summary_table([answer], {"m": 12.5}, "a caption"))
    text = console.file.getvalue()
    assert all(question in text for question in QUESTIONS)
    assert "12.5 s" in text and "a caption" in text and "local-m" in text
