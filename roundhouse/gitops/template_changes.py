"""The difference of two templates of one stack, in the classes of `ResourceClass`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from roundhouse.deploy.permissions import added_permissions
from roundhouse.deploy.stacks import Template
from roundhouse.gitops.plan_document import (
    PermissionChange,
    PropertyChange,
    ResourceChange,
    ResourceClass,
)

ENDPOINT = "AWS::SageMaker::Endpoint"
UPDATE_PROPERTIES = ("RetainAllVariantProperties", "ExcludeRetainedVariantProperties")
"""Of an endpoint: what an update takes over from the variants that run. They change nothing that
runs, and a parameter of the deployment decides them."""
VERSIONED = ("AWS::SageMaker::EndpointConfig", "AWS::SageMaker::Model")
"""Named after their content: CloudFormation makes the new one before it removes the old one."""
_SCALING = ("ResourceId", "ScalableDimension", "ServiceNamespace")
REPLACING_PROPERTIES: dict[str, tuple[str, ...]] = {
    ENDPOINT: ("EndpointName",),
    "AWS::ApplicationAutoScaling::ScalableTarget": _SCALING,
    "AWS::ApplicationAutoScaling::ScalingPolicy": (*_SCALING, "PolicyName", "ScalingTargetId"),
    "AWS::CloudWatch::Alarm": ("AlarmName",),
    "AWS::CloudWatch::Dashboard": ("DashboardName",),
    "AWS::CodeBuild::Project": ("Name",),
    "AWS::EC2::SecurityGroup": ("GroupDescription", "GroupName", "VpcId"),
    "AWS::EC2::VPCEndpoint": ("ServiceName", "VpcEndpointType", "VpcId"),
    "AWS::ECR::Repository": ("EncryptionConfiguration", "RepositoryName"),
    "AWS::IAM::Role": ("Path", "RoleName"),
    "AWS::KMS::Alias": ("AliasName",),
    "AWS::Logs::LogGroup": ("LogGroupName",),
    "AWS::S3::Bucket": ("BucketName",),
    "AWS::SNS::Topic": ("FifoTopic", "TopicName"),
    "AWS::StepFunctions::StateMachine": ("StateMachineName", "StateMachineType"),
}
"""Properties whose change replaces a resource (`createOnlyProperties` of CloudFormation's schemas,
as cfn-lint ships them; a test compares), for the types that our stacks have."""


LONGEST_VALUE = 2000
"""Characters of a property's text; a dashboard's body has up to a million."""


def template_digest(template: Template | None) -> str:
    """Return the sha256 of what a template deploys: types, properties and outputs."""
    resources = {key: _content(item) for key, item in _resources(template).items()}
    outputs = {} if template is None else template.get("Outputs", {})
    text = json.dumps(_canonical([resources, outputs]), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _canonical(value: Any) -> Any:
    """Return a template with whole numbers as such: the CDK writes 1.0 as 1."""
    if isinstance(value, Mapping):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def resource_changes(before: Template | None, after: Template | None) -> tuple[ResourceChange, ...]:
    """Return every resource that differs, by logical id; None: the stack is not there."""
    old, new = _resources(before), _resources(after)
    return tuple(
        _change(logical_id, old.get(logical_id), new.get(logical_id))
        for logical_id in sorted(old.keys() | new.keys())
        if _content(old.get(logical_id)) != _content(new.get(logical_id))
    )


def permission_changes(before: Template | None, after: Template | None) -> PermissionChange:
    """Return the grants that a change adds and removes."""
    empty: Template = {"Resources": {}}
    added = _grants(before or empty, after or empty)
    removed = _grants(after or empty, before or empty)
    # A policy whose content names it comes under another logical id with each version.
    return PermissionChange(
        added=tuple(f"{where}: {grant}" for grant, where in added.items() if grant not in removed),
        removed=tuple(
            f"{where}: {grant}" for grant, where in removed.items() if grant not in added
        ),
    )


def _grants(before: Template, after: Template) -> dict[str, str]:
    """Return what a template grants beyond another one, with the resource that grants it."""
    lines = (line[2:].split(": ", 1) for line in added_permissions(before, after))
    return {grant: where for where, grant in lines}


def _change(
    logical_id: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None
) -> ResourceChange:
    kind = str((new or old or {})["Type"])
    before, after = ({} if item is None else _properties(item) for item in (old, new))
    properties = tuple(_property_changes(before, after, ())) if old and new else ()
    return ResourceChange(
        id=logical_id,
        type=kind,
        change=_resource_class(kind, old, new, properties),
        properties=properties,
    )


def _resource_class(
    kind: str,
    old: Mapping[str, Any] | None,
    new: Mapping[str, Any] | None,
    properties: Sequence[PropertyChange],
) -> ResourceClass:
    if old is None:
        return "added"
    if new is None:
        return "outage" if kind == ENDPOINT else "removed"
    if old["Type"] != kind:
        return "outage" if ENDPOINT in (old["Type"], kind) else "replaced"
    if kind in VERSIONED:
        return "new-version" if properties else "in-place"
    replacing = REPLACING_PROPERTIES.get(kind, ())
    if any(change.path.split(".")[0].split("[")[0] in replacing for change in properties):
        return "outage" if kind == ENDPOINT else "replaced"
    return "in-place"


def _property_changes(before: Any, after: Any, path: tuple[str, ...]) -> Iterator[PropertyChange]:
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted(before.keys() | after.keys()):
            yield from _property_changes(before.get(key), after.get(key), (*path, f".{key}"))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _property_changes(old, new, (*path, f"[{index}]"))
    else:
        yield PropertyChange(
            path="".join(path).removeprefix("."), before=_short(before), after=_short(after)
        )


def _short(value: Any) -> Any:
    """Return a property's value, or the digest of a text that nobody could read beside another."""
    if isinstance(value, str) and len(value) > LONGEST_VALUE:
        return f"{len(value):,} characters, sha256 {hashlib.sha256(value.encode()).hexdigest()}"
    return value


def _resources(template: Template | None) -> Mapping[str, Mapping[str, Any]]:
    return {} if template is None else template.get("Resources", {})


def _content(resource: Mapping[str, Any] | None) -> object:
    """What CloudFormation updates a resource for: an order or a note alone changes nothing."""
    return None if resource is None else (resource["Type"], _properties(resource))


def _properties(resource: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the properties of a resource that stay; an endpoint has some for an update alone."""
    properties: Mapping[str, Any] = resource.get("Properties", {})
    if resource["Type"] != ENDPOINT:
        return properties
    return {key: value for key, value in properties.items() if key not in UPDATE_PROPERTIES}
