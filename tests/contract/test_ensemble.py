"""The ensemble of a GPU archive inside real Triton.

Tokenizer and wiring as built, only the backend of its plan stood in for.
"""

from __future__ import annotations

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from container.client import rows_of
from engine_build.packaging.model_configuration import configurations
from engine_build.packaging.served import member
from onboarding.model_spec import DynamicBatchingSpec, ServingSpec
from onboarding.serve_environment import serve_environment
from tests.contract.conftest import TARGET_MODEL, exit_status, load, serve, start
from tests.contract.model_config import PROTOBUF, parsed, written
from tests.contract.requests import binary_request, json_request
from tests.fixtures.tiny_embedder.archive import CARRIED, EMBEDDER, HERE, SIZE, write_manifest

MODEL = EMBEDDER.model
TEXTS = (
    "the cat sat on the mat",
    "a dog",
    "a fast red train ran over the green track",
    "ünïcode 火車",
    "",
)
ENSEMBLES = ("triton-sme", "triton-mme")
STAND_IN = Path(__file__).with_name("engine_stand_in.py")
OTHER = "fedcba9876543210/model.tar.gz"


def on_a_cpu(text: str) -> str:
    """The plan's configuration with another backend.

    Inputs, outputs, batching and warm-up stay as generated.
    """
    config = parsed(text)
    config.backend, config.default_model_filename = "python", ""
    config.ClearField("optimization")
    for group in config.instance_group:
        group.kind = PROTOBUF.ModelInstanceGroup.KIND_CPU
        group.ClearField("profile")
    return written(config)


def write_ensemble(root: Path, serving: ServingSpec | None = None) -> None:
    """The archive of a text task on a GPU, with its plan stood in for by the float network."""
    shown = EMBEDDER.served if serving is None else replace(EMBEDDER.served, serving=serving)
    engine, tokenizer = (root / member(MODEL, part) / "1" for part in ("engine", "tokenizer"))
    for folder in (root / MODEL / "1", engine, tokenizer):
        folder.mkdir(parents=True)
    (root / MODEL / "1" / "ensemble.txt").write_text("An ensemble has no file of its own.\n")
    shutil.copy(HERE / "model.onnx", engine)
    shutil.copy(STAND_IN, engine / "model.py")
    shutil.copy(HERE / "tokenizer.json", tokenizer)
    shutil.copy(CARRIED / "tokenizer.py", tokenizer / "model.py")
    shutil.copy(CARRIED / "manifest_check.py", tokenizer)
    for name, text in configurations(shown, is_cpu=False).items():
        (root / name).write_text(
            on_a_cpu(text) if name.startswith(f"{member(MODEL, 'engine')}/") else text
        )
    files = {"engine_file": f"{member(MODEL, 'engine')}/1/model.onnx"}
    write_manifest(root, **files, tokenizer_file=f"{member(MODEL, 'tokenizer')}/1/tokenizer.json")


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory):
    root = tmp_path_factory.mktemp("ensemble") / "model"
    write_ensemble(root)
    return root


@pytest.fixture(scope="module", params=ENSEMBLES)
def served(request, ensemble, tmp_path_factory):
    one = serve(request.param, ensemble, tmp_path_factory.mktemp("served"), model=MODEL)
    yield one
    one.client.close()
    one.container.stop(10)


def rows(answer):
    """The vectors of an answer that is one."""
    assert answer.status == 200, answer.body
    return rows_of(answer.body, answer.headers["content-type"], "embedding")


def test_ensemble_answers_as_the_onnxruntime_backend_does(served, launched):
    found = rows(served.ask(json_request(TEXTS)))
    assert found.shape == (len(TEXTS), SIZE)
    assert np.allclose(found, rows(launched("python-server").ask(json_request(TEXTS))), atol=1e-6)
    assert np.array_equal(
        found, rows(served.ask(*binary_request([text.encode() for text in TEXTS])))
    )


