"""What endpoints share: bucket, key, topics, repositories, log groups, dashboards, builds."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.request import urlopen

from botocore.exceptions import ClientError

from roundhouse.aws.clients import Clients, calling
from roundhouse.errors import NotReadyError
from roundhouse.gitops.drift.stack import (
    DeployedStack,
    Differ,
    Difference,
    common_part,
    has_reference,
    plain,
)

Properties = Mapping[str, Any]
Reader = Callable[[Clients, str, Properties], dict[str, Any]]
"""Returns what a service says of some properties of a resource, as its template has them.

None in place of a property: it is not set. Raises ClientError for a resource that is gone.
"""
CODE_SECONDS = 30
"""For a function's code, of a few kB."""
GONE = frozenset(
    ("NoSuchBucket", "NoSuchBucketPolicy", "NotFoundException", "ResourceNotFound", "NotFound",
     "ResourceNotFoundException", "RepositoryNotFoundException", "StateMachineDoesNotExist",
     "404", "DashboardNotFoundError")
)  # fmt: skip


def shared_drift(clients: Clients, stack: DeployedStack, differ: Differ) -> Iterator[Difference]:
    """Yield what differs of a stack's resources of these types."""
    for kind, reader in READERS.items():
        for physical_id, properties in stack.resources(kind):
            what = f"{kind.rpartition('::')[2]} {physical_id.rpartition(':')[2]}"
            with calling(what):
                try:
                    live = reader(clients, physical_id, properties)
                except ClientError as error:
                    if error.response["Error"]["Code"] not in GONE:
                        raise
                    yield from differ(what, physical_id, None)
                    continue
            for name, value in sorted(live.items()):
                deployed = _from_json(properties.get(name))
                if not has_reference(deployed):
                    is_partial = (kind, name) in PARTIAL
                    sides = (deployed, common_part(value, deployed) if is_partial else value)
                    yield from differ(f"{name} of {what}", *map(plain, sides))


