"""`python -m engine_build.lengths` on a tiny tree."""

from __future__ import annotations

import io
import json

import pytest

from engine_build.errors import InputRefused
from engine_build.lengths.__main__ import main, token_counts
from tests.unit.engine_build.stand_ins import StandInRunner
from tests.unit.engine_build.tiny import sentences, word_tokenizer, write_tree


def no_tokenizer():
    raise AssertionError("lengths need no tokenizer")


def run(root, *arguments, runner=None):
    stdout, stderr = io.StringIO(), io.StringIO()
    asked = ["--root", str(root), "--environment", "desk", "--model", "tiny", *map(str, arguments)]
    return main(asked, stdout, stderr, runner=runner), stdout.getvalue(), stderr.getvalue()


def test_lengths_are_taken_as_they_are(tmp_path):
    path = tmp_path / "lengths.txt"
    path.write_text("4\n\n17\n 9 \n")
    assert token_counts(path, no_tokenizer) == (4, 17, 9)


def test_texts_are_counted_with_their_special_tokens_and_no_padding(tmp_path):
    root = write_tree(tmp_path / "root")
    word_tokenizer().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "texts.txt").write_text("the cat\nthe red cat sat\n")
    code, stdout, _ = run(
        root,
        "--texts",
        tmp_path / "texts.txt",
        "--tokenizer",
        tmp_path / "tokenizer.json",
        "--format",
        "json",
    )
    found = json.loads(stdout)
    assert code == 0 and (found["tokens"]["min"], found["tokens"]["max"]) == (4, 6)
    assert found["ways"][0]["estimated_useful_tokens_per_second"] is None, (
        "nothing is built, so nothing was measured"
    )


def test_tokenizer_comes_from_the_source_when_none_is_given(wheel, tmp_path):
    root, runner = write_tree(tmp_path / "root"), StandInRunner(wheel)
    (tmp_path / "texts.txt").write_text("\n".join(sentences(30, seed=9)))
    code, stdout, _ = run(root, "--texts", tmp_path / "texts.txt", "--buckets", "2", runner=runner)
    assert code == 0 and runner.ran("pip") == 1
    assert "batcher buckets: 8, 16" in stdout and "sequence: [4, 8, 8]" in stdout


@pytest.mark.parametrize(("content", "reason"), [("", "is empty"), ("3\n0\n", "has a length of 0")])
def test_refuses_files_that_tell_nothing(content, reason, tmp_path):
    path = tmp_path / "lengths.txt"
    path.write_text(content)
    with pytest.raises(InputRefused, match=reason):
        token_counts(path, no_tokenizer)


def test_refuses_a_file_that_is_not_there(tmp_path):
    code, _, stderr = run(write_tree(tmp_path / "root"), "--texts", tmp_path / "missing.txt")
    assert code == 1 and "missing.txt cannot be read" in stderr


def test_refuses_a_model_that_is_not_there(tmp_path):
    root, stderr = write_tree(tmp_path / "root"), io.StringIO()
    asked = ["--root", str(root), "--environment", "desk", "--model", "tinny", "--texts", "x"]
    assert main(asked, io.StringIO(), stderr) == 1 and "tinny" in stderr.getvalue()
