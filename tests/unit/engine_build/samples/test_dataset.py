"""Datasets: texts, labelled texts, arrays, and files that are none of them."""

from __future__ import annotations

import numpy as np
import pytest

from engine_build.errors import InputRefused
from engine_build.samples.dataset import Samples, samples


def written(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    return path


def test_text_lines_are_samples_and_blank_lines_are_none(tmp_path):
    assert samples(written(tmp_path, "a.txt", " a cat \n\n a dog\n")) == Samples(values=("a cat", "a dog"))


def test_labelled_lines_keep_their_labels(tmp_path):
    found = samples(written(tmp_path, "a.tsv", "glad\ta cat\n\nsad\ta dog\twith a tab\n"))
    assert found == Samples(values=("a cat", "a dog\twith a tab"), labels=("glad", "sad"))


def test_first_samples_keep_their_own_labels(tmp_path):
    found = samples(written(tmp_path, "a.tsv", "glad\ta cat\nsad\ta dog\n")).first(1)
    assert (found.values, found.labels) == (("a cat",), ("glad",))


def test_arrays_are_rows_of_every_input(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(6).reshape(3, 2), y=np.arange(3), labels=np.array([1, 0, 1]))
    found = samples(tmp_path / "a.npz")
    assert [(row["x"].tolist(), int(row["y"])) for row in found.values] == [([0, 1], 0), ([2, 3], 1), ([4, 5], 2)]
    assert found.labels == ("1", "0", "1")


def test_equal_rows_have_equal_identities():
    rows = Samples(values=({"x": np.ones(2)}, {"x": np.ones(2)}, {"x": np.zeros(2)}))
    assert len(set(rows.identities())) == 2


@pytest.mark.parametrize(("content", "words"), [("a cat", "'a cat' has no label"), ("glad\ta cat\nsad\t ", "sample 2")])
def test_refuses_a_line_without_a_label_or_text(content, words, tmp_path):
    with pytest.raises(InputRefused, match=words):
        samples(written(tmp_path, "a.tsv", content))


def test_refuses_arrays_of_different_lengths(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 2)), y=np.zeros(2))
    with pytest.raises(InputRefused, match=r"holds x 3, y 2 rows; every array must have one row per sample"):
        samples(tmp_path / "a.npz")


def test_refuses_labels_alone(tmp_path):
    np.savez(tmp_path / "a.npz", labels=np.zeros(2))
    with pytest.raises(InputRefused, match=r"holds labels 2 rows"):
        samples(tmp_path / "a.npz")


def test_refuses_arrays_of_python_objects(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([{}, None], dtype=object))
    with pytest.raises(InputRefused, match=r"a.npz cannot be read \(.*allowed: .txt"):
        samples(tmp_path / "a.npz")


def test_refuses_a_file_that_is_no_archive(tmp_path):
    with pytest.raises(InputRefused, match=r"a.npz cannot be read"):
        samples(written(tmp_path, "a.npz", "no archive"))


def test_refuses_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputRefused, match=r"a.txt cannot be read"):
        samples(tmp_path / "a.txt")
