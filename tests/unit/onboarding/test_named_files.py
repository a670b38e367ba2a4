"""Files that models name: arrays, images, ONNX files and libraries, read by their headers."""

from __future__ import annotations

import hashlib
import io
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from onboarding.dataset import FOLDER, Datasets, array_headers, image_labels
from onboarding.onnx_header import NetworkTensor, read_onnx_header
from onboarding.shared_library import read_shared_library, tensorrt_misfit
from tests.shared_libraries import plugin
from tests.unit.onboarding.onnx_bytes import field, onnx_bytes, varint


def npz(**arrays: np.ndarray) -> bytes:
    data = io.BytesIO()
    np.savez_compressed(data, **arrays)
    return data.getvalue()


def test_refuses_pickled_objects():
    with pytest.raises(ValueError, match="'things' of Python objects"):
        array_headers(npz(things=np.array([{}], dtype=object)))


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


def test_dataset_of_labelled_texts_holds_both(tmp_path):
    (tmp_path / "a.tsv").write_text("good\ta fine day\n\nbad\train\tagain\n")
    found = Datasets(tmp_path)["a.tsv"]
    assert (found.labels, found.texts) == (("good", "bad"), ("a fine day", "rain\tagain"))


JPEG, PNG = b"\xff\xd8\xff one", b"\x89PNG\r\n\x1a\n two"


def write_images(root, **files):
    for name, data in files.items():
        path = root / "images" / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return Datasets(root)["images"]


def test_folder_of_images_is_a_dataset_of_its_files(tmp_path):
    dataset = write_images(tmp_path, a_jpg=JPEG, b_png=PNG)
    assert (dataset.kind, dataset.count, dataset.labels, dataset.problem) == (FOLDER, 2, None, None)
    assert len(set(dataset.digests)) == 2 and dataset.sha256 is not None
    (tmp_path / "images/c.png").write_bytes(PNG)
    assert Datasets(tmp_path)["images"].sha256 != dataset.sha256


def test_subfolders_are_labels(tmp_path):
    dataset = write_images(tmp_path, cat__a_jpg=JPEG, dog__b_png=PNG)
    assert dataset.labels == ("cat", "dog")
    assert image_labels(("cat/a.jpg", "b.jpg")) is None


EMBEDDER = Path(__file__).parents[2] / "fixtures" / "tiny_embedder"


def header(tmp_path, content):
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    return read_onnx_header(path)


def test_header_is_that_of_an_exported_network():
    found = read_onnx_header(EMBEDDER / "arithmetic.onnx")
    assert found.inputs == (
        NetworkTensor(name="signal", datatype="FP32", shape=(-1, 2, -1)),
        NetworkTensor(name="gain", datatype="INT64", shape=(-1,)),
    )
    assert [tensor.datatype for tensor in found.outputs] == ["FP32", "BOOL", "INT64"]
    assert found.operators >= {"ReduceSum", "Mul"}


def test_weights_that_old_files_list_as_inputs_are_none(tmp_path):
    inputs = {"x": (1, (None, 3)), "w": (1, (3, 3))}
    found = header(tmp_path, onnx_bytes(inputs, weights=("w",)))
    assert [tensor.name for tensor in found.inputs] == ["x"]
    assert not found.has_external_weights


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n",
        b"\x00" * 64,
        b"\xff" * 64,
        field(1, 8),
        field(7, b""),
        onnx_bytes({"x": (1, (None,))})[:-20],
        varint(7 << 3 | 2) + varint(1 << 62),
        field(7, field(12, field(1, b"\xff\xfe"))),
    ],
)
def test_refuses_what_is_no_onnx_file(tmp_path, content):
    with pytest.raises(ValueError, match=r"is empty|is no ONNX file, or a damaged one"):
        header(tmp_path, content)


BUILD = "10.16.1.11"


@pytest.fixture
def library(tmp_path):
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc")
    return plugin(tmp_path / "libscale.so")


def write_library(tmp_path, data):
    path = tmp_path / "changed.so"
    path.write_bytes(data)
    return path


def test_library_names_its_processor_and_what_it_is_linked_with(library):
    facts = read_shared_library(library)
    assert (facts.machine, facts.tensorrt_majors) == ("x86-64", {10})
    assert facts.needed[0] == "libnvinfer.so.10"
    assert facts.sha256 == hashlib.sha256(library.read_bytes()).hexdigest()
    assert tensorrt_misfit(facts, BUILD) is None


def test_refuses_a_library_without_tensorrt(tmp_path, library):
    other = read_shared_library(plugin(tmp_path / "other/libscale.so", major=None))
    assert "linked with no library of TensorRT" in str(tensorrt_misfit(other, BUILD))


def test_damaged_libraries_are_refused_in_words(library, tmp_path):
    data, chance = library.read_bytes(), random.Random(7)
    refused = 0
    for number in range(200):
        damaged = bytearray(data[: chance.randrange(4, len(data))] if number % 2 else data)
        for _ in range(8):
            damaged[chance.randrange(4, min(len(damaged), 1200) or 5) % len(damaged)] = (
                chance.randrange(256)
            )
        try:
            read_shared_library(write_library(tmp_path, bytes(damaged)))
        except ValueError as error:
            assert str(error).startswith("is ")
            refused += 1
    assert refused > 30
