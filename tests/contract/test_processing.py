"""A user's preprocessing and postprocessing inside real Triton."""

from __future__ import annotations

import dataclasses
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import yaml

from onboarding.serving_spec import ServingSpec
from tests.contract.conftest import end_of, rows, serving
from tests.contract.requests import json_request
from tests.fixtures.processing.archive import write_processed_archive
from tests.fixtures.tiny_embedder.archive import CLASSIFIER, EMBEDDER, REPOSITORY

EXAMPLE = REPOSITORY / "docs" / "examples" / "processing"
FAULTY = REPOSITORY / "tests" / "fixtures" / "processing"
HEADED = dataclasses.replace(
    CLASSIFIER, served=dataclasses.replace(CLASSIFIER.served, activation="softmax")
)


def example_tree(root: Path) -> tuple[Path, ServingSpec]:
    """The example's files where its section names them, and the section."""
    shutil.copytree(EXAMPLE, root / "models" / "code")
    section = yaml.safe_load((EXAMPLE / "serving.yaml").read_text())["serving"]
    return root, ServingSpec.model_validate_json(json.dumps(section))


def ticket(*tickets: tuple[str, str]) -> bytes:
    """The JSON request of some tickets, subject and body."""
    inputs = [
        {"name": name, "datatype": "BYTES", "shape": [len(tickets), 1], "data": list(texts)}
        for name, texts in zip(("subject", "body"), zip(*tickets, strict=True), strict=True)
    ]
    return json.dumps({"inputs": inputs}).encode()


def outputs(answer) -> dict[str, list]:
    assert answer.status == 200, answer.body
    return {item["name"]: item["data"] for item in json.loads(answer.body)["outputs"]}


def test_example_of_the_docs_answers_a_label_of_subject_and_body(tmp_path, launched):
    tree, spec = example_tree(tmp_path / "tree")
    write_processed_archive(tmp_path / "model", HEADED, spec, tree)
    with serving(
        "triton-mme", tmp_path / "model", tmp_path / "server", model=HEADED.model
    ) as server:
        tickets = (("a cat", "<p>sat on &amp; the <b>mat</b></p>"), ("dog", ""))
        found = outputs(server.ask(ticket(*tickets)))
        assert set(found) == {"label", "score"}
        logits = rows(
            launched("triton-sme", CLASSIFIER).ask(json_request(["a cat sat on & the mat", "dog"])),
            "logits",
        )
        shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        assert np.allclose(found["score"], shares.max(axis=1), atol=1e-5)
        names = np.array(CLASSIFIER.labels)[shares.argmax(axis=1)]
        assert found["label"] == np.where(shares.max(axis=1) >= 0.4, names, "unsure").tolist()
        refused = server.ask(ticket(("a", "x" * 20_001)))
        assert refused.status == 400 and b"send 20000 at most" in refused.body


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    root = tmp_path_factory.mktemp("faulty")
    code = {"file": "faulty_code.py", "timeout_ms": 700}
    spec = ServingSpec.model_validate_json(json.dumps({"preprocessing": code}))
    write_processed_archive(root / "model", EMBEDDER, spec, FAULTY)
    with serving("triton-sme", root / "model", root / "server") as server:
        yield server


@pytest.mark.parametrize(
    ("word", "status", "sentence"),
    [
        ("refuse", 400, "text[0] is 'refuse'; send another."),
        ("raise", 500, "preprocess() failed with KeyError: 'none'."),
        ("hang", 500, "preprocess() took more than 0.7 s and was stopped."),
        ("exit", 500, "the process of preprocess() ended with code 3."),
        ("abort", 500, "the process of preprocess() ended by signal 6."),
        ("list", 500, "preprocess() returned list; it must return a dict"),
        ("name", 500, "preprocess() returned texts; it must return text."),
        ("type", 500, "preprocess() returned text as FP32; it must be BYTES."),
        ("rows", 500, "preprocess() returned text of shape [2, 1]; it must be [1, 1]"),
        ("shape", 500, "preprocess() returned text of shape [1]; it must be [1, 1]"),
        ("mixed", 500, "an array of objects must hold str or bytes."),
    ],
)
def test_fault_of_the_code_fails_one_request_alone(word, status, sentence, faulty, launched):
    with ThreadPoolExecutor(4) as clients:
        others = [clients.submit(faulty.ask, json_request(["A CAT"])) for _ in range(3)]
        answer = clients.submit(faulty.ask, json_request([word])).result()
        vectors = [rows(other.result()) for other in others]
    assert answer.status == status and sentence in json.loads(answer.body)["error"]
    expected = rows(launched("triton-sme").ask(json_request(["a cat"])))
    assert all(np.allclose(vector, expected, atol=1e-6) for vector in vectors)
    assert np.allclose(rows(faulty.ask(json_request(["A Cat"]))), expected, atol=1e-6)


def test_server_outlives_the_faults_of_the_code_and_keeps_its_output_out_of_answers(faulty):
    assert faulty.client.request("GET", "/ping").status == 200
    log = faulty.container.spec.log.read_text()
    assert "imported, on standard output" in log and "reads A CAT" in log


def test_refuses_code_that_is_not_the_manifests_or_cannot_be_imported(tmp_path):
    spec = ServingSpec.model_validate_json('{"preprocessing": {"file": "code.py"}}')
    (tmp_path / "code.py").write_text("import nothing_of_this_name\n")
    manifest = write_processed_archive(tmp_path / "model", EMBEDDER, spec, tmp_path)
    status, log = end_of("triton-sme", tmp_path / "model", tmp_path / "a")
    assert status != 0 and "cannot be imported: ModuleNotFoundError" in log
    with (tmp_path / "model" / manifest.preprocessing.file).open("a") as file:
        file.write("#\n")
    status, log = end_of("triton-sme", tmp_path / "model", tmp_path / "b")
    assert status != 0 and "Refused: user_code.py has sha256" in log
