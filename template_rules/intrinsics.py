"""Resolves Ref, Fn::GetAtt and the other functions of our templates; what stays open is marked.

Source of names and ARNs: CloudFormation template reference, "Return values" of each type.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from onboarding.platform import aws_partition, url_suffix
from template_rules.values import fields, unknown

NO_VALUE = object()
"""The result of `Ref: AWS::NoValue`: the property is absent."""
FUNCTION = re.compile(r"[A-Za-z]\w*::")
_HERE = "{region}:{account}"
_TYPES: dict[str, tuple[str | None, str | None, bool]] = {
    "AWS::CloudWatch::Alarm": ("AlarmName", f"cloudwatch:{_HERE}:alarm:{{name}}", False),
    "AWS::CodeBuild::Project": ("Name", f"codebuild:{_HERE}:project/{{name}}", False),
    "AWS::ECR::Repository": ("RepositoryName", f"ecr:{_HERE}:repository/{{name}}", False),
    "AWS::IAM::Role": ("RoleName", "iam::{account}:role/{name}", False),
    "AWS::KMS::Alias": ("AliasName", f"kms:{_HERE}:{{name}}", False),
    "AWS::KMS::Key": (None, f"kms:{_HERE}:key/{{name}}", False),
    "AWS::Lambda::Function": ("FunctionName", f"lambda:{_HERE}:function:{{name}}", False),
    "AWS::Logs::LogGroup": ("LogGroupName", f"logs:{_HERE}:log-group:{{name}}:*", False),
    "AWS::S3::Bucket": ("BucketName", "s3:::{name}", False),
    "AWS::SNS::Topic": ("TopicName", f"sns:{_HERE}:{{name}}", True),
    "AWS::StepFunctions::StateMachine": (
        "StateMachineName",
        f"states:{_HERE}:stateMachine:{{name}}",
        True,
    ),
    **{
        f"AWS::SageMaker::{noun}": (f"{noun}Name", f"sagemaker:{_HERE}:{kind}/{{name}}", True)
        for noun, kind in (
            ("Endpoint", "endpoint"),
            ("EndpointConfig", "endpoint-config"),
            ("InferenceComponent", "inference-component"),
            ("Model", "model"),
        )
    },
}
"""Type -> (name property, ARN after the partition, whether Ref is the ARN)."""


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Name, account and region of a template's stack; None is unknown."""

    name: str | None = None
    account: str | None = None
    region: str | None = None


class Resolver:
    """Resolves the values of one template."""

    def __init__(self, document: Mapping[str, Any], stack: Stack) -> None:
        self._resources = fields(document.get("Resources"))
        self._stack = stack
        self._functions: dict[str, Callable[[Any], Any]] = {
            "Ref": self._ref,
            "Fn::GetAtt": self._get_att,
            "Fn::Join": self._join,
            "Fn::If": self._if,
        }

    def resolve(self, value: Any) -> Any:
        """Return a value with every intrinsic function resolved or marked as unknown."""
        if isinstance(value, list):
            resolved = map(self.resolve, value)
            return [item for item in resolved if item is not NO_VALUE]
        if not isinstance(value, dict):
            return value
        name = next(iter(value)) if len(value) == 1 else ""
        if name != "Ref" and FUNCTION.match(str(name)) is None:
            pairs = ((key, self.resolve(item)) for key, item in value.items())
            return {key: item for key, item in pairs if item is not NO_VALUE}
        function = self._functions.get(name)
        result = None if function is None else function(value[name])
        if result is None:
            return unknown(json.dumps({name: value[name]}, sort_keys=True, default=str))
        return result

    def name(self, logical_id: str) -> str:
        """Return the name of a resource in AWS, or the marked text that stands for it."""
        resource = fields(self._resources.get(logical_id))
        named, _, _ = _facts(resource.get("Type"))
        given = None if named is None else fields(resource.get("Properties")).get(named)
        resolved = None if given is None else self.resolve(given)
        return resolved if isinstance(resolved, str) else unknown(self._label(logical_id))

    def arn(self, logical_id: str) -> str | None:
        """Return the ARN of a resource, with marked parts; None for types without one here."""
        _, pattern, _ = _facts(fields(self._resources.get(logical_id)).get("Type"))
        if pattern is None:
            return None
        region, account = map(self._pseudo, ("AWS::Region", "AWS::AccountId"))
        own = pattern.format(region=region, account=account, name=self.name(logical_id))
        return f"arn:{self._pseudo('AWS::Partition')}:{own}"

    def _label(self, text: str) -> str:
        return text if self._stack.name is None else f"{self._stack.name}/{text}"

    def _ref(self, name: str) -> Any:
        if name == "AWS::NoValue":
            return NO_VALUE
        if name.startswith("AWS::"):
            return self._pseudo(name)
        if name not in self._resources:
            return unknown(self._label(name))
        _, _, is_arn = _facts(self._resources[name].get("Type"))
        found = self.arn(name) if is_arn else None
        return self.name(name) if found is None else found

    def _pseudo(self, name: str) -> str:
        region = self._stack.region
        known = {
            "AWS::Region": region,
            "AWS::AccountId": self._stack.account,
            "AWS::StackName": self._stack.name,
            "AWS::Partition": None if region is None else aws_partition(region),
            "AWS::URLSuffix": None if region is None else url_suffix(region),
        }
        value = known.get(name)
        return unknown(name) if value is None else value

    def _get_att(self, argument: list[str]) -> Any:
        logical_id, attribute = argument
        if logical_id in self._resources:
            named, _, _ = _facts(self._resources[logical_id].get("Type"))
            if attribute in (named, "Name", "TopicName", "RepositoryName"):
                return self.name(logical_id)
            found = self.arn(logical_id)
            if attribute in ("Arn", "TopicArn", "EndpointArn") and found is not None:
                return found
        return unknown(self._label(f"{logical_id}.{attribute}"))

    def _join(self, argument: list[Any]) -> Any:
        parts = self.resolve(argument[1])
        return argument[0].join(map(str, parts)) if isinstance(parts, list) else None

    def _if(self, argument: list[Any]) -> Any:
        """Known only when both branches are the same: the deployment chooses."""
        first, second = map(self.resolve, argument[1:])
        return first if first == second else None


def _facts(resource_type: Any) -> tuple[str | None, str | None, bool]:
    """Return a type's row; AWS names what has no name property."""
    return _TYPES.get(str(resource_type), (None, None, False))
