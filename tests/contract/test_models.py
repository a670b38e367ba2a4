"""Labels, rankings, entities and vectors of both servers against the models' own libraries."""

from __future__ import annotations

import base64
import json
import struct
import subprocess
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pytest

from container.entities import entities_of
from container.wire import arrays_of, image_request, rows_of
from onboarding.manifest import Prompts, TensorRecord
from tests.contract.head_archives import (
    BATCH,
    HeadModel,
    SeveralModels,
    python_servers,
    several,
)
from tests.contract.model_exports import COUNT, EMBEDDERS, HEADS, PROMPT
from tests.contract.requests import json_request
from tests.contract.test_long_texts import write_form
from tests.fixtures.tiny_embedder.archive import EMBEDDER, REPOSITORY

BUILDER = REPOSITORY / ".venvs" / "builder" / "bin" / "python"
IMAGES = ("vit", "resnet")
KINDS = ("python", "triton", "ensemble")
"""An ensemble is the archive of a GPU in the same Triton, its plan stood in for."""
TOLERANCE = 1e-5
pytestmark = pytest.mark.skipif(not BUILDER.exists(), reason=f"needs {BUILDER}")


@dataclass(frozen=True, kw_only=True)
class Served:
    """One kind of server, and the suffix of its models' names."""

    name: str
    models: Mapping[str, HeadModel]
    server: SeveralModels

    @property
    def suffix(self):
        return "-ensemble" if self.name == "ensemble" else ""

    def send(self, name, body, content_type="application/json"):
        return self.server.send(f"{name}{self.suffix}", body, content_type)

    def arrays(self, name, samples, *, binary=False):
        model = self.models[name]
        return self.server.arrays(model, samples, suffix=self.suffix, binary=binary)

    def answers(self, name, samples=None, *, binary=False):
        """Each output of each request of some of a model's samples, in order."""
        samples = self.models[name].facts["samples"] if samples is None else samples
        parts = [samples[start : start + BATCH] for start in range(0, len(samples), BATCH)]
        return [self.arrays(name, part, binary=binary) for part in parts]


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    """The exports of all models, in one process of the builder."""
    folder = tmp_path_factory.mktemp("models")
    command = (str(BUILDER), "-m", "tests.contract.model_exports", str(folder))
    ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    return folder


@pytest.fixture(scope="module")
def models(exports):
    return {name: HeadModel(name=name, folder=exports / name) for name in (*HEADS, *IMAGES)}


@pytest.fixture(scope="module")
def files(exports):
    return [path.read_bytes() for path in sorted((exports / "images").iterdir())]


def embedder_archive(folder, name):
    """The archive that a CPU build makes of an exported embedder."""
    width = np.load(folder / "vectors.npy").shape[1]
    output = TensorRecord(name="sentence_embedding", datatype="FP32", shape=(-1, width))
    served = replace(EMBEDDER.served, model=f"embedder-{EMBEDDERS.index(name)}", outputs=(output,))
    tiny = replace(EMBEDDER, served=served, network=str(folder / "model"))
    prompts = Prompts(texts={"query": PROMPT}, default_prompt_name="query")
    known = {"prompts": prompts} if name == EMBEDDERS[-1] else {}
    write_form(
        folder / "archive", tiny, "cpu", served, tokenizer=folder / "tokenizer.json", **known
    )
    return folder / "archive"


@pytest.fixture(scope="module")
def servers(exports, models, archive, tmp_path_factory):
    """Every model in a Python server of its own and in one Triton, there as an ensemble too."""
    root = tmp_path_factory.mktemp("archives")
    cpu = {name: model.write_archive(root / name) for name, model in models.items()}
    cpu |= {name: embedder_archive(exports / name, name) for name in EMBEDDERS}
    gpu = {
        f"{name}-ensemble": model.write_archive(root / f"{name}-ensemble", is_ensemble=True)
        for name, model in models.items()
    }
    with (
        python_servers(cpu, tmp_path_factory.mktemp("python")) as python,
        several(archive, cpu | gpu, tmp_path_factory.mktemp("triton")) as triton,
    ):
        kinds = zip(KINDS, (python, triton, triton), strict=True)
        yield {name: Served(name=name, models=models, server=server) for name, server in kinds}


@pytest.fixture(params=KINDS)
def kind(request, servers):
    return servers[request.param]


def labelled(parts):
    """Each text's labels with their scores, in the order of the answer."""
    return [
        list(zip(names, scores, strict=True))
        for part in parts
        for names, scores in zip(part["labels"], part["scores"], strict=True)
    ]


