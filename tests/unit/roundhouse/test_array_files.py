"""Arrays from files to endpoints and back."""

from __future__ import annotations

import dataclasses
import io
import json

import numpy as np
import pytest

from onboarding.manifest import TensorRecord
from roundhouse.errors import RoundhouseError
from roundhouse.invocation_inputs import arrays_document, read_arrays, write_arrays
from tests.unit.roundhouse.engines import copied_tree, entry_for, local_deployments


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    deployment = local_deployments(copied_tree(tmp_path_factory.mktemp("tree")))[0]
    inputs = (TensorRecord(name="signal", datatype="FP32", shape=(-1, 2)),)
    found = deployment.targets[0]
    return dataclasses.replace(found, lock_entry=entry_for(deployment, found, inputs=inputs))


def test_an_npz_is_read_by_input_and_an_npy_is_the_only_input(tmp_path, target):
    signal = np.ones((3, 2), np.float32)
    np.savez(tmp_path / "a.npz", signal=signal, gain=np.array([1]))
    np.save(tmp_path / "a.npy", signal)
    assert list(read_arrays(tmp_path / "a.npz", target)) == ["signal", "gain"]
    assert read_arrays(tmp_path / "a.npy", target)["signal"].tolist() == signal.tolist()


def test_what_is_written_is_read_back_without_pickle(tmp_path, target):
    write_arrays(
        tmp_path / "o.npz", {"v": np.ones((1, 2), np.float32), "t": np.array(["a", "ü"], object)}
    )
    found = read_arrays(tmp_path / "o.npz", target)
    assert (found["v"].dtype, found["t"].tolist()) == (np.float32, ["a", "ü"])


def test_a_document_says_shape_and_type_and_stays_json():
    document = arrays_document({"v": np.array([[1.5, np.nan]], np.float32)})
    assert json.loads(json.dumps(document, allow_nan=False)) == {
        "v": {"datatype": "FP32", "shape": [1, 2], "data": [[1.5, None]]}
    }


def npy(array) -> bytes:
    kept = io.BytesIO()
    np.save(kept, array)
    return kept.getvalue()


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.npz", None, "No such file"),
        ("a.csv", b"1", "is no file of arrays"),
        ("a.npy", b"no", "is no .npy file"),
        ("a.npy", npy(np.array([{}], object)), "is no .npy file of a plain array"),
        ("a.npy", npy(np.ones(9))[:-20], "or a damaged one"),
        (
            "a.npy",
            npy(np.ones(9)).replace(b"(9,), }           ", b"(900000000000,), }"),
            "or a damaged one",
        ),
    ],
)
def test_refuses_a_file_without_arrays(tmp_path, target, name, data, message):
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(RoundhouseError, match=message) as refused:
        read_arrays(tmp_path / name, target)
    assert "pickle=" not in str(refused.value) and "unsafely" not in str(refused.value)


def test_refuses_an_npy_for_a_model_that_does_not_say_its_one_input(tmp_path, target):
    np.save(tmp_path / "a.npy", np.ones(2))
    with pytest.raises(RoundhouseError, match=r"a \.npy names no input"):
        read_arrays(tmp_path / "a.npy", dataclasses.replace(target, lock_entry=None))


@pytest.mark.parametrize(
    ("name", "message"), [("o.txt", "is written as .npz"), ("none/o.npz", "No such file")]
)
def test_refuses_a_place_that_cannot_be_written(tmp_path, name, message):
    with pytest.raises(RoundhouseError, match=message):
        write_arrays(tmp_path / name, {})
