"""Labels of images on both servers against transformers' pipeline, and files that are refused."""

from __future__ import annotations

import base64
import json
import struct
import subprocess
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest

from container.wire import array_request, arrays_of, image_request
from tests.contract.head_archives import BATCH, HeadModel, several
from tests.contract.test_heads import BUILDER, SERVERS, labelled
from tests.fixtures.tiny_embedder.archive import REPOSITORY

NAMES = ("vit", "resnet")
TOLERANCE = 1e-5


@dataclass(frozen=True, kw_only=True)
class Served:
    """One kind of server, and the suffix of its models' names."""

    name: str
    server: object
    suffix: str

    def send(self, name, body, content_type="application/json"):
        return self.server.send(f"{name}{self.suffix}", body, content_type)


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("image-models")
    command = (str(BUILDER), "-m", "tests.contract.image_models", str(folder))
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def models(exports):
    return {name: HeadModel(name=name, folder=exports / name) for name in NAMES}


@pytest.fixture(scope="module")
def files(exports):
    return [path.read_bytes() for path in sorted((exports / "images").iterdir())]


@pytest.fixture(scope="module")
def servers(models, archive, tmp_path_factory):
    root = tmp_path_factory.mktemp("image-archives")
    cpu = {name: model.write_archive(root / name) for name, model in models.items()}
    gpu = {
        f"{name}-ensemble": model.write_archive(root / f"{name}-ensemble", is_ensemble=True)
        for name, model in models.items()
    }
    with (
        several("python-mme", archive, cpu, tmp_path_factory.mktemp("python")) as python,
        several("triton-mme", archive, cpu | gpu, tmp_path_factory.mktemp("triton")) as triton,
    ):
        yield {
            "python": Served(name="python", server=python, suffix=""),
            "triton": Served(name="triton", server=triton, suffix=""),
            "ensemble": Served(name="ensemble", server=triton, suffix="-ensemble"),
        }


@pytest.fixture(params=SERVERS)
def kind(request, servers):
    return servers[request.param]


def sentence(answer):
    assert answer.status == 400, answer.body
    return json.loads(answer.body)["error"]


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_labels_and_scores_are_those_of_the_pipeline(name, binary, models, files, kind):
    model, found = models[name], []
    for start in range(0, len(files), BATCH):
        answer = kind.send(name, *image_request(files[start : start + BATCH], binary=binary))
        assert answer.status == 200, answer.body
        found += labelled([arrays_of(answer.body, answer.headers["content-type"])])
    assert len(found) == 200 and len({row[0][0] for row in found}) > 1
    for own, theirs in zip(found, model.facts["expected"], strict=True):
        assert dict(own) == pytest.approx(dict(map(tuple, theirs)), abs=TOLERANCE)
        scores = [score for _, score in own]
        assert scores == sorted(scores, reverse=True)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, *between):
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(b"\0" * 40))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(between) + pixels + chunk(b"IEND", b"")


BOMB = b"a\0\0" + zlib.compress(b"x" * (4 << 20))
HOSTILE = {
    "100 megapixels": (png(10_000, 10_000), "10000 x 10000 pixels"),
    "beyond any memory": (png(2**31 - 1, 2**31 - 1), "pixels; at most 32000000 are taken"),
    "no pixels": (png(0, 0), ""),
    "text bomb": (png(4, 4, chunk(b"zTXt", BOMB)), "is a PNG file that cannot be read"),
    "truncated PNG": (png(64, 64), "is a PNG file that cannot be read"),
    "no JPEG": (b"\xff\xd8\xff" + b"\0" * 500, "is a JPEG file that cannot be read"),
    "GIF": (b"GIF89a\1\0\1\0\0\0\0;", "is no JPEG or PNG file"),
    "TIFF": (b"II*\0\x08\0\0\0\0\0", "is no JPEG or PNG file"),
    "SVG": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "is no JPEG or PNG file"),
    "no base64": (b"####", "is no JPEG or PNG file, and no base64 of one"),
    "nothing": (b"", "it is empty"),
}


@pytest.mark.parametrize("fault", HOSTILE)
def test_refuses_a_file_by_its_place_while_others_are_answered(fault, files, kind):
    hostile, expected = HOSTILE[fault]
    with ThreadPoolExecutor(6) as clients:
        good = [clients.submit(kind.send, "vit", *image_request([files[0]])) for _ in range(5)]
        bad = kind.send("vit", *image_request([files[0], hostile]))
        assert {answer.result().status for answer in good} == {200}
    refusal = sentence(bad)
    assert "image[1]" in refusal and expected in refusal


def test_refuses_a_truncated_jpeg(files, kind):
    jpeg = next(file for file in files if file.startswith(b"\xff\xd8\xff"))
    assert "image[0] is a JPEG file" in sentence(kind.send("vit", *image_request([jpeg[:-200]])))


def test_one_file_is_a_whole_body(models, files, kind):
    for index, ending in ((files.index(next(filter(is_jpeg, files))), "jpeg"), (0, "png")):
        answer = kind.send("vit", files[index], f"image/{ending}")
        assert answer.status == 200, answer.body
        document = json.loads(answer.body)
        theirs = models["vit"].facts["expected"][index]
        if kind.name == "python":
            (row,) = document["outputs"]
            found = [(item["label"], item["score"]) for item in row]
        else:
            found = labelled([arrays_of(answer.body, "application/json")])[0]
        assert dict(found) == pytest.approx(dict(map(tuple, theirs)), abs=TOLERANCE)


def is_jpeg(file):
    return file.startswith(b"\xff\xd8\xff")


def test_python_server_answers_plain_json(models, files, servers):
    texts = [base64.b64encode(file).decode() for file in files[:3]]
    body = json.dumps({"inputs": texts, "parameters": {"top_k": 1}}).encode()
    answer = servers["python"].send("vit", body)
    rows = json.loads(answer.body)["outputs"]
    expected = models["vit"].facts["expected"][:3]
    assert [row[0]["label"] for row in rows] == [row[0][0] for row in expected]
    assert [len(row) for row in rows] == [1, 1, 1]


def test_concurrent_images_get_their_own_rows(models, files, kind):
    ask = lambda file: labelled(
        [arrays_of((a := kind.send("vit", *image_request([file]))).body, a.headers["content-type"])]
    )[0]
    with ThreadPoolExecutor(8) as clients:
        found = list(clients.map(ask, files[:40]))
    for own, theirs in zip(found, models["vit"].facts["expected"], strict=False):
        assert dict(own) == pytest.approx(dict(map(tuple, theirs)), abs=TOLERANCE)


def test_refuses_tensors_in_place_of_images(kind):
    body = array_request({"image": np.zeros((1, 1), np.float32)}, binary=False)
    assert kind.send("vit", *body).status == 400
