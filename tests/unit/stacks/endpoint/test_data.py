"""Where an endpoint's requests and answers lie, who may read them, and their keys.

The template as pure data.
"""

from __future__ import annotations

import json
import re

import pytest

from onboarding.serve_environment import python_server_environment
from stacks.endpoint.template import endpoint_template
from tests.fixtures.signer import Signer
from tests.synth.endpoint_cases import (
    BESIDE,
    CAPTURE,
    CLOUD,
    IMAGES,
    MODEL,
    POOLS,
    QUEUE,
    beside,
    config,
    endpoint_settings,
    example,
    of_type,
    properties,
    statements,
    template,
    variants,
)

pytestmark = pytest.mark.unit

TARGET = "AWS::ApplicationAutoScaling::ScalableTarget"


def test_capture_writes_under_the_endpoints_own_prefix_and_nowhere_else():
    found = template({MODEL: endpoint_settings(CAPTURE)})
    capture = config(found)["DataCaptureConfig"]
    bucket = "roundhouse-cloud-111122223333-us-east-1"
    assert capture["InitialSamplingPercentage"] == 20
    assert capture["KmsKeyId"] == "alias/roundhouse-cloud"
    # SageMaker adds <endpoint>/<variant>/yyyy/mm/dd/hh/ to it.
    assert capture["DestinationS3Uri"] == f"s3://{bucket}/captures"
    assert {option["CaptureMode"] for option in capture["CaptureOptions"]} == {"Input", "Output"}
    assert statements(found)["WriteObjects"]["Resource"] == [
        f"arn:aws:s3:::{bucket}/captures/cloud-example/*"
    ]
    assert found["Outputs"]["CapturesPrefix"]["Value"] == f"s3://{bucket}/captures/cloud-example/"


def test_metrics_are_those_of_the_file_and_the_rest_is_sagemakers():
    def metrics(given):
        found = template({MODEL: endpoint_settings(f"metrics: {given}")})
        return config(found)["MetricsConfig"]

    assert metrics("{}") == {"EnableEnhancedMetrics": False}
    assert metrics("{detailed: false}") == {
        "EnableEnhancedMetrics": False,
        "EnableDetailedObservability": False,
    }
    assert "MetricsConfig" not in config(template({}))


def test_queue_reads_requests_and_writes_answers_under_the_endpoints_own_prefixes():
    found = template({MODEL: endpoint_settings(QUEUE)})
    queue, bucket = config(found)["AsyncInferenceConfig"], "roundhouse-cloud-111122223333-us-east-1"
    output = queue["OutputConfig"]
    topic = "arn:aws:sns:us-east-1:111122223333:roundhouse-cloud-answers"
    assert queue["ClientConfig"] == {"MaxConcurrentInvocationsPerInstance": 4}
    assert output["S3OutputPath"] == f"s3://{bucket}/answers/cloud-example/answered"
    assert output["S3FailurePath"] == f"s3://{bucket}/answers/cloud-example/failed"
    assert output["KmsKeyId"] == "alias/roundhouse-cloud"
    assert output["NotificationConfig"] == {"SuccessTopic": topic, "ErrorTopic": topic}
    role = statements(found)
    assert role["WriteObjects"]["Resource"] == [f"arn:aws:s3:::{bucket}/answers/cloud-example/*"]
    assert role["ReadObjects"]["Resource"][-1] == f"arn:aws:s3:::{bucket}/requests/cloud-example/*"
    assert role["PublishToTopic"]["Resource"] == [topic]
    assert "RoutingConfig" not in variants(found)["AllTraffic"]


def test_queue_that_tells_nobody_may_publish_nothing():
    found = template({MODEL: endpoint_settings("asynchronous: {}")})
    assert "NotificationConfig" not in config(found)["AsyncInferenceConfig"]["OutputConfig"]
    assert not [
        sid for sid in statements(found) if "Publish" in sid and sid != "PublishHostMetrics"
    ]
    assert "sns" not in json.dumps(list(statements(found).values()))


def test_queue_that_scales_to_none_begins_with_one_instance():
    found = template({MODEL: endpoint_settings("asynchronous: {}", **{"min: 1": "min: 0"})})
    assert variants(found)["AllTraffic"]["InitialInstanceCount"] == 1
    assert of_type(found, TARGET)["ScalableTarget"]["MinCapacity"] == 0


