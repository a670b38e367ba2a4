"""Labels, rankings and entities of the Python server; Triton's are in test_triton_rows."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass

import numpy as np
import pytest

from container import wire
from container.client import entities_of
from tests.contract.conftest import Served, serving
from tests.contract.head_archives import write_form
from tests.fixtures.tiny_embedder.archive import HERE
from tests.gpu.test_triton import CHECKS, MADE, TINY
from tests.gpu.triton import column, png

TEXT = "a cat and a dog"
PICTURE = png(np.full((2, 2, 3), 90, np.uint8))


@dataclass(frozen=True)
class PythonServer:
    """What the rows of the GPU ask of a server of several models, which here has one."""

    served: Served

    def send(self, body, content_type="application/json", *, model):
        return self.served.ask(body, content_type)

    def answers(self, arrays, *, model):
        answer = self.send(*wire.array_request(arrays), model=model)
        assert answer.status == 200, answer.body
        return wire.arrays_of(answer.body, answer.headers["content-type"])

    def words(self):
        return self.served.container.spec.log.read_text()[-2000:]

    def plain(self, **document):
        """The outputs of plain JSON."""
        answer = self.served.ask(json.dumps(document).encode())
        assert answer.status == 200, answer.body
        return json.loads(answer.body)["outputs"]


def check_plain_labels(server):
    answer = server.answers({"text": column([TEXT])}, model="")
    (best,), (every,) = (
        server.plain(inputs=[TEXT], parameters=parameters) for parameters in ({"top_k": 1}, {})
    )
    assert best == every[:1] and [row["label"] for row in every] == answer["labels"][0].tolist()
    assert [row["score"] for row in every] == pytest.approx(answer["scores"][0], abs=1e-6)


def check_plain_ranking(server):
    texts = ["a dog", "the cat sat", "a bird"]
    feed = {"query": column(["a cat"] * 3), "text": column(texts)}
    scores = server.answers(feed, model="")["scores"][:, 0]
    ranked = server.plain(query="a cat", texts=texts)
    assert [row["index"] for row in ranked] == np.argsort(-scores).tolist()
    assert [row["score"] for row in ranked] == pytest.approx(-np.sort(-scores), abs=1e-6)


def check_plain_entities(server):
    answer = server.answers({"text": column([TEXT])}, model="")
    (tokens,) = entities_of(answer, [TEXT], grouped=False)
    (rows,) = server.plain(inputs=TEXT)
    found = [(row["entity"], row["start"], row["end"], row["word"]) for row in rows]
    assert found == [(token.label, token.start, token.end, token.text) for token in tokens] != []


def check_plain_images(server):
    answer = server.send(*wire.image_request([PICTURE]), model="")
    labels = wire.arrays_of(answer.body, answer.headers["content-type"])["labels"][0].tolist()
    (plain,) = server.plain(inputs=[base64.b64encode(PICTURE).decode()])
    whole = server.send(PICTURE, "image/png", model="")
    assert [row["label"] for row in plain] == labels
    assert json.loads(whole.body)["outputs"] == [plain]
    refused = server.send(*wire.image_request([PICTURE, b"GIF89a"]), model="")
    assert refused.status == 400 and b"image[1] is no JPEG or PNG file" in refused.body


PLAIN = {
    "classifier": check_plain_labels,
    "ranker": check_plain_ranking,
    "tokens": check_plain_entities,
    "images": check_plain_images,
}


@pytest.mark.parametrize("name", CHECKS)
def test_model_of_every_form_answers_as_its_network(name, tmp_path):
    model, network = MADE[name](tmp_path) if name in MADE else (TINY[name], None)
    write_form(
        tmp_path / "model",
        model,
        "cpu",
        network=network,
        tokenizer=HERE / "tokenizer.json" if model.served.is_text else None,
        activation=model.served.activation,
        image_processor=model.served.image_processor,
    )
    with serving("python-server", tmp_path / "model", tmp_path / "run") as served:
        CHECKS[name](PythonServer(served), network)
        if name in PLAIN:
            PLAIN[name](PythonServer(served))
