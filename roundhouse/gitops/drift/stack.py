"""One deployed stack: its template with the references in it resolved, tags, and protection."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import aws_partition, url_suffix
from roundhouse.aws.clients import Client, calling
from roundhouse.gitops.template_changes import Template

ARNS = {
    "AWS::IAM::Role": "arn:{partition}:iam::{account}:role/{id}",
    "AWS::S3::Bucket": "arn:{partition}:s3:::{id}",
    "AWS::KMS::Key": "arn:{partition}:kms:{region}:{account}:key/{id}",
    "AWS::Lambda::Function": "arn:{partition}:lambda:{region}:{account}:function:{id}",
}
"""Of the types whose physical id is no ARN, and whose ARN our templates ask for."""


@dataclass(frozen=True, kw_only=True)
class DeployedStack:
    """A stack as CloudFormation has it; `ids` are its resources' physical ids by logical id."""

    name: str
    part: str
    """What differences are listed under: an endpoint's name, or such as `foundation`."""
    template: Template
    environment: EnvironmentSpec
    ids: Mapping[str, str]
    tags: Mapping[str, str]
    is_protected: bool

    def resources(self, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield physical id and properties, references resolved, of each resource of one type."""
        for logical_id, resource in self.template.get("Resources", {}).items():
            if resource["Type"] == kind:
                properties = self.resolve(resource.get("Properties", {}))
                yield self.ids.get(logical_id, logical_id), properties

    def resolve(self, value: Any) -> Any:
        """Return a value with its references resolved; one that is not known stays as it is."""
        if isinstance(value, list):
            return [self.resolve(item) for item in value]
        if not isinstance(value, Mapping):
            return value
        if value.keys() == {"Ref"}:
            return self._pseudo_parameters().get(value["Ref"], self.ids.get(value["Ref"], value))
        if value.keys() == {"Fn::GetAtt"}:
            return self._arn(value)
        if value.keys() == {"Fn::Join"}:
            separator, parts = value["Fn::Join"][0], self.resolve(value["Fn::Join"][1])
            is_known = all(isinstance(item, str) for item in parts)
            return separator.join(parts) if is_known else value
        return {key: self.resolve(item) for key, item in value.items()}

    def _pseudo_parameters(self) -> dict[str, str]:
        spec = self.environment
        return {
            "AWS::AccountId": spec.account,
            "AWS::Region": spec.region,
            "AWS::Partition": aws_partition(spec.region),
            "AWS::URLSuffix": url_suffix(spec.region),
        }

    def _arn(self, value: Mapping[str, Any]) -> Any:
        logical_id, attribute = value["Fn::GetAtt"]
        kind = self.template["Resources"].get(logical_id, {}).get("Type", "")
        if attribute != "Arn" or kind not in ARNS or logical_id not in self.ids:
            return value
        region = self.environment.region
        return ARNS[kind].format(
            partition=aws_partition(region),
            region=region,
            account=self.environment.account,
            id=self.ids[logical_id],
        )


def read_stack(
    cloudformation: Client, environment: EnvironmentSpec, name: str, part: str, template: Template
) -> DeployedStack:
    """Return a stack with what CloudFormation knows of it beside its template."""
    with calling(f"Stack {name}"):
        (stack,) = cloudformation.describe_stacks(StackName=name)["Stacks"]
        resources = cloudformation.describe_stack_resources(StackName=name)["StackResources"]
    return DeployedStack(
        name=name,
        part=part,
        template=template,
        environment=environment,
        ids={
            item["LogicalResourceId"]: item["PhysicalResourceId"]
            for item in resources
            if item.get("PhysicalResourceId")
        },
        tags={item["Key"]: item["Value"] for item in stack.get("Tags", ())},
        is_protected=bool(stack.get("EnableTerminationProtection")),
    )


def deleted_stacks(cloudformation: Client) -> set[str]:
    """Return the names of stacks that were deleted in the last 90 days, as CloudFormation keeps."""
    with calling("Listing the deleted stacks"):
        pages = cloudformation.get_paginator("list_stacks").paginate(
            StackStatusFilter=["DELETE_COMPLETE"]
        )
        return {stack["StackName"] for page in pages for stack in page["StackSummaries"]}


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One thing that is not as deployed; None: it is not there."""

    endpoint: str
    """An endpoint, or another part of the environment, such as `foundation`."""
    what: str
    deployed: Any
    live: Any

    def as_dict(self) -> dict[str, Any]:
        """Return the difference as plain JSON."""
        return asdict(self)


Differ = Callable[[str, Any, Any], Iterator[Difference]]
"""Yields a difference, by name, where what is deployed and what is live differ."""


def differ_of(part: str) -> Differ:
    """Return the comparison of one endpoint or part of the environment."""

    def differ(what: str, deployed: Any, live: Any) -> Iterator[Difference]:
        if deployed != live:
            yield Difference(endpoint=part, what=what, deployed=deployed, live=live)

    return differ


def plain(value: Any) -> Any:
    """Return a value in the one way that both sides are compared in.

    Numbers are floats, lists are in order, and what a service adds as false or empty is left out.
    """
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items() if item not in (False, [], None)}
    if isinstance(value, list | tuple):
        return sorted(map(plain, value), key=lambda item: json.dumps(item, sort_keys=True))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else value


def common_part(live: Any, deployed: Any) -> Any:
    """Return what a service says of the keys that a template sets; it adds defaults to others."""
    if isinstance(live, Mapping) and isinstance(deployed, Mapping):
        return {key: common_part(live[key], deployed[key]) for key in live if key in deployed}
    if isinstance(live, list) and isinstance(deployed, list) and len(live) == len(deployed):
        return [common_part(*pair) for pair in zip(live, deployed, strict=True)]
    return live


def has_reference(value: Any) -> bool:
    """True when a value is known to CloudFormation alone."""
    if isinstance(value, Mapping):
        return (
            "Ref" in value
            or any(key.startswith("Fn::") for key in value)
            or any(map(has_reference, value.values()))
        )
    return isinstance(value, list) and any(map(has_reference, value))
