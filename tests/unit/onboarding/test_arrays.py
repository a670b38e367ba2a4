"""What is told of an .npz file without reading its arrays."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from onboarding.dataset import ArrayHeader, Datasets, array_headers


def npz(**arrays: np.ndarray) -> bytes:
    data = io.BytesIO()
    np.savez_compressed(data, **arrays)
    return data.getvalue()


def test_headers_are_numpy_s_own():
    data = npz(pixels=np.zeros((3, 2, 5), np.float32), ids=np.zeros(7, np.int64))
    assert array_headers(data) == (
        ArrayHeader(name="pixels", shape=(3, 2, 5), dtype="<f4"),
        ArrayHeader(name="ids", shape=(7,), dtype="<i8"),
    )


def test_refuses_pickled_objects():
    with pytest.raises(ValueError, match="'things' of Python objects"):
        array_headers(npz(things=np.array([{}], dtype=object)))


def test_refuses_a_zip_of_something_else():
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("a.txt", "hello, reader")
    with pytest.raises(ValueError, match=r"'a.txt', which is no numpy array"):
        array_headers(data.getvalue())


def test_refuses_a_damaged_header():
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00\x08\x00{'shape'")
    with pytest.raises(ValueError, match="'x' with a damaged header"):
        array_headers(data.getvalue())


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        (
            {"x": np.zeros((3, 2)), "y": np.zeros((4, 2))},
            "has arrays of different lengths: x 3, y 4",
        ),
        ({"x": np.zeros((0, 2))}, "is empty"),
        ({"labels": np.zeros(3)}, "is empty"),
    ],
)
def test_refuses_arrays_that_are_no_samples(tmp_path, arrays, problem):
    (tmp_path / "a.npz").write_bytes(npz(**arrays))
    assert Datasets(tmp_path)["a.npz"].problem == problem


def test_dataset_of_arrays_counts_rows_and_tells_labels(tmp_path):
    (tmp_path / "a.npz").write_bytes(npz(x=np.zeros((3, 2)), labels=np.arange(3)))
    found = Datasets(tmp_path)["a.npz"]
    assert (found.problem, found.count, found.labels is not None) == (None, 3, True)


def test_dataset_of_labelled_texts_holds_both(tmp_path):
    (tmp_path / "a.tsv").write_text("good\ta fine day\n\nbad\train\tagain\n")
    found = Datasets(tmp_path)["a.tsv"]
    assert (found.labels, found.texts) == (("good", "bad"), ("a fine day", "rain\tagain"))