def entities(parts):
    """Each text's tokens that are of an entity: label, score, begin and end."""
    return [
        [
            (label, score, *offsets)
            for label, score, offsets in zip(*row, strict=True)
            if offsets[0] >= 0 and label != "O"
        ]
        for part in parts
        for row in zip(part["labels"], part["scores"], part["offsets"], strict=True)
    ]


@pytest.mark.parametrize("name", ["single", "multi", "regression"])
def test_labels_and_scores_are_those_of_the_pipeline(name, models, kind):
    found, expected = labelled(kind.answers(name)), models[name].facts["expected"]
    assert len(found) == len(expected) == COUNT
    for own, theirs in zip(found, expected, strict=True):
        assert dict(own) == pytest.approx(dict(map(tuple, theirs)), abs=TOLERANCE)
        scores = [score for _, score in own]
        assert scores == sorted(scores, reverse=True)


def test_logits_of_a_classifier_are_answered_beside_its_labels(kind):
    for part in kind.answers("single"):
        powers = np.exp(part["logits"])
        shares = np.sort(powers / powers.sum(axis=1, keepdims=True), axis=1)[:, ::-1]
        assert np.allclose(shares, part["scores"], atol=TOLERANCE)


@pytest.mark.parametrize("name", ["ranker", "raw-ranker"])
def test_scores_of_pairs_are_those_of_predict(name, models, kind):
    found = np.concatenate([part["scores"] for part in kind.answers(name)])
    assert found.shape == (COUNT, 1) and len(np.unique(found)) > 75
    assert np.allclose(found[:, 0], models[name].facts["expected"], atol=TOLERANCE)


def test_entities_of_tokens_are_those_of_the_pipeline(models, kind):
    found = entities(kind.answers("tokens"))
    assert len(found) == COUNT and sum(map(len, found)) > 200
    for own, (theirs, _) in zip(found, models["tokens"].facts["expected"], strict=True):
        assert [(label, *span) for label, _, *span in own] == [
            (label, *span) for label, _, *span in theirs
        ]
        assert [row[1] for row in own] == pytest.approx([row[1] for row in theirs], abs=TOLERANCE)


def test_grouped_entities_are_those_of_the_pipelines_simple_strategy(models, kind):
    model = models["tokens"]
    groups = zip(kind.answers("tokens"), range(0, COUNT, BATCH), strict=True)
    found = [
        entity
        for part, start in groups
        for entity in entities_of(part, model.facts["samples"][start : start + BATCH], grouped=True)
    ]
    for own, (_, theirs) in zip(found, model.facts["expected"], strict=True):
        assert [(entity.label, entity.start, entity.end) for entity in own] == [
            (label, *span) for label, _, *span in theirs
        ]
        assert [entity.score for entity in own] == pytest.approx(
            [row[1] for row in theirs], abs=TOLERANCE
        )


@pytest.mark.parametrize("name", HEADS)
def test_binary_answers_are_those_of_json(name, models, kind):
    samples = models[name].facts["samples"][:BATCH]
    for json_part, binary_part in zip(
        kind.answers(name, samples), kind.answers(name, samples, binary=True), strict=True
    ):
        assert sorted(json_part) == sorted(binary_part)
        for output, array in json_part.items():
            assert array.shape == binary_part[output].shape
            is_text = array.dtype == object
            assert (
                (array == binary_part[output]).all()
                if is_text
                else np.allclose(array, binary_part[output], atol=TOLERANCE)
            )


def test_concurrent_requests_of_tokens_get_their_own_rows(models, kind):
    texts = [text for text in models["tokens"].facts["samples"] if text.strip()][:40]
    alone = [kind.arrays("tokens", [text]) for text in texts]
    with ThreadPoolExecutor(8) as clients:
        together = list(clients.map(lambda text: kind.arrays("tokens", [text]), texts))
    for one, other in zip(alone, together, strict=True):
        assert (one["labels"] == other["labels"]).all()
        assert (one["offsets"] == other["offsets"]).all()


