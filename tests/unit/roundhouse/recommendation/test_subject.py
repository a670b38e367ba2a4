"""Which engine a job measures, and on which instance types."""

import dataclasses

import pytest

from onboarding.deployment import VARIANT
from onboarding.platform import instance_types
from roundhouse.errors import RoundhouseError, UsageError
from roundhouse.recommendation.subject import find_subject, hosted_types, runs_on
from tests.synth.deployments import locked, unlocked
from tests.unit.roundhouse.recommendation.jobs import MODEL, subject, with_endpoint_fields

pytestmark = pytest.mark.unit


def test_a_load_test_takes_the_types_of_the_model_file():
    found = subject()
    own = next(item for item in locked("dev") if item.name == MODEL)
    assert found.instance_types == tuple(pool.instance_type.name for pool in own.own.pools)
    assert found.deployment.own.name == VARIANT and not found.deployment.multi_model


def test_a_default_job_is_restricted_to_the_gpu_that_the_engine_is_built_for():
    found = subject(is_load_test=False)
    gpu = found.target.instance_type.gpu
    assert len(found.instance_types) > 2
    assert {instance_types()[name].gpu for name in found.instance_types} == {gpu}
    assert f"restricted to types of {gpu}" in found.notes[0]
    assert "default, ours" in found.notes[1]


def test_a_cpus_engine_runs_on_every_cpu_type_and_on_no_gpu():
    found = subject(environment="local", is_load_test=False)
    assert all(not instance_types()[name].is_gpu for name in found.instance_types)
    assert "runs on no GPU" in found.notes[0]


def test_types_with_the_same_gpu_run_the_engine_in_any_size():
    target = subject().target
    types = instance_types()
    assert runs_on(target, types["ml.g5.48xlarge"]) and not runs_on(target, types["ml.g6.xlarge"])
    assert "ml.g5.12xlarge" in hosted_types(target, "us-east-1")
    portable = target.model.engine.model_copy(
        update={"hardware_compatibility": "same_compute_capability"}
    )
    on_ada = dataclasses.replace(
        target,
        instance_type=types["ml.g6.xlarge"],
        model=target.model.model_copy(update={"engine": portable}),
    )
    assert runs_on(on_ada, types["ml.g6e.xlarge"])
    assert subject("ml.g5.2xlarge").instance_types == ("ml.g5.2xlarge",)


def test_a_model_of_a_shared_endpoint_is_measured_alone():
    found = subject(model="sentence-embedder-int8")
    assert [target.model.name for target in found.deployment.targets] == ["sentence-embedder-int8"]
    assert "alone on its instance" in found.notes[0]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("ml.g6.xlarge", "has L4, and engine .* is built for A10G; a job measures one engine"),
        ("ml.c7i.large", "has a CPU, and engine"),
        ("ml.g5.tiny", "is no known hosting type"),
    ],
)
def test_refuses_types_that_run_another_engine(wanted, words):
    with pytest.raises(UsageError, match=words):
        subject(*(["ml.g5.xlarge", wanted]))


def test_refuses_a_type_that_the_region_lacks():
    def to_sao_paulo(deployment):
        environment = deployment.environment.model_copy(update={"region": "sa-east-1"})
        return dataclasses.replace(deployment, environment=environment)

    lacking = next(
        name for name, item in instance_types().items() if item.is_missing_in("sa-east-1")
    )
    with pytest.raises(UsageError, match="SageMaker does not host it in sa-east-1"):
        subject(lacking, change=to_sao_paulo)


def test_refuses_unknown_models_and_engines_that_are_not_built():
    with pytest.raises(UsageError, match="no such model on an endpoint"):
        subject(model="sentence-embeder")
    with pytest.raises(RoundhouseError, match="is not in the lock; `roundhouse build --env dev"):
        find_subject(unlocked("dev"), MODEL, (), is_load_test=True)


def test_refuses_an_asynchronous_endpoint():
    def queued(deployment):
        return with_endpoint_fields(deployment, asynchronous=object())

    with pytest.raises(UsageError, match="its endpoint is asynchronous"):
        subject(change=queued)
