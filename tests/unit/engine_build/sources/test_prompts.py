"""Prompts are the checkpoint's and the model file's, which wins."""

from __future__ import annotations

import json

import pytest

from engine_build.errors import SourceFault
from engine_build.sources.prompts import CONFIGURATION, served_prompts
from onboarding.manifest import Prompts
from onboarding.model_spec import ModelSpec
from tests.unit.engine_build.tiny import model

DECLARED = {"prompts": {"query": "find ", "document": None}, "default_prompt_name": "query"}


def spec(task="text-embedding", **source):
    data = model(task=task, source={"python_package": "a==1", **source})
    return ModelSpec.model_validate_json(json.dumps(data))


@pytest.fixture
def declaring(tmp_path):
    """Writes a checkpoint's configuration of sentence-transformers."""

    def write(**declared):
        (tmp_path / CONFIGURATION).write_text(json.dumps(declared))
        return tmp_path

    return write


def test_declared_prompts_are_served_and_null_is_no_prefix(declaring):
    prompts = served_prompts(declaring(**DECLARED), spec())
    assert prompts == Prompts(texts={"query": "find ", "document": ""}, default_prompt_name="query")
    assert (prompts.prefix(), prompts.prefix("document")) == ("find ", "")


def test_model_file_adds_prompts_and_chooses_the_default(declaring):
    given = spec(prompts={"query": "ask ", "code": "def "}, default_prompt_name="code")
    prompts = served_prompts(declaring(**DECLARED), given)
    assert prompts.texts == {"query": "ask ", "document": "", "code": "def "}
    assert prompts.prefix() == "def "


def test_prompts_differ_only_where_an_answer_can(declaring):
    assert served_prompts(declaring(**DECLARED), spec()).differ
    assert not served_prompts(declaring(prompts={"query": "", "document": ""}), spec()).differ


@pytest.mark.parametrize("declared", [{}, {"prompts": {}}, {"prompts": None}])
def test_checkpoint_without_prompts_has_none(declared, declaring):
    assert served_prompts(declaring(**declared), spec()) is None


def test_network_file_has_the_prompts_of_the_model_file(tmp_path):
    (tmp_path / "model.onnx").touch()
    given = spec(prompts={"query": "ask "})
    assert served_prompts(tmp_path / "model.onnx", given).texts == {"query": "ask "}


def test_classifier_has_no_prompts(declaring):
    assert served_prompts(declaring(**DECLARED), spec("text-classification")) is None


def test_refuses_a_default_that_is_no_prompt(declaring):
    words = r"default_prompt_name is 'title', but the prompts are document, query; name one"
    with pytest.raises(SourceFault, match=words):
        served_prompts(declaring(**DECLARED), spec(default_prompt_name="title"))
    with pytest.raises(SourceFault, match=r"'query', but the prompts are none; name one"):
        served_prompts(declaring(default_prompt_name="query"), spec())


@pytest.mark.parametrize("prompts", [["query: "], {"query": 3}, "query: "])
def test_refuses_prompts_that_are_no_texts_by_name(prompts, declaring):
    with pytest.raises(SourceFault, match=rf"the prompts in {CONFIGURATION} of the checkpoint are"):
        served_prompts(declaring(prompts=prompts), spec())


def test_refuses_a_pooling_that_leaves_prompts_out(declaring):
    folder = declaring(**DECLARED)
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [
        {"path": path, "type": f"sentence_transformers.models.{kind}"}
        for path, kind in kinds.items()
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 4, "include_prompt": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    with pytest.raises(SourceFault, match=r"leaves its prompts' tokens out of its pooling"):
        served_prompts(folder, spec())
    assert not served_prompts(declaring(prompts={"query": ""}), spec()).differ