def test_client_asks_for_labels_alone(kind):
    text = {"name": "text", "shape": [1, 1], "datatype": "BYTES", "data": ["a cat"]}
    body = json.dumps({"inputs": [text], "outputs": [{"name": "labels"}]}).encode()
    answer = kind.send("single", body)
    assert answer.status == 200, answer.body
    (output,) = json.loads(answer.body)["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("labels", "BYTES", [1, 3])


def plain(server, name, **document):
    answer = server.send(name, json.dumps(document).encode())
    return answer.status, json.loads(answer.body)


def test_python_server_answers_plain_json_of_texts(models, servers):
    python = servers["python"]
    status, document = plain(python, "single", inputs=["a cat", "a dog"], parameters={"top_k": 1})
    assert status == 200 and [len(row) for row in document["outputs"]] == [1, 1]
    assert set(document["outputs"][0][0]) == {"label", "score"}
    _, document = plain(python, "ranker", query="a cat", texts=["a dog", "the cat sat", "a bird"])
    ranked = [row["score"] for row in document["outputs"]]
    assert sorted(row["index"] for row in document["outputs"]) == [0, 1, 2]
    assert ranked == sorted(ranked, reverse=True)
    text = models["tokens"].facts["samples"][0]
    _, document = plain(python, "tokens", inputs=text)
    expected = models["tokens"].facts["expected"][0][0]
    found = [(row["entity"], row["start"], row["end"]) for row in document["outputs"][0]]
    assert found == [(label, *span) for label, _, *span in expected]


def test_refuses_pairs_of_different_counts_and_half_a_pair(kind):
    def column(name, texts):
        return {"name": name, "shape": [len(texts), 1], "datatype": "BYTES", "data": texts}

    odd = [column("query", ["a"]), column("text", ["b", "c"])]
    for inputs in (odd, odd[:1]):
        sentence(kind.send("ranker", json.dumps({"inputs": inputs}).encode()))


def sentence(answer):
    assert answer.status == 400, answer.body
    return json.loads(answer.body)["error"]


@pytest.mark.parametrize(("name", "binary"), [("vit", True), ("resnet", True), ("vit", False)])
def test_labels_of_images_are_those_of_the_pipeline(name, binary, models, files, kind):
    found = labelled(kind.answers(name, files, binary=binary))
    assert len(found) == COUNT and len({row[0][0] for row in found}) > 1
    for own, theirs in zip(found, models[name].facts["expected"], strict=True):
        assert dict(own) == pytest.approx(dict(map(tuple, theirs)), abs=TOLERANCE)
        scores = [score for _, score in own]
        assert scores == sorted(scores, reverse=True)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height):
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(b"\0" * 40))
    return b"\x89PNG\r\n\x1a\n" + header + pixels + chunk(b"IEND", b"")


HOSTILE = {
    "beyond any memory": (png(2**31 - 1, 2**31 - 1), "pixels; at most 32000000 are taken"),
    "no JPEG": (b"\xff\xd8\xff" + b"\0" * 500, "is a JPEG file that cannot be read"),
    "GIF": (b"GIF89a\1\0\1\0\0\0\0;", "is no JPEG or PNG file"),
    "nothing": (b"", "it is empty"),
}
"""Others are refused in tests/unit/container/triton/test_images.py."""


@pytest.mark.parametrize("fault", HOSTILE)
def test_refuses_a_file_by_its_place_while_others_are_answered(fault, files, kind):
    hostile, expected = HOSTILE[fault]
    with ThreadPoolExecutor(6) as clients:
        good = [clients.submit(kind.send, "vit", *image_request([files[0]])) for _ in range(5)]
        bad = kind.send("vit", *image_request([files[0], hostile]))
        assert {answer.result().status for answer in good} == {200}
    refusal = sentence(bad)
    assert "image[1]" in refusal and expected in refusal


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


def test_python_server_answers_plain_json_of_images(models, files, servers):
    texts = [base64.b64encode(file).decode() for file in files[:3]]
    body = json.dumps({"inputs": texts, "parameters": {"top_k": 1}}).encode()
    answer = servers["python"].send("vit", body)
    rows = json.loads(answer.body)["outputs"]
    expected = models["vit"].facts["expected"][:3]
    assert [row[0]["label"] for row in rows] == [row[0][0] for row in expected]
    assert [len(row) for row in rows] == [1, 1, 1]


@pytest.mark.parametrize("name", EMBEDDERS)
@pytest.mark.parametrize("kind", KINDS[:2], indirect=True)
def test_endpoint_gives_what_encode_gives(name, kind, exports):
    texts = json.loads((exports / "texts.json").read_text())
    expected = np.load(exports / name / "vectors.npy")
    parts = [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
    answers = [kind.send(name, json_request(part)) for part in parts]
    assert {answer.status for answer in answers} == {200}
    vectors = np.concatenate(
        [rows_of(answer.body, answer.headers["content-type"]) for answer in answers]
    )
    assert vectors.shape == expected.shape
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(expected, axis=1)
    assert ((vectors * expected).sum(axis=1) / lengths).min() >= 0.9999
    assert np.abs(vectors - expected).max() < 1e-4
