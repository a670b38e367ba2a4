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

from engine_build.packaging.model_configuration import configurations
from engine_build.packaging.served import member
from onboarding.manifest import Manifest
from onboarding.serve_environment import serve_environment
from onboarding.serving_spec import DynamicBatchingSpec, ServingSpec
from tests.contract.conftest import TARGET_HEADER, TARGET_MODEL, end_of, load, rows, serving
from tests.contract.model_config import PROTOBUF, format_configuration, parse_configuration
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
    config = parse_configuration(text)
    config.backend, config.default_model_filename = "python", ""
    config.ClearField("optimization")
    for group in config.instance_group:
        group.kind = PROTOBUF.ModelInstanceGroup.KIND_CPU
        group.ClearField("profile")
    return format_configuration(config)


def write_ensemble(root: Path, serving: ServingSpec | None = None) -> Manifest:
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
    for name in ("manifest_check.py", "heads.py"):
        shutil.copy(CARRIED / name, tokenizer)
    for name, text in configurations(shown, is_cpu=False).items():
        (root / name).write_text(
            on_a_cpu(text) if name.startswith(f"{member(MODEL, 'engine')}/") else text
        )
    files = {"engine_file": f"{member(MODEL, 'engine')}/1/model.onnx"}
    return write_manifest(
        root, **files, tokenizer_file=f"{member(MODEL, 'tokenizer')}/1/tokenizer.json"
    )


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory):
    root = tmp_path_factory.mktemp("ensemble") / "model"
    write_ensemble(root)
    return root


@pytest.fixture(scope="module", params=ENSEMBLES)
def server(request, ensemble, tmp_path_factory):
    with serving(request.param, ensemble, tmp_path_factory.mktemp("served")) as one:
        yield one


def test_ensemble_answers_as_the_onnxruntime_backend_does(server, launched):
    vectors = rows(server.ask(json_request(TEXTS)))
    assert vectors.shape == (len(TEXTS), SIZE)
    ours = rows(launched("python-server").ask(json_request(TEXTS)))
    binary = rows(server.ask(*binary_request([text.encode() for text in TEXTS])))
    assert np.allclose(vectors, ours, atol=1e-6) and np.array_equal(vectors, binary)


def test_ensemble_warms_its_engine_with_every_profile_size_and_pads_to_few_lengths(server):
    rows(server.ask(json_request(["cat " * count for count in (1, 9, 17, 200)])))
    batches = re.findall(
        r"engine batch: requests \d+, rows (\d+), lengths \[([\d, ]+)\]",
        server.container.spec.log.read_text(),
    )
    assert {("1", "8"), ("8", "16"), ("32", "32")} <= set(batches)
    assert {length for _, lengths in batches for length in lengths.split(", ")} == {"8", "16", "32"}


def test_concurrent_clients_of_an_ensemble_get_their_own_answers(server):
    expected = {text: rows(server.ask(json_request([text]))) for text in TEXTS}
    texts = TEXTS * 20
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda text: rows(server.ask(json_request([text]))), texts))
    for text, answer in zip(texts, answers, strict=True):
        assert np.array_equal(answer, expected[text])


@pytest.mark.parametrize(("has_cache", "runs"), [(True, [1, 0, 1]), (False, [1, 1, 1])])
def test_repeated_request_is_answered_from_a_response_cache_that_the_server_has(
    has_cache, runs, tmp_path
):
    batching = DynamicBatchingSpec(preferred_batch_sizes=(8, 32), max_queue_delay_us=100)
    serving_spec = ServingSpec(dynamic_batching=batching, instances_per_gpu=2, response_cache=True)
    write_ensemble(tmp_path / "model", serving_spec)
    variables = serve_environment(MODEL, response_cache=has_cache)
    with serving("triton-sme", tmp_path / "model", tmp_path / "server", **variables) as one:
        log = one.container.spec.log
        counts = [log.read_text().count("engine batch:")]
        for texts in (TEXTS, TEXTS, ["a cat"]):
            rows(one.ask(json_request(texts)))
            counts.append(log.read_text().count("engine batch:"))
    assert np.diff(counts).tolist() == runs


def test_refuses_a_changed_plan_in_single_model_mode(tmp_path):
    write_ensemble(tmp_path / "model")
    engine = f"{member(MODEL, 'engine')}/1/model.onnx"
    with (tmp_path / "model" / engine).open("ab") as file:
        file.write(b"\0")
    status, log = end_of("triton-sme", tmp_path / "model", tmp_path)
    assert status != 0 and f"Refused: {engine} has sha256" in log


def test_two_ensembles_of_one_model_share_a_multi_model_server(ensemble, tmp_path):
    second, headers = tmp_path / "second" / "model", {TARGET_HEADER: OTHER}
    write_ensemble(second)
    with serving("triton-mme", ensemble, tmp_path / "server") as one:
        assert load(one.client, second, name="second", target=OTHER).status == 200
        answer = one.client.request(
            "POST",
            "/models/second/invoke",
            json_request(TEXTS),
            headers | {"Content-Type": "application/json"},
        )
        assert np.array_equal(rows(answer), rows(one.ask(json_request(TEXTS))))
        assert json.loads(answer.body)["model_name"] == OTHER
        assert one.client.request("DELETE", "/models/second", headers=headers).status == 200
        rows(one.ask(json_request(TEXTS), **{TARGET_HEADER: TARGET_MODEL}))
