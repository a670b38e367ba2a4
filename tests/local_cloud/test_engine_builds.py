"""Five engines, one of which cannot be built.

The others land, by CodeBuild and a training job, and its old endpoint answers on.

Everything is real but for the GPU: the training job builds for a CPU, to which the execution's
input sends it.
"""

from __future__ import annotations

import pytest

from onboarding.lock import read_lock
from onboarding.names import target_model
from roundhouse import invocation
from roundhouse.deploy.builds import engines, execution
from roundhouse.deploy.builds.engine_requests import EnginesNotBuiltError
from roundhouse.deploy.builds.monitor import BuildMonitor
from roundhouse.deploy.builds.source import upload_source
from tests.local_cloud.tiny_session import deploy_all, session_at, sound_network, vector

pytestmark = pytest.mark.local_cloud
FOUR = ("one", "two", "three", "four")


@pytest.fixture
def tiny(tmp_path):
    with session_at(tmp_path) as tiny:
        yield tiny


def build_by_training_job(session, model):
    """What `roundhouse build` does, with the route that a GPU other than an A10G would have."""
    (order,) = engines.missing_engines(session, (model,))
    engine = {
        "engineKey": order.engine_key,
        "model": model,
        "computeCapability": "cpu",
        "route": "training-job",
        "instanceType": "ml.c5.xlarge",
    }
    given = {"source": upload_source(session), "commit": "c0ffee", "waves": [[engine]]}
    following = BuildMonitor(session=session, requests={order.engine_key: order})
    following.follow(execution.start(session.clients, session.environment, given))
    assert following.failures == []
    return following.built


def test_four_of_five_engines_land_and_the_fifths_old_endpoint_answers(tiny):
    session = tiny.start()
    deploy_all(session)
    answer, lock = vector(session), tiny.lock.read_bytes()
    tiny.write_sharing_models(*FOUR)
    (entry,) = build_by_training_job(session, "four")
    assert (entry.manifest.model, entry.manifest.compute_capability) == ("four", "cpu")
    assert entry.manifest.builder.source_commit == "c0ffee"
    tiny.write_model(sound_network()[:-40])
    with pytest.raises(
        EnginesNotBuiltError,
        match=r"tiny: .*no valid ONNX file.* 3 engines beside it are built.* Log: .*build\.log",
    ) as error:
        deploy_all(session)
    assert sorted(item.manifest.model for item in error.value.built) == ["one", "three", "two"]
    assert tiny.lock.read_bytes() == lock
    assert vector(session) == answer
    for model in FOUR:
        (key,) = read_lock(tiny.lock.parent, model).engines
        to = invocation.Address(endpoint="local-shared", target_model=target_model(key))
        assert invocation.invoke_texts(session.clients("sagemaker-runtime"), to, ["a red train"])[
            0
        ] == pytest.approx(answer, abs=1e-5)
