"""`python -m engine_build.lengths` on a tiny tree."""

from __future__ import annotations

import io
import json

import pytest

from engine_build.errors import InputRefused
from engine_build.lengths.__main__ import main, token_counts
from tests.unit.engine_build.stand_ins import StandInRunner
from tests.unit.engine_build.tiny import (
    INSIDE,
    PIN,
    model,
    sample_texts,
    word_tokenizer,
    write_tree,
)


def no_tokenizer():
    raise AssertionError("lengths need no tokenizer")


def run(root, *arguments, model="tiny", runner=None):
    stdout, stderr = io.StringIO(), io.StringIO()
    common = ("--root", root, "--environment", "desk", "--model", model)
    code = main(list(map(str, (*common, *arguments))), stdout, stderr, runner=runner)
    return code, stdout.getvalue(), stderr.getvalue()


@pytest.fixture
def root(tmp_path):
    return write_tree(tmp_path / "root")


@pytest.fixture
def texts(tmp_path):
    return tmp_path / "texts.txt"


def test_lengths_are_taken_as_they_are(texts):
    texts.write_text("4\n\n17\n 9 \n")
    assert token_counts(texts, no_tokenizer) == (4, 17, 9)


def test_texts_are_counted_with_their_special_tokens_and_no_padding(root, texts, tmp_path):
    tokenizer = tmp_path / "tokenizer.json"
    word_tokenizer().save(str(tokenizer))
    texts.write_text("the cat\nthe red cat sat\n")
    options = ("--texts", texts, "--tokenizer", tokenizer, "--format", "json")
    code, stdout, _ = run(root, *options)
    data = json.loads(stdout)
    assert code == 0 and (data["tokens"]["min"], data["tokens"]["max"]) == (4, 6)
    rate = data["ways"][0]["estimated_useful_tokens_per_second"]
    assert rate is None, "nothing is built, so nothing was measured"


@pytest.fixture
def prompted(tmp_path, texts):
    """Two texts, a checkpoint's tokenizer with its prompts, and a model with one of its own."""
    source = {"python_package": PIN, "path": INSIDE, "prompts": {"own": "a slow "}}
    root, folder = write_tree(tmp_path / "root", model("tiny", source=source)), tmp_path / "saved"
    folder.mkdir()
    word_tokenizer().save(str(folder / "tokenizer.json"))
    declared = {"prompts": {"query": "the old red ", "no": ""}, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(declared))
    texts.write_text("the cat\nthe red cat sat\n")

    def least_and_most(*options):
        files = ("--texts", texts, "--tokenizer", folder / "tokenizer.json", "--format", "json")
        code, stdout, stderr = run(root, *files, *options)
        return stderr if code else [json.loads(stdout)["tokens"][end] for end in ("min", "max")]

    return least_and_most


def test_tokens_of_the_prompt_are_counted(prompted):
    assert prompted() == [7, 9]
    assert prompted("--prompt-name", "own") == [6, 8]
    assert prompted("--prompt-name", "no") == [4, 6]


def test_refuses_a_prompt_that_there_is_not(prompted):
    assert "'mine', but the prompts of tiny are no, own, query; name one" in prompted(
        "--prompt-name", "mine"
    )


def test_tokenizer_comes_from_the_source_when_none_is_given(root, wheel, texts):
    runner = StandInRunner(wheel)
    texts.write_text("\n".join(sample_texts(30, seed=9)))
    code, stdout, _ = run(root, "--texts", texts, "--buckets", "2", runner=runner)
    assert code == 0 and runner.ran("pip") == 1
    assert "batcher buckets: 8, 16" in stdout and "sequence: [4, 8, 8]" in stdout


@pytest.mark.parametrize(("content", "reason"), [("", "is empty"), ("3\n0\n", "has a length of 0")])
def test_refuses_files_without_lengths(content, reason, texts):
    texts.write_text(content)
    with pytest.raises(InputRefused, match=reason):
        token_counts(texts, no_tokenizer)


@pytest.mark.parametrize(
    ("model", "reason"), [("tiny", "texts.txt cannot be read"), ("tinny", "tinny")]
)
def test_refuses_a_file_or_a_model_that_does_not_exist(root, texts, model, reason):
    code, _, stderr = run(root, "--texts", texts, model=model)
    assert code == 1 and reason in stderr
