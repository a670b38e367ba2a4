"""AWS::SageMaker::Endpoint and ::InferenceComponent, whose changes take time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ministack.services.cloudformation import provisioners

from local_cloud.protocol.constraints import input_shape
from local_cloud.protocol.errors import AwsError
from local_cloud.sagemaker.components.component import Component
from local_cloud.sagemaker.components.components import Components
from local_cloud.sagemaker.control_plane import ControlPlane
from local_cloud.sagemaker.hosting.changes import InProgress
from local_cloud.sagemaker.hosting.endpoint import Endpoint

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


class SlowType(ABC):
    """A type of resource, through the same control plane that the API uses."""

    def __init__(self, control_plane: ControlPlane, kind: str) -> None:
        self.actions, self.tags = control_plane.actions, control_plane.tags
        self.kind, self.name_field = kind, f"{kind}Name"

    @property
    def handlers(self) -> dict[str, Any]:
        """What MiniStack's CloudFormation calls."""
        return {"create": self.create, "update": self.update, "delete": self.delete}

    @abstractmethod
    def find(self, name: str) -> Endpoint | Component | None:
        """Return the resource of a name once nothing is under way on it; None: it is gone."""

    @abstractmethod
    def changes(self, name: str, old: Properties, new: Properties) -> Properties | None:
        """Return the request that brings about a change of properties; None where there is none."""

    def create(self, logical_id: str, properties: Properties, stack: str) -> Created:
        """Create a resource and wait until it answers; delete one that never does."""
        name = physical_name(properties, self.name_field, stack, logical_id)
        known = input_shape(f"Create{self.kind}").members
        request = {field: value for field, value in properties.items() if field in known}
        call(self.actions[f"Create{self.kind}"], {**request, self.name_field: name})
        try:
            return self._settled(name)
        except ValueError:
            self.delete(name, properties)
            raise

    def update(self, physical_id: str, old: Properties, new: Properties, stack: str) -> Created:
        """Change a resource in place; on failure what was before still answers."""
        name = last(physical_id)
        request = self.changes(name, old, new)
        self.tags.begin(physical_id, new.get("Tags"))
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
                return self.actions[action](request)
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


class EndpointType(SlowType):
    """Endpoints, of which an update changes the endpoint config."""

    def __init__(self, control_plane: ControlPlane) -> None:
        super().__init__(control_plane, "Endpoint")
        self.endpoints = control_plane.endpoints

    def find(self, name: str) -> Endpoint | None:
        """Return an endpoint once nothing is under way on it, such as its own scaling."""
        endpoint = self.endpoints.endpoints.get(name)
        if endpoint is not None:
            endpoint.wait()
        return endpoint

    def changes(self, name: str, old: Properties, new: Properties) -> Properties | None:
        """Return the whole request where the endpoint config is another one."""
        config = new.get("EndpointConfigName")
        if config == old.get("EndpointConfigName"):
            return None
        endpoint = self.find(name)
        return None if endpoint is not None and endpoint.config_name == config else new


class ComponentType(SlowType):
    """Inference components, of which every change of their properties updates them in place."""

    def __init__(self, control_plane: ControlPlane, components: Components) -> None:
        super().__init__(control_plane, COMPONENT)
        self.components = components

    def find(self, name: str) -> Component | None:
        """Return a component once nothing is under way on it."""
        component = self.components.components.get(name)
        if component is not None:
            component.wait()
        return component

    def changes(self, name: str, old: Properties, new: Properties) -> Properties | None:
        """Return the fields that differ. Raises ValueError for one that cannot be changed."""
        fixed = [field for field in FIXED if old.get(field) != new.get(field)]
        if fixed:
            raise ValueError(
                f"Resource handler returned message: {', '.join(fixed)} of inference component "
                f"{name} cannot be changed (NotUpdatable)"
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
