"""Bodies from files."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest

from roundhouse.errors import RoundhouseError
from roundhouse.measure.inputs import MAX_BODIES, read_inputs


def read(path, data=None, *, rows=1, as_json=False):
    if data is not None:
        path.write_bytes(data)
    return read_inputs(path, rows_per_request=rows, as_json=as_json)


def tensors(body):
    return json.loads(body.data)["inputs"]


def test_texts_fill_requests_in_order_and_the_rest_is_left_out(tmp_path):
    inputs = read(tmp_path / "a.txt", "a b\n\n  ü \nc\n".encode(), rows=2)
    assert [tensors(body)[0]["data"] for body in inputs.bodies] == [["a b", "ü"]]
    assert inputs.description == "2 texts of a.txt, 1 to 2 words, 2 in the median"
    assert inputs.content_type == "application/json"


def test_labels_are_no_inputs(tmp_path):
    (body,) = read(tmp_path / "a.tsv", b"good\tfine thing\n").bodies
    assert tensors(body)[0]["data"] == ["fine thing"]
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 3), np.float32), labels=np.array([1, 2]))
    body, _ = read(tmp_path / "a.npz", as_json=True).bodies
    assert [tensor["name"] for tensor in tensors(body)] == ["x"]


def test_pairs_have_a_query_and_a_text(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("who\tme\t1\nwho\tyou\n")
    (body,) = read_inputs(path, rows_per_request=2, paired=True).bodies
    columns = {tensor["name"]: tensor["data"] for tensor in tensors(body)}
    assert columns == {"query": ["who", "who"], "text": ["me", "you"]}
    path.write_text("a text")
    with pytest.raises(RoundhouseError, match="with query, tab, text on every line"):
        read_inputs(path, rows_per_request=1, paired=True)


def test_arrays_are_cut_by_rows_and_sent_binary_by_default(tmp_path):
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.savez(tmp_path / "a.npz", x=x, n=np.array([1, 2, 3]))
    inputs = read(tmp_path / "a.npz")
    assert len(inputs.bodies) == 3
    assert "json-header-size" in inputs.bodies[0].content_type
    second = tensors(read(tmp_path / "a.npz", as_json=True).bodies[1])
    pairs = [(tensor["shape"], tensor["data"]) for tensor in second]
    assert pairs == [([1, 2], [2, 3]), ([1, 1], [2])]


def test_images_fill_requests_as_they_are(tmp_path):
    for index, begin in enumerate((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")):
        (tmp_path / f"{index}.{'png' if index == 1 else 'jpg'}").write_bytes(begin + b"%d" % index)
    inputs = read_inputs(tmp_path, rows_per_request=2)
    assert len(inputs.bodies) == 1
    assert inputs.bodies[0].data.endswith(b"\x89PNG\r\n\x1a\n1")
    with pytest.raises(RoundhouseError, match="holds 3 images, fewer than the 4"):
        read_inputs(tmp_path, rows_per_request=4)


def test_bodies_are_limited(tmp_path):
    assert len(read(tmp_path / "a.txt", b"a\n" * 3000).bodies) == MAX_BODIES


def npz(**arrays) -> bytes:
    kept = io.BytesIO()
    np.savez_compressed(kept, **arrays)
    return kept.getvalue()


PLAIN = npz(x=np.random.default_rng(0).random(1000))


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.txt", None, "No such file"),
        ("a.npz", b"", "is no .npz file"),
        ("a.npz", b"PK no", "is no .npz file"),
        *(
            ("a.npz", PLAIN[:at] + b"\0" * 9 + PLAIN[at + 9 :], "damaged")
            for at in (60, 200, 300, 3000)
        ),
        ("a.csv", b"a", "is no file of texts or arrays"),
        ("a.txt", b"\xff\n", "is not UTF-8"),
        ("a.txt", b"\n", "holds 0 texts, a request takes 1"),
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
