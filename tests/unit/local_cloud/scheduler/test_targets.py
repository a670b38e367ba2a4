import json

import pytest

from local_cloud.protocol.errors import AwsError, error_reply, json_reply
from local_cloud.scheduler.targets import Targets

pytestmark = pytest.mark.unit
PROJECT = "arn:aws:codebuild:us-east-1:000000000000:project/checks"
DELETE = "arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint"


def targets(calls, reply=None):
    def start_build(request):
        calls.append(("StartBuild", request))
        return reply or json_reply({})

    def delete(request):
        calls.append(("DeleteEndpoint", request))
        return {}

    return Targets(
        start_build=start_build,
        sagemaker=lambda: {"DeleteEndpoint": delete},
        endpoint_arn=lambda name: f"arn:{name}",
    )


def test_project_is_started_by_the_templated_target():
    calls = []
    call = targets(calls).call_of({"Arn": PROJECT})
    assert (call.action, call.resource) == ("codebuild:StartBuild", PROJECT)
    call.make()
    assert calls == [("StartBuild", {"projectName": "checks"})]


def test_endpoint_is_deleted_by_the_universal_target():
    calls = []
    call = targets(calls).call_of({"Arn": DELETE, "Input": json.dumps({"EndpointName": "x"})})
    assert (call.action, call.resource) == ("sagemaker:DeleteEndpoint", "arn:x")
    call.make()
    assert calls == [("DeleteEndpoint", {"EndpointName": "x"})]


def test_refused_build_is_a_failed_call():
    reply = error_reply(AwsError("ResourceNotFoundException", "Project not found: checks"))
    with pytest.raises(AwsError, match="Project not found"):
        targets([], reply).call_of({"Arn": PROJECT}).make()


@pytest.mark.parametrize(
    "target",
    [
        {"Arn": "arn:aws:lambda:us-east-1:000000000000:function:x"},
        {"Arn": "arn:aws:scheduler:::aws-sdk:sagemaker:deleteModel"},
        {"Arn": DELETE, "Input": "{"},
        {"Arn": DELETE, "Input": "[]"},
    ],
)
def test_refuses_a_target(target):
    with pytest.raises(AwsError):
        targets([]).call_of(target)