def _bucket(clients: Clients, name: str, _: Properties) -> dict[str, Any]:
    s3 = clients("s3")
    versioning = s3.get_bucket_versioning(Bucket=name).get("Status")
    try:
        block = s3.get_public_access_block(Bucket=name)["PublicAccessBlockConfiguration"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchPublicAccessBlockConfiguration":
            raise
        block = None
    return {
        "VersioningConfiguration": {"Status": versioning},
        "PublicAccessBlockConfiguration": block,
    }


def _bucket_policy(clients: Clients, _: str, properties: Properties) -> dict[str, Any]:
    policy = clients("s3").get_bucket_policy(Bucket=properties["Bucket"])["Policy"]
    return {"PolicyDocument": json.loads(policy)}


def _key(clients: Clients, name: str, properties: Properties) -> dict[str, Any]:
    """Return its policy, and whether it is rotated where that is set; others never are."""
    kms = clients("kms")
    found = {
        "KeyPolicy": json.loads(kms.get_key_policy(KeyId=name, PolicyName="default")["Policy"])
    }
    if "EnableKeyRotation" in properties:
        found["EnableKeyRotation"] = kms.get_key_rotation_status(KeyId=name)["KeyRotationEnabled"]
    return found


def _log_group(clients: Clients, name: str, _: Properties) -> dict[str, Any]:
    groups = clients("logs").describe_log_groups(logGroupNamePrefix=name)["logGroups"]
    found = [group for group in groups if group["logGroupName"] == name]
    if not found:
        raise ClientError({"Error": {"Code": "ResourceNotFoundException"}}, "DescribeLogGroups")
    return {"RetentionInDays": found[0].get("retentionInDays")}


def _dashboard(clients: Clients, name: str, _: Properties) -> dict[str, Any]:
    body = clients("cloudwatch").get_dashboard(DashboardName=name)["DashboardBody"]
    return {"DashboardBody": json.loads(body)}


def _topic_policy(clients: Clients, _: str, properties: Properties) -> dict[str, Any]:
    (topic,) = properties["Topics"]
    attributes = clients("sns").get_topic_attributes(TopicArn=topic)["Attributes"]
    return {"PolicyDocument": json.loads(attributes["Policy"])}


def _subscription(clients: Clients, _: str, properties: Properties) -> dict[str, Any]:
    """Who else subscribed is no drift: topics are there to be subscribed to."""
    pages = clients("sns").get_paginator("list_subscriptions_by_topic").paginate(
        TopicArn=properties["TopicArn"]
    )  # fmt: skip
    there = {(item["Protocol"], item["Endpoint"]) for page in pages
             for item in page["Subscriptions"]}  # fmt: skip
    wanted = (properties["Protocol"], properties["Endpoint"])
    return {"Endpoint": properties["Endpoint"] if wanted in there else None}


def _slack_channel(clients: Clients, arn: str, _: Properties) -> dict[str, Any]:
    pages = clients("chatbot").get_paginator("describe_slack_channel_configurations").paginate(
        ChatConfigurationArn=arn
    )  # fmt: skip
    found = [item for page in pages for item in page["SlackChannelConfigurations"]
             if item["ChatConfigurationArn"] == arn]  # fmt: skip
    if not found:
        raise ClientError(
            {"Error": {"Code": "ResourceNotFoundException"}}, "DescribeSlackChannelConfigurations"
        )
    kept = ("IamRoleArn", "SlackChannelId", "SnsTopicArns", "UserAuthorizationRequired")
    live = {key: found[0].get(key) for key in kept}
    return {
        "GuardrailPolicies": found[0].get("GuardrailPolicyArns"),
        "SlackWorkspaceId": found[0]["SlackTeamId"],
        "UserRoleRequired": live.pop("UserAuthorizationRequired"),
        **live,
    }


def _repository(clients: Clients, name: str, _: Properties) -> dict[str, Any]:
    (found,) = clients("ecr").describe_repositories(repositoryNames=[name])["repositories"]
    scanning = found["imageScanningConfiguration"]["scanOnPush"]
    return {
        "ImageTagMutability": found["imageTagMutability"],
        "ImageScanningConfiguration": {"ScanOnPush": scanning},
    }


def _project(clients: Clients, name: str, _: Properties) -> dict[str, Any]:
    found = clients("codebuild").batch_get_projects(names=[name])["projects"]
    if not found:
        raise ClientError({"Error": {"Code": "ResourceNotFoundException"}}, "BatchGetProjects")
    source = found[0]["source"]
    return {
        "Environment": _capitalize(found[0]["environment"]),
        "ServiceRole": found[0]["serviceRole"],
        "Source": {
            "Type": source["type"],
            "Location": source.get("location"),
            "BuildSpec": source.get("buildspec"),
        },
        "TimeoutInMinutes": found[0]["timeoutInMinutes"],
    }


def _function(clients: Clients, name: str, properties: Properties) -> dict[str, Any]:
    """Return its configuration and, of code that the template holds itself, the code."""
    found = clients("lambda").get_function(FunctionName=name)
    kept = ("Environment", "Handler", "MemorySize", "Role", "Runtime", "Timeout")
    live = {key: found["Configuration"].get(key) for key in kept}
    if "ZipFile" in properties["Code"]:
        module = properties["Handler"].partition(".")[0]
        live["Code"] = {"ZipFile": _read_code(found["Code"]["Location"], f"{module}.py")}
    return live


def _read_code(address: str, file: str) -> str:
    """Return a file of a function's zip. Raises NotReadyError where it cannot be fetched."""
    try:
        with urlopen(address, timeout=CODE_SECONDS) as response:
            return zipfile.ZipFile(io.BytesIO(response.read())).read(file).decode()
    except (OSError, zipfile.BadZipFile, KeyError) as error:
        raise NotReadyError(
            f"The function's code, {file}, cannot be read from where Lambda keeps it "
            f"({type(error).__name__}: {error}); allow HTTPS to S3, then try again."
        ) from error


def _state_machine(clients: Clients, name: str, properties: Properties) -> dict[str, Any]:
    """The template's definition has placeholders, which are put back into the live one's place."""
    found = clients("stepfunctions").describe_state_machine(stateMachineArn=name)
    values = properties.get("DefinitionSubstitutions", {})
    wanted = re.sub(
        r"\$\{(\w+)\}",
        lambda match: str(values.get(match[1], match[0])),
        properties["DefinitionString"],
    )
    is_same = json.loads(wanted) == json.loads(found["definition"])
    return {
        "RoleArn": found["roleArn"],
        "DefinitionString": _from_json(
            properties["DefinitionString"] if is_same else found["definition"]
        ),
    }


READERS: dict[str, Reader] = {
    "AWS::S3::Bucket": _bucket,
    "AWS::S3::BucketPolicy": _bucket_policy,
    "AWS::KMS::Key": _key,
    "AWS::Logs::LogGroup": _log_group,
    "AWS::CloudWatch::Dashboard": _dashboard,
    "AWS::SNS::TopicPolicy": _topic_policy,
    "AWS::SNS::Subscription": _subscription,
    "AWS::Chatbot::SlackChannelConfiguration": _slack_channel,
    "AWS::ECR::Repository": _repository,
    "AWS::CodeBuild::Project": _project,
    "AWS::Lambda::Function": _function,
    "AWS::StepFunctions::StateMachine": _state_machine,
}
PARTIAL = frozenset(
    (
        ("AWS::CodeBuild::Project", "Environment"),
        ("AWS::CodeBuild::Project", "Source"),
        ("AWS::S3::Bucket", "PublicAccessBlockConfiguration"),
    )
)
"""Properties to which the service adds defaults of its own."""


def _from_json(value: Any) -> Any:
    """Return JSON text as what it says, since services format it anew."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        return json.loads(value)
    return value


def _capitalize(value: Any) -> Any:
    """Return a CodeBuild record with its keys as CloudFormation writes them."""
    if isinstance(value, Mapping):
        return {key[:1].upper() + key[1:]: _capitalize(item) for key, item in value.items()}
    return [_capitalize(item) for item in value] if isinstance(value, list) else value
