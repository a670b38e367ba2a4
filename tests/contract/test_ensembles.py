"""Ensembles of several models, and a user's code that calls them (BLS), in real Triton."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from onboarding.serve_environment import serve_environment
from tests.contract.conftest import end_of, rows, serving
from tests.contract.requests import json_request
from tests.contract.test_ensemble import write_ensemble
from tests.fixtures.ensembles.archive import ensemble_spec, write_ensemble_archive
from tests.fixtures.tiny_embedder.archive import EMBEDDER, REPOSITORY, SCORER, write_archive

STEPS = (EMBEDDER, SCORER)
TEXTS = ("the cat sat on the mat", "a dog", "", "ünïcode 火車")
CODE = REPOSITORY / "tests" / "fixtures" / "ensembles"
NAME = "mood"
WIRED = {
    "steps": [
        {"model": EMBEDDER.model, "outputs": {"embedding": "meaning"}},
        {"model": SCORER.model, "inputs": {"vector": "meaning"}},
    ],
    "outputs": ["scores"],
}
TEXT = {"name": "text", "datatype": "BYTES", "dims": [1], "example": "a cat"}
BLS = {
    "bls": {
        "file": "bls_code.py",
        "timeout_ms": 2000,
        "models": [EMBEDDER.model, SCORER.model],
        "inputs": [TEXT],
        "outputs": [
            {"name": "scores", "datatype": "FP32", "dims": [3]},
            {"name": "calls", "datatype": "INT64", "dims": [1]},
        ],
    }
}
CALLED = serve_environment(NAME, called_models=[step.model for step in STEPS])


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
    write_ensemble_archive(folder / "model", ensemble_spec(NAME, **WIRED), STEPS, CODE)
    with serving("triton-sme", folder / "model", folder / "run", model=NAME) as server:
        yield server


@pytest.fixture(scope="module")
def bls(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bls")
    write_ensemble_archive(folder / "model", ensemble_spec(NAME, **BLS), STEPS, CODE)
    with serving("triton-sme", folder / "model", folder / "run", model=NAME, **CALLED) as server:
        yield server


def test_ensemble_answers_as_its_models_do_one_after_the_other(wired, expected):
    answers = outputs(wired.ask(json_request(TEXTS)))
    assert set(answers) == {"scores"}
    assert np.allclose(answers["scores"], expected, atol=1e-6)
    assert wired.client.request("GET", "/ping").status == 200


def test_largest_batch_of_an_ensemble_is_its_smallest_steps(wired):
    assert outputs(wired.ask(json_request(["a"] * 8)))["scores"].shape == (8, 3)
    assert wired.ask(json_request(["a"] * 9)).status == 400


def test_bls_calls_models_as_its_code_says(bls, expected):
    answers = outputs(bls.ask(json_request(TEXTS)))
    assert np.allclose(answers["scores"], expected, atol=1e-6)
    assert answers["calls"].tolist() == [[2]] * len(TEXTS)
    (once,) = outputs(bls.ask(json_request(["once"])))["calls"].tolist()
    assert once == [1]


@pytest.mark.parametrize(
    ("word", "status", "sentence"),
    [
        ("refuse", 400, "text is 'refuse'; send another."),
        ("raise", 500, "execute() failed with KeyError: 'none'."),
        ("hang", 500, "execute() took more than 2 s and was stopped."),
        ("exit", 500, "the process of execute() ended with code 3."),
        ("stranger", 500, "execute() called stranger, which is none of its models"),
        ("shape", 500, "execute() failed with RuntimeError: tiny-scorer answered: "),
        ("wrong", 500, "execute() returned scores; it must return scores, calls."),
    ],
)
def test_fault_of_a_bls_fails_one_request_alone(word, status, sentence, bls, expected):
    with ThreadPoolExecutor(3) as clients:
        others = [clients.submit(bls.ask, json_request(TEXTS)) for _ in range(2)]
        answer = clients.submit(bls.ask, json_request([word])).result()
        answers = [outputs(other.result())["scores"] for other in others]
    assert answer.status == status, answer.body
    assert sentence in json.loads(answer.body)["error"]
    assert all(np.allclose(scores, expected, atol=1e-6) for scores in answers)
    assert np.allclose(outputs(bls.ask(json_request(TEXTS)))["scores"], expected, atol=1e-6)
    assert bls.client.request("GET", "/ping").status == 200


def test_ensemble_of_an_archive_of_a_gpu_is_an_ensemble_in_another(tmp_path, expected):
    """Tokenizer and wiring of a text model on a GPU, its plan stood in for, and a second model."""

    def write(folder, step):
        return write_ensemble(folder) if step is EMBEDDER else write_archive(folder, step)

    root = tmp_path / "model"
    spec = ensemble_spec(NAME, **WIRED)
    write_ensemble_archive(root, spec, STEPS, CODE, write)
    with serving("triton-sme", root, tmp_path / "run", model=NAME) as server:
        answers = outputs(server.ask(json_request(TEXTS)))
        assert np.allclose(answers["scores"], expected, atol=1e-6)
        assert server.client.request("GET", "/ping").status == 200


@pytest.mark.parametrize("kind", ["python-server", "triton-sme"])
def test_refuses_an_ensemble_that_it_cannot_play(kind, tmp_path):
    root = tmp_path / "model"
    write_ensemble_archive(root, ensemble_spec(NAME, **WIRED), STEPS, CODE)
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