def test_python_server_of_a_queue_takes_large_requests():
    python = {"server: triton": "server: python"}
    queued, direct = (
        of_type(template({MODEL: endpoint_settings(*lines, **python)}), "AWS::SageMaker::Model")
        for name, lines in (("queued", ("asynchronous: {}",)), ("direct", ()))
    )
    limits = python_server_environment(asynchronous=True)
    (queued,), (direct,) = (
        [model["PrimaryContainer"]["Environment"] for model in models.values()]
        for models in (queued, direct)
    )
    assert limits.items() <= queued.items() and not limits.keys() & direct.keys()


def test_python_server_runs_as_many_batches_at_once_as_the_file_says():
    slots = []
    for instances in ("", "\n  instances_per_gpu: 1", "\n  instances_per_gpu: 3"):
        found = template({MODEL: {"server: triton": f"server: python{instances}"}})
        (model,) = of_type(found, "AWS::SageMaker::Model").values()
        variables = model["PrimaryContainer"]["Environment"]
        slots.append(variables.get("ROUNDHOUSE_SLOTS"))
    assert slots == [None, "1", "3"]


def test_containers_of_every_mode_know_the_trusted_signers():
    signers = [Signer().public, Signer().public]
    trusting = {CLOUD: {"name: cloud": f"name: cloud\ntrusted_signers: [{', '.join(signers)}]"}}
    for changes in ({}, {MODEL: {"server: triton": "server: python"}}):
        found = of_type(template(changes | trusting), "AWS::SageMaker::Model")
        plain = of_type(template(changes), "AWS::SageMaker::Model")
        for model, before in zip(found.values(), plain.values(), strict=True):
            variables = before["PrimaryContainer"]["Environment"]
            assert model["PrimaryContainer"]["Environment"] == {
                **variables,
                "ROUNDHOUSE_SIGNERS": " ".join(signers),
            }


def test_role_makes_data_keys_only_where_it_writes():
    plain = template({})
    writing = template({MODEL: endpoint_settings(CAPTURE)})
    assert statements(plain)["UseKey"]["Action"] == ["kms:Decrypt"]
    assert "WriteObjects" not in statements(plain)
    assert statements(writing)["UseKey"]["Action"] == ["kms:Decrypt", "kms:GenerateDataKey"]


def test_role_reads_every_engine_of_every_variant_and_pool_and_no_other():
    deployment = example({MODEL: endpoint_settings(POOLS), BESIDE: beside("{joins: example}")})
    read = statements(endpoint_template(deployment, IMAGES))["ReadEngines"]["Resource"]
    assert {entry.split("/")[-2] for entry in read} == {
        target.engine_key for target in deployment.targets
    }
    assert len(read) == 4 and not any("*" in resource for resource in read)


def test_statement_ids_stand_once():
    changes = {
        MODEL: {
            "ml.g5.xlarge": "ml.c7i.large",
            "server: triton": "server: python",
            **endpoint_settings(CAPTURE),
        },
        BESIDE: beside("{joins: example, instance_type: ml.g5.xlarge}"),
    }
    found = template(changes)
    policies = [
        *properties(found, "Role")["Policies"],
        *of_type(found, "AWS::IAM::Policy").values(),
    ]
    ids = [item["Sid"] for policy in policies for item in policy["PolicyDocument"]["Statement"]]
    assert len(ids) == len(set(ids)) and all(
        re.fullmatch("[A-Za-z0-9]+", element) for element in ids
    )


@pytest.mark.parametrize("instance_type", ["ml.c7i.large", "ml.g5.xlarge"])
def test_volume_key_is_granted_to_sagemaker_whatever_disks_a_host_has(instance_type):
    found = template({MODEL: {"ml.g5.xlarge": instance_type}})
    assert config(found)["KmsKeyId"] == "alias/roundhouse-cloud"
    grant = statements(found)["GrantKey"]
    assert grant["Action"] == ["kms:CreateGrant"]
    assert grant["Condition"] == {
        "Bool": {"kms:GrantIsForAWSResource": "true"},
        "ForAnyValue:StringEquals": {"kms:ResourceAliases": "alias/roundhouse-cloud"},
    }


def test_own_key_of_the_environment_is_used_everywhere():
    key = "arn:aws:kms:us-east-1:111122223333:key/00000000-0000-0000-0000-000000000000"
    changes = {
        MODEL: endpoint_settings(CAPTURE, **{"ml.g5.xlarge": "ml.c7i.large"}),
        CLOUD: {"name: cloud": f"name: cloud\nkms_key_arn: {key}"},
    }
    found = template(changes)
    assert config(found)["KmsKeyId"] == config(found)["DataCaptureConfig"]["KmsKeyId"] == key
    assert (
        statements(found)["UseKey"]["Resource"]
        == statements(found)["GrantKey"]["Resource"]
        == [key]
    )
