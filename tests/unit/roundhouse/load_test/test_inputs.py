"""Bodies from files."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest

from roundhouse.errors import RoundhouseError
from roundhouse.load_test.inputs import read_inputs


def read(path, data=None, *, rows=1, binary=None):
    if data is not None:
        path.write_bytes(data)
    return read_inputs(path, rows_per_request=rows, binary=binary)


def texts(body):
    return json.loads(body.data)["inputs"][0]["data"]


def test_texts_fill_requests_in_order_and_the_rest_is_left_out(tmp_path):
    found = read(tmp_path / "a.txt", "a b\n\n  ü \nc\n".encode(), rows=2)
    assert [texts(body) for body in found.bodies] == [["a b", "ü"]]
    assert found.description == "2 texts of a.txt, 1 to 2 words, 2 in the median"
    assert (found.rows, found.bodies[0].content_type) == ("texts", "application/json")


def test_labels_are_no_inputs(tmp_path):
    assert texts(read(tmp_path / "a.tsv", b"good\tfine thing\n").bodies[0]) == ["fine thing"]
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 3), np.float32), labels=np.array([1, 2]))
    assert [
        input["name"]
        for input in json.loads(read(tmp_path / "a.npz", binary=False).bodies[0].data)["inputs"]
    ] == ["x"]


def test_arrays_are_cut_by_rows_and_sent_binary_by_default(tmp_path):
    np.savez(
        tmp_path / "a.npz", x=np.arange(6, dtype=np.float32).reshape(3, 2), n=np.array([1, 2, 3])
    )
    found = read(tmp_path / "a.npz")
    assert len(found.bodies) == 3
    assert "json-header-size" in found.bodies[0].content_type
    second = read(tmp_path / "a.npz", binary=False).bodies[1]
    assert [(input["shape"], input["data"]) for input in json.loads(second.data)["inputs"]] == [
        ([1, 2], [2, 3]),
        ([1, 1], [2]),
    ]


def test_texts_may_be_sent_binary(tmp_path):
    assert (
        "json-header-size" in read(tmp_path / "a.txt", b"a\n", binary=True).bodies[0].content_type
    )


def npz(**arrays) -> bytes:
    kept = io.BytesIO()
    np.savez_compressed(kept, **arrays)
    return kept.getvalue()


PLAIN = npz(x=np.random.default_rng(0).random(1000))
OBJECTS = npz(x=np.array([{}], object))


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.txt", None, "No such file"),
        ("a.npz", b"", "is no .npz file"),
        ("a.npz", b"x = 1", "is no .npz file"),
        (
            "a.npz",
            OBJECTS,
            "holds array 'x' of Python objects, which are never unpickled; write plain arrays "
            "with numpy.savez",
        ),
        *(
            ("a.npz", PLAIN[:at] + b"\0" * 9 + PLAIN[at + 9 :], "damaged")
            for at in (60, 200, 300, 3000)
        ),
        ("a.csv", b"a", "is no file of texts or arrays"),
        ("a.txt", b"\xff\n", "is not UTF-8"),
        ("a.txt", b"\n", "holds 0 texts, a request takes 1"),
        ("a.npz", b"PK no", "is no .npz file"),
    ],
)
def test_refuses_a_file_that_holds_no_inputs(tmp_path, name, data, message):
    with pytest.raises(RoundhouseError, match=message):
        read(tmp_path / name, data)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((2, 1)), "y": np.zeros((3, 1))}, "same number of rows"),
        ({"x": np.float32(1)}, "holds 0 rows"),
        ({}, "it has none"),
        ({"x": np.zeros((2, 1), np.complex64)}, "KServe v2 has no complex64"),
    ],
)
def test_refuses_arrays_that_make_no_request(tmp_path, arrays, message):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(RoundhouseError, match=message):
        read(tmp_path / "a.npz")
