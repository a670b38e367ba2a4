"""A Triton repository of a user's own in real Triton: an ensemble, and code that calls models."""

from __future__ import annotations

import json

import pytest

from engine_build.packaging.archive import model_repository
from engine_build.packaging.triton_repository import repository_fields
from onboarding.checkpoint import checkpoint_files
from onboarding.manifest import Manifest, RuntimeIdentity
from onboarding.serve_environment import serve_environment
from onboarding.triton_repository import read_repository, repository_models
from tests.contract.conftest import serving
from tests.contract.model_config import parse_configuration
from tests.fixtures.tiny_embedder.archive import REPOSITORY, write_manifest

FOLDER = REPOSITORY / "tests/fixtures/triton_repository"
NAME = "mood"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repository")
    manifest = write_archive(folder / "model")
    others = [name for name in repository_models(manifest) if name != NAME]
    variables = serve_environment(NAME, other_models=others)
    with serving("triton-sme", folder / "model", folder / "run", model=NAME, **variables) as server:
        yield server


def write_archive(root) -> Manifest:
    repository = read_repository(FOLDER, "repository", NAME)
    assert repository.faults == ()
    model_repository(root, {name: FOLDER / name for name in checkpoint_files(FOLDER)})
    fields = repository_fields(repository.models[NAME])
    return write_manifest(
        root, runtime=RuntimeIdentity(name="triton", version="24.10"), tokenizer_file=None, **fields
    )


def ask(server, rows):
    data = [value for row in rows for value in row]
    tensor = {"name": "x", "datatype": "FP32", "shape": [len(rows), 4], "data": data}
    return server.ask(json.dumps({"inputs": [tensor]}).encode())


def test_repository_answers_by_its_own_models_and_their_calls(server):
    answer = ask(server, [[1, 2, 3, 4], [-1, -2, -3, 0]])
    assert answer.status == 200, answer.body
    (output,) = json.loads(answer.body)["outputs"]
    assert (output["name"], output["shape"]) == ("label", [2, 1])
    assert output["data"] == ["up", "down"]
    assert server.client.request("GET", "/ping").status == 200


def test_request_that_its_configuration_forbids_is_the_clients_fault(server):
    assert ask(server, [[1, 2, 3, 4]] * 9).status == 400


def test_configurations_are_read_as_triton_reads_them():
    for model in read_repository(FOLDER, "repository", NAME).models.values():
        theirs = parse_configuration((FOLDER / model.name / "config.pbtxt").read_text())
        assert model.max_batch_size == theirs.max_batch_size == 8
        for field, tensors in (("input", theirs.input), ("output", theirs.output)):
            assert [(item.name, list(item.shape[1:])) for item in model.tensors(field)] == [
                (tensor.name, list(tensor.dims)) for tensor in tensors
            ]
