"""Ensembles of several models in real Triton."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.contract.conftest import end_of, rows, serving
from tests.contract.requests import json_request
from tests.contract.test_ensemble import write_ensemble
from tests.fixtures.ensembles.archive import ensemble_spec, write_ensemble_archive
from tests.fixtures.tiny_embedder.archive import EMBEDDER, SCORER, write_archive

STEPS = (EMBEDDER, SCORER)
TEXTS = ("the cat sat on the mat", "a dog", "", "ünïcode 火車")
NAME = "mood"
WIRED = {
    "steps": [
        {"model": EMBEDDER.model},
        {"model": SCORER.model},
    ],
    "outputs": ["scores"],
}


def outputs(answer) -> dict[str, np.ndarray]:
    assert answer.status == 200, answer.body
    found = json.loads(answer.body)["outputs"]
    return {item["name"]: np.array(item["data"]).reshape(item["shape"]) for item in found}


@pytest.fixture(scope="module")
def expected(launched, tmp_path_factory):
    """The scores of some texts, by the two models one after the other."""
    vectors = rows(launched("triton-sme").ask(json_request(TEXTS)))
    folder = tmp_path_factory.mktemp("scorer")
    write_archive(folder / "model", SCORER)
    tensor = {"name": "vector", "datatype": "FP32", "shape": list(vectors.shape)}
    body = json.dumps({"inputs": [{**tensor, "data": vectors.reshape(-1).tolist()}]}).encode()
    with serving("triton-sme", folder / "model", folder / "run", model=SCORER.model) as server:
        return outputs(server.ask(body))["scores"]


@pytest.fixture(scope="module")
def wired(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wired")
    write_ensemble_archive(folder / "model", ensemble_spec(NAME, **WIRED), STEPS)
    with serving("triton-sme", folder / "model", folder / "run", model=NAME) as server:
        yield server


def test_ensemble_answers_as_its_models_do_one_after_the_other(wired, expected):
    answers = outputs(wired.ask(json_request(TEXTS)))
    assert set(answers) == {"scores"}
    assert np.allclose(answers["scores"], expected, atol=1e-6)
    assert wired.client.request("GET", "/ping").status == 200


def test_largest_batch_of_an_ensemble_is_its_smallest_steps(wired):
    assert outputs(wired.ask(json_request(["a"] * 8)))["scores"].shape == (8, 3)
    assert wired.ask(json_request(["a"] * 9)).status == 400


def test_ensemble_of_an_archive_of_a_gpu_is_an_ensemble_in_another(tmp_path, expected):
    """Tokenizer and wiring of a text model on a GPU, its plan stood in for, and a second model."""

    def write(folder, step):
        return write_ensemble(folder) if step is EMBEDDER else write_archive(folder, step)

    root = tmp_path / "model"
    spec = ensemble_spec(NAME, **WIRED)
    write_ensemble_archive(root, spec, STEPS, write)
    with serving("triton-sme", root, tmp_path / "run", model=NAME) as server:
        answers = outputs(server.ask(json_request(TEXTS)))
        assert np.allclose(answers["scores"], expected, atol=1e-6)
        assert server.client.request("GET", "/ping").status == 200


@pytest.mark.parametrize("kind", ["python-server", "triton-sme"])
def test_refuses_an_ensemble_that_it_cannot_play(kind, tmp_path):
    root = tmp_path / "model"
    write_ensemble_archive(root, ensemble_spec(NAME, **WIRED), STEPS)
    if kind == "triton-sme":
        path = root / f"manifest-{EMBEDDER.model}.json"
        path.write_bytes(
            path.read_bytes().replace(b'"max_batch_size": 32', b'"max_batch_size": 33')
        )
    status, log = end_of(kind, root, tmp_path / "run", model=NAME)
    sentence = {
        "python-server": "Refused: the archive holds an ensemble of several models",
        "triton-sme": f"Refused: manifest-{EMBEDDER.model}.json has sha256",
    }[kind]
    assert status != 0 and sentence in log
