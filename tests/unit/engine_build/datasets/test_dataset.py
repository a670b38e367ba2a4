"""Datasets: texts, labelled texts, arrays, and files that are none of them."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from engine_build.datasets.dataset import Samples, samples
from engine_build.errors import InputRefused


def write(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    return path


def test_text_lines_are_samples_and_blank_lines_are_none(tmp_path):
    path = write(tmp_path, "a.txt", " a cat \n\n a dog\n")
    assert samples(path) == Samples(values=("a cat", "a dog"))


def test_labelled_lines_keep_their_labels(tmp_path):
    found = samples(write(tmp_path, "a.tsv", "glad\ta cat\n\nsad\ta dog\twith a tab\n"))
    assert found == Samples(values=("a cat", "a dog\twith a tab"), labels=("glad", "sad"))


def test_first_samples_keep_their_own_labels(tmp_path):
    found = samples(write(tmp_path, "a.tsv", "glad\ta cat\nsad\ta dog\n")).first(1)
    assert (found.values, found.labels) == (("a cat",), ("glad",))


def test_arrays_are_rows_of_every_input(tmp_path):
    x, y, labels = np.arange(6).reshape(3, 2), np.arange(3), np.array([1, 0, 1])
    np.savez(tmp_path / "a.npz", x=x, y=y, labels=labels)
    found = samples(tmp_path / "a.npz")
    rows = [(row["x"].tolist(), int(row["y"])) for row in found.values]
    assert rows == [([0, 1], 0), ([2, 3], 1), ([4, 5], 2)]
    assert found.labels == ("1", "0", "1")


def test_equal_rows_have_equal_identities():
    rows = Samples(values=({"x": np.ones(2)}, {"x": np.ones(2)}, {"x": np.zeros(2)}))
    assert len(set(rows.identities())) == 2


@pytest.mark.parametrize(
    ("content", "words"), [("a cat", "'a cat' has no label"), ("glad\ta cat\nsad\t ", "sample 2")]
)
def test_refuses_a_line_without_a_label_or_text(content, words, tmp_path):
    with pytest.raises(InputRefused, match=words):
        samples(write(tmp_path, "a.tsv", content))


@pytest.mark.parametrize(
    ("arrays", "fault"),
    [
        (
            {"x": np.zeros((3, 2)), "y": np.zeros(2)},
            r"holds x 3, y 2 rows; every array must have one row per sample",
        ),
        ({"labels": np.zeros(2)}, r"holds labels 2 rows"),
        ({"x": np.array([{}, None], dtype=object)}, r"a.npz cannot be read \(.*allowed: .txt"),
    ],
)
def test_refuses_arrays_that_are_no_samples(arrays, fault, tmp_path):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(InputRefused, match=fault):
        samples(tmp_path / "a.npz")


@pytest.mark.parametrize("name", ["a.npz", "b.txt"])
def test_refuses_a_file_that_is_no_archive_or_not_there(name, tmp_path):
    write(tmp_path, "a.npz", "no archive")
    with pytest.raises(InputRefused, match=rf"{name} cannot be read"):
        samples(tmp_path / name)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_refuses_or_reads_an_archive_with_any_byte_damaged(save, tmp_path):
    path = tmp_path / "a.npz"
    save(path, x=np.random.default_rng(0).random((40, 8)), labels=np.arange(40))
    whole, refused = path.read_bytes(), 0
    for index in range(0, len(whole), 7):
        path.write_bytes(whole[:index] + bytes([whole[index] ^ 0x55]) + whole[index + 1 :])
        try:
            samples(path)
        except InputRefused:
            refused += 1
    assert refused > len(whole) // 14


def test_refuses_an_archive_cut_short_anywhere(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.random.default_rng(0).random((40, 8)))
    whole = path.read_bytes()
    for length in range(0, len(whole), 53):
        path.write_bytes(whole[:length])
        with pytest.raises(InputRefused, match=r"a.npz cannot be read"):
            samples(path)


def test_refuses_an_array_larger_than_any_memory(tmp_path):
    data = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        data, {"descr": "<f8", "fortran_order": False, "shape": (1 << 50, 8)}
    )
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", data.getvalue())
    with pytest.raises(InputRefused, match=r"a.npz cannot be read \("):
        samples(tmp_path / "a.npz")


def test_refuses_a_single_array_under_the_name_of_an_archive(tmp_path):
    with (tmp_path / "a.npz").open("wb") as file:
        np.save(file, np.zeros((3, 2)))
    words = r"one array without a name; write np.savez\(path, name=array\)"
    with pytest.raises(InputRefused, match=words):
        samples(tmp_path / "a.npz")
