"""Four engines, one of which cannot be built.

The others land, by CodeBuild and a training job, and its old endpoint answers on.

Everything is real but for the GPU: the training job builds for a CPU, to which the execution's
input sends it. Afterwards the three are asked in the multi-model endpoint that they share.
"""

from __future__ import annotations

import hashlib

import pytest

from onboarding.lock import read_lock
from onboarding.names import target_model
from roundhouse import invocation
from roundhouse.deploy.builds import engines, execution
from roundhouse.deploy.builds.execution import BuildMonitor
from roundhouse.deploy.builds.requests import EnginesNotBuiltError
from roundhouse.deploy.builds.source import upload_source
from tests.local_cloud.tiny_session import deploy_all, sound_network, vector

pytestmark = pytest.mark.local_cloud
THREE = ("one", "two", "three")


def build_by_training_job(session, model):
    """What `roundhouse build` does, with the route that a GPU other than an A10G would have."""
    (order,) = engines.missing_engines(session, (model,))
    engine = {
        "engineKey": order.key,
        "model": model,
        "computeCapability": "cpu",
        "route": "training-job",
        "instanceType": "ml.c5.xlarge",
    }
    given = {"source": upload_source(session), "commit": "c0ffee", "waves": [[engine]]}
    following = BuildMonitor(session=session, requests={order.key: order})
    following.follow(execution.start(session.clients, session.environment, given))
    assert following.failures == []
    return following.built


FOREIGN = "company-models"
DOCUMENTED = sound_network() + b"\x32\x01x"
"""The same network with a doc_string, and so with a digest and a key of its own."""


def move_source_to_a_bucket(tiny, session, model):
    """The model's network and tokenizer lie in a bucket that the environment names."""
    environment = tiny.paths.tree / "environments" / "local.yaml"
    environment.write_text(
        environment.read_text() + f"source_buckets: [{{bucket: {FOREIGN}, prefix: nlp/}}]\n"
    )
    s3, path = session.clients("s3"), tiny.paths.tree / "models" / f"{model}.yaml"
    s3.create_bucket(Bucket=FOREIGN)
    tokenizer = (tiny.paths.tree / "models" / "tiny" / "tokenizer.json").read_bytes()
    for name, content in (("model.onnx", DOCUMENTED), ("tokenizer.json", tokenizer)):
        s3.put_object(Bucket=FOREIGN, Key=f"nlp/{name}", Body=content)
    text = path.read_text()
    for old, new in (
        ("models/tiny/model.onnx", f"s3://{FOREIGN}/nlp/model.onnx"),
        (digest(sound_network()), digest(DOCUMENTED)),
    ):
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


def digest(content):
    return hashlib.sha256(content).hexdigest()


def test_three_of_four_engines_land_and_the_fourths_old_endpoint_answers(tiny):
    session = tiny.start()
    deploy_all(session)
    answer, lock = vector(session), tiny.lock.read_bytes()
    tiny.write_sharing_models(*THREE)
    move_source_to_a_bucket(tiny, session, "one")
    session = tiny.start()
    (entry,) = build_by_training_job(session, "three")
    assert (entry.manifest.model, entry.manifest.compute_capability) == ("three", "cpu")
    assert entry.manifest.builder.source_commit == "c0ffee"
    tiny.write_model(sound_network()[:-40])
    with pytest.raises(
        EnginesNotBuiltError,
        match=r"tiny: .*no valid ONNX file.* 2 engines beside it are built.* Log: .*build\.log",
    ) as error:
        deploy_all(session)
    assert sorted(item.manifest.model for item in error.value.built) == ["one", "two"]
    assert tiny.lock.read_bytes() == lock
    assert vector(session) == answer
    for model in THREE:
        (key,) = read_lock(tiny.lock.parent, model).engines
        to = invocation.Address(endpoint="local-shared", target_model=target_model(key))
        assert invocation.invoke_texts(session.clients("sagemaker-runtime"), to, ["a red train"])[
            0
        ] == pytest.approx(answer, abs=1e-5)