def test_ensemble_warms_its_engine_with_every_profile_size_and_pads_to_few_lengths(served):
    rows(served.ask(json_request(["cat " * count for count in (1, 9, 17, 200)])))
    batches = re.findall(
        r"engine batch: requests \d+, rows (\d+), lengths \[([\d, ]+)\]",
        served.container.spec.log.read_text(),
    )
    assert {("1", "8"), ("8", "16"), ("32", "32")} <= set(batches)
    assert {length for _, lengths in batches for length in lengths.split(", ")} == {"8", "16", "32"}


def test_concurrent_clients_of_an_ensemble_get_their_own_answers(served):
    expected = {text: rows(served.ask(json_request([text]))) for text in TEXTS}
    asked = [TEXTS[index % len(TEXTS)] for index in range(100)]
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda text: rows(served.ask(json_request([text]))), asked))
    assert all(
        np.array_equal(answer, expected[text]) for text, answer in zip(asked, answers, strict=True)
    )


def test_bad_request_of_an_ensemble_fails_alone(served):
    assert served.ask(*binary_request([b"\xff"])).status == 400
    assert served.ask(json_request(["a"] * 33)).status == 400
    rows(served.ask(json_request(["a"])))


def cached(folder, **variables):
    """How often the engine ran for a request, the same again.

    Another one, where its archive wishes for a response cache.
    """
    wish = DynamicBatchingSpec(preferred_batch_sizes=(8, 32), max_queue_delay_us=100)
    write_ensemble(
        folder / "model",
        ServingSpec(dynamic_batching=wish, instances_per_gpu=2, response_cache=True),
    )
    one = serve("triton-sme", folder / "model", folder / "server", model=MODEL, **variables)
    log = one.container.spec.log
    try:
        counts = [log.read_text().count("engine batch:")]
        for texts in (TEXTS, TEXTS, ["a cat"]):
            rows(one.ask(json_request(texts)))
            counts.append(log.read_text().count("engine batch:"))
        return np.diff(counts).tolist()
    finally:
        one.client.close()
        one.container.stop(10)


def test_repeated_request_is_answered_from_the_response_cache_of_the_plan(tmp_path):
    assert cached(tmp_path, **serve_environment(MODEL, response_cache=True)) == [1, 0, 1]


def test_response_cache_is_ignored_where_the_server_has_none(tmp_path):
    assert cached(tmp_path, **serve_environment(MODEL)) == [1, 1, 1]


def test_refuses_a_changed_plan_in_single_model_mode(tmp_path):
    write_ensemble(tmp_path / "model")
    with (tmp_path / "model" / member(MODEL, "engine") / "1" / "model.onnx").open("ab") as file:
        file.write(b"\0")
    container = start("triton-sme", tmp_path / "model", tmp_path)
    try:
        assert exit_status(container) not in (0, None)
    finally:
        container.stop(0)
    assert (
        f"Refused: {member(MODEL, 'engine')}/1/model.onnx has sha256"
        in container.spec.log.read_text()
    )


def test_two_ensembles_of_one_model_share_a_multi_model_server(ensemble, tmp_path):
    write_ensemble(tmp_path / "second" / "model")
    one = serve("triton-mme", ensemble, tmp_path / "server", model=MODEL)
    try:
        assert (
            load(one.client, tmp_path / "second" / "model", name="second", target=OTHER).status
            == 200
        )
        headers = {"X-Amzn-SageMaker-Target-Model": OTHER, "Content-Type": "application/json"}
        answer = one.client.request("POST", "/models/second/invoke", json_request(TEXTS), headers)
        assert np.array_equal(rows(answer), rows(one.ask(json_request(TEXTS))))
        assert json.loads(answer.body)["model_name"] == OTHER
        assert (
            one.client.request(
                "DELETE", "/models/second", headers={"X-Amzn-SageMaker-Target-Model": OTHER}
            ).status
            == 200
        )
        rows(one.ask(json_request(TEXTS), **{"X-Amzn-SageMaker-Target-Model": TARGET_MODEL}))
    finally:
        one.client.close()
        one.container.stop(10)
