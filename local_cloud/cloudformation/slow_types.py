"""AWS::SageMaker::Endpoint and ::InferenceComponent, whose changes take time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ministack.services.cloudformation import provisioners

from local_cloud.protocol.constraints import input_shape
from local_cloud.protocol.errors import AwsError
from local_cloud.sagemaker.control_plane import ControlPlane
from local_cloud.sagemaker.hosting.changes import Changing, InProgress

Properties = Mapping[str, Any]
Created = tuple[str, dict[str, Any]]
"""A resource's Ref and its attributes."""
Action = Callable[[Properties], Properties]
COMPONENT = "InferenceComponent"
FIXED = (f"{COMPONENT}Name", "EndpointName", "VariantName")
"""What UpdateInferenceComponent cannot change, though the type has no createOnlyProperties."""


def physical_name(properties: Properties, field: str, stack: str, logical_id: str) -> str:
    """Return the name that a template gives, or one made of the stack's and the resource's."""
    name = properties.get(field)
    return str(provisioners._physical_name(stack, logical_id, max_len=63) if name is None else name)


def last(arn: str) -> str:
    """Return the name at an ARN's end."""
    return arn.rpartition("/")[2]


def call(action: Action, request: Properties) -> Properties:
    """Call an action; its refusal becomes the reason that CloudFormation shows."""
    try:
        return action(request)
    except AwsError as error:
        raise ValueError(
            f"Resource handler returned message: {error.message} ({error.code})"
        ) from error


def call_delete(action: Action, request: Properties) -> None:
    """Call a deleting action; a resource that is gone already is no fault."""

    def delete(request: Properties) -> Properties:
        try:
            return action(request)
        except AwsError as error:
            if "Could not find" not in error.message and error.code != "ObjectNotFoundException":
                raise
            return {}

    call(delete, request)


@dataclass(frozen=True, kw_only=True)
class SlowType:
    """A type of resource, through the same control plane that the API uses.

    `changes` returns the request that brings about a change of the present resource's properties,
    None where there is none; it may raise ValueError.
    """

    kind: str
    control_plane: ControlPlane
    resources: Mapping[str, Changing]
    changes: Callable[[Any, Properties, Properties], Properties | None]

    @property
    def name_field(self) -> str:
        """The property that names a resource."""
        return f"{self.kind}Name"

    @property
    def handlers(self) -> dict[str, Any]:
        """What MiniStack's CloudFormation calls."""
        return {"create": self.create, "update": self.update, "delete": self.delete}

    def find(self, name: str) -> Changing | None:
        """Return the resource of a name once nothing is under way on it; None: it is gone."""
        resource = self.resources.get(name)
        if resource is not None:
            resource.wait()
        return resource

    def create(self, logical_id: str, properties: Properties, stack: str) -> Created:
        """Create a resource and wait until it answers; delete one that never does."""
        name = physical_name(properties, self.name_field, stack, logical_id)
        known = input_shape(f"Create{self.kind}").members
        request = {field: value for field, value in properties.items() if field in known}
        call(self.control_plane.actions[f"Create{self.kind}"], {**request, self.name_field: name})
        try:
            return self._settled(name)
        except ValueError:
            self.delete(name, properties)
            raise

    def update(self, physical_id: str, old: Properties, new: Properties, stack: str) -> Created:
        """Change a resource in place; on failure what was before still answers."""
        name = last(physical_id)
        request = self.changes(self.find(name), old, new)
        self.control_plane.tags.begin(physical_id, new.get("Tags"))
        if request is None:
            return physical_id, self._attributes(name, physical_id)
        action = f"Update{self.kind}"
        call(partial(self._call_again, action), {**request, self.name_field: name})
        return self._settled(name)

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Delete a resource and wait until what runs of it has ended."""
        name = last(physical_id)
        if self.find(name) is not None:
            delete = partial(self._call_again, f"Delete{self.kind}")
            call_delete(delete, {self.name_field: name})
            self.find(name)

    def _call_again(self, action: str, request: Properties) -> Properties:
        """Call an action, and again after a change of the resource that was under way."""
        while True:
            try:
                return self.control_plane.actions[action](request)
            except InProgress:
                self.find(request[self.name_field])

    def _settled(self, name: str) -> Created:
        found = self.find(name)
        if found is None or found.status != "InService" or found.failure_reason is not None:
            reason = "it was deleted" if found is None else found.failure_reason or found.status
            raise ValueError(f"Resource handler returned message: {reason}")
        return found.arn, self._attributes(name, found.arn)

    def _attributes(self, name: str, arn: str) -> dict[str, str]:
        return {self.name_field: name, "Id": arn, f"{self.kind}Arn": arn}


def endpoint_changes(present: Any, old: Properties, new: Properties) -> Properties | None:
    """Return the whole request where the endpoint config is another one.

    A rollback changes nothing where SageMaker has rolled back already.
    """
    config = new.get("EndpointConfigName")
    is_there = present is not None and present.config_name == config
    return None if is_there or config == old.get("EndpointConfigName") else new


def component_changes(present: Any, old: Properties, new: Properties) -> Properties | None:
    """Return the fields that differ: every change updates an inference component in place."""
    fixed = [field for field in FIXED if old.get(field) != new.get(field)]
    if fixed:
        raise ValueError(
            f"Resource handler returned message: {', '.join(fixed)} of an inference component "
            "cannot be changed (NotUpdatable)"
        )
    fields = input_shape(f"Update{COMPONENT}").members
    changed = {
        field: new[field]
        for field in fields
        if old.get(field) != new.get(field) and new.get(field) is not None
    }
    if not set(changed) - {"DeploymentConfig"}:
        return None
    deployment = new.get("DeploymentConfig")
    return changed if deployment is None else {**changed, "DeploymentConfig": deployment}
