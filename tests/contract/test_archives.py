"""Archives that Triton refuses: those of another deployment or of another machine.

The Python server's are in test_faults, changed files in test_signatures.
"""

from __future__ import annotations

import pytest

from onboarding.manifest import RuntimeIdentity
from tests.contract.conftest import end_of, load
from tests.fixtures.tiny_embedder.archive import write_archive


def test_triton_refuses_a_manifest_that_the_deployment_does_not_pin(tmp_path):
    write_archive(tmp_path / "model")
    pin = {"ROUNDHOUSE_MANIFEST_SHA256": "f" * 64}
    status, log = end_of("triton-sme", tmp_path / "model", tmp_path, **pin)
    assert status != 0 and f"but the deployment pins {'f' * 64}" in log


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"runtime": RuntimeIdentity(name="onnxruntime", version="1.2.3")},
            "the engine was made for onnxruntime 1.2.3, this server runs onnxruntime ",
        ),
        (
            {"compute_capability": "8.6"},
            "the engine was made for compute capability 8.6, this server runs cpu",
        ),
    ],
)
def test_triton_refuses_to_load_an_engine_of_another_machine(changes, sentence, tmp_path, launched):
    write_archive(tmp_path / "model", **changes)
    client = launched("triton-mme").client
    answer = load(client, tmp_path / "model", name="foreign", target="foreign/model.tar.gz")
    assert answer.status == 400
    assert sentence in answer.body.decode()
    assert client.request("POST", "/models/foreign/invoke", b"{}").status == 404
