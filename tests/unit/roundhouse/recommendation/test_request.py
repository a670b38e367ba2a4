"""Requests of recommendation jobs: their shapes by AWS's own model, names, and refusals."""

import dataclasses
import gzip
import hashlib
import io
import tarfile

import botocore.session
import pytest
from botocore.validate import ParamValidator

from onboarding.aws_limits import NAME_LENGTH
from onboarding.environment_spec import NetworkSpec
from onboarding.names import recommendation_job, training_job_prefix
from onboarding.platform import instance_types
from roundhouse.errors import RoundhouseError, UsageError
from roundhouse.load_test.inputs import Body
from roundhouse.recommendation.options import RecommendOptions, Stairs
from roundhouse.recommendation.payload import MOST_BODIES, sample_payload
from roundhouse.recommendation.request import most_usd
from tests.synth.deployments import environment, with_fields
from tests.unit.roundhouse.recommendation.jobs import (
    ADVANCED,
    inputs,
    request,
    subject,
    with_endpoint_fields,
)

pytestmark = pytest.mark.unit


def validated(operation, parameters):
    """Hold parameters to botocore's model of an operation."""
    model = botocore.session.get_session().get_service_model("sagemaker")
    report = ParamValidator().validate(parameters, model.operation_model(operation).input_shape)
    assert not report.has_errors(), report.generate_report()
    return parameters


@pytest.mark.parametrize(
    "options",
    [
        ADVANCED,
        RecommendOptions(),
        RecommendOptions(
            job_type="Advanced",
            stairs=Stairs(users=2, steps=3, seconds=360),
            parameters={"SAGEMAKER_TRITON_LOG_INFO": ("true", "false")},
            max_invocations=30_000,
            latency_ms=500,
            stops_when_flat=False,
            parallel=2,
        ),
    ],
)
def test_requests_are_what_the_api_and_the_local_cloud_take(options):
    found = request(options)
    validated("CreateModel", found.model_parameters(1))
    job = validated("CreateInferenceRecommendationsJob", found.job_parameters(1))
    assert job["RoleArn"] == found.model_parameters(1)["ExecutionRoleArn"]
    assert job["InputConfig"]["ModelName"] == found.model_parameters(1)["ModelName"]
    assert job["InputConfig"]["VolumeKmsKeyId"] == "alias/roundhouse-dev"


def test_a_load_test_stops_at_the_slo_and_tries_every_combination():
    options = RecommendOptions(
        job_type="Advanced",
        instance_types=("ml.g5.xlarge", "ml.g5.2xlarge"),
        parameters={"SAGEMAKER_TRITON_LOG_INFO": ("true", "false")},
        parallel=4,
    )
    of = subject(
        *options.instance_types,
        change=lambda item: with_endpoint_fields(item, latency_slo_ms=80.0),
    )
    job = request(options, of=of).job_parameters(1)
    config = job["InputConfig"]
    assert [row["InstanceType"] for row in config["EndpointConfigurations"]] == list(
        options.instance_types
    )
    assert config["ResourceLimit"] == {"MaxNumberOfTests": 4, "MaxParallelOfTests": 4}
    assert job["StoppingConditions"] == {
        "FlatInvocations": "Stop",
        "ModelLatencyThresholds": [{"Percentile": "P95", "ValueInMilliseconds": 80}],
    }


def test_a_default_job_names_the_types_it_may_take():
    config = request(RecommendOptions(instance_types=("ml.g5.xlarge",))).job_parameters(1)[
        "InputConfig"
    ]
    assert config["ContainerConfig"]["SupportedInstanceTypes"] == ["ml.g5.xlarge"]
    assert config["ContainerConfig"]["SupportedEndpointType"] == "RealTime"
    assert "TrafficPattern" not in config and "EndpointConfigurations" not in config


def test_a_vpc_is_the_environments_own():
    network = NetworkSpec(
        vpc_id="vpc-1", subnet_ids=("subnet-1", "subnet-2"), security_group_ids=("sg-1",)
    )
    spec = environment("dev").model_copy(update={"network": network})
    found = subject(change=lambda item: with_fields(item, environment=spec))
    assert request(of=found).job_parameters(1)["InputConfig"]["VpcConfig"] == {
        "Subnets": ["subnet-1", "subnet-2"],
        "SecurityGroupIds": ["sg-1"],
    }


def test_names_follow_content_and_attempt():
    first = request()
    assert first.job_name(1) == request().job_name(1)
    assert first.job_name(1) != first.job_name(2)
    assert first.job_name(1) != request(texts=("other",)).job_name(1)
    dev = environment("dev")
    long = recommendation_job(dev, "m" * 60, "content")
    assert len(long) == NAME_LENGTH
    # Cut at 40 characters, the names of what a job makes still begin with the role's prefix.
    assert long[:40].startswith(training_job_prefix(dev))


def test_sample_requests_are_spread_over_the_dataset_and_reproducible():
    texts = [f"text {number}" for number in range(1000)]
    payload = sample_payload(inputs(*texts))
    assert payload == sample_payload(inputs(*texts))
    assert payload.sha256 == hashlib.sha256(payload.data).hexdigest()
    assert payload.requests == MOST_BODIES and payload.content_type == "application/json"
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(payload.data))) as archive:
        bodies = [archive.extractfile(member).read() for member in archive.getmembers()]
    assert bodies[0] == b'{"inputs": ["text 0"]}' and bodies[-1] == b'{"inputs": ["text 990"]}'


def test_refuses_requests_of_several_content_types_and_too_large_ones():
    mixed = dataclasses.replace(inputs("a"), bodies=(Body(b"x", "a/b"), Body(b"x", "c/d")))
    with pytest.raises(RoundhouseError, match="2 content types"):
        sample_payload(mixed)
    with pytest.raises(RoundhouseError, match="above the 6,291,456"):
        sample_payload(inputs("x" * 7_000_000))


def with_python_server(deployment):
    variants = tuple(dataclasses.replace(item, server="python") for item in deployment.variants)
    return with_fields(deployment, variants=variants)


def test_refuses_variables_that_name_the_engine_or_that_the_server_does_not_know():
    with pytest.raises(UsageError, match="names the engine that the server accepts"):
        request(
            RecommendOptions(job_type="Advanced", parameters={"ROUNDHOUSE_MANIFEST_SHA256": ("0",)})
        )
    python = subject(change=with_python_server)
    options = RecommendOptions(job_type="Advanced", parameters={"ROUNDHOUSE_THREADS": ("0", "x")})
    with pytest.raises(UsageError) as raised:
        request(options, of=python)
    assert str(raised.value).count("ROUNDHOUSE_THREADS is") == 2


def test_the_api_takes_every_instance_type_that_is_known():
    model = botocore.session.get_session().get_service_model("sagemaker")
    taken = model.shape_for("EndpointInputConfiguration").members["InstanceType"].enum
    assert set(instance_types()) - set(taken) == set()


def test_cost_is_unknown_where_a_price_is():
    assert most_usd([1.0, 2.0], 2, 1800) == 3.0
    assert most_usd([1.0, None], 2, 1800) is None
