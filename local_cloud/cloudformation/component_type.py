"""AWS::SageMaker::InferenceComponent: every change of its properties updates it in place."""

from __future__ import annotations

from functools import partial

from local_cloud.cloudformation.calls import (
    Created,
    Properties,
    call,
    call_delete,
    last,
    physical_name,
)
from local_cloud.protocol.constraints import input_shape
from local_cloud.protocol.errors import Actions
from local_cloud.sagemaker.components.component import Component
from local_cloud.sagemaker.components.components import Components
from local_cloud.sagemaker.hosting.endpoints import InProgress
from local_cloud.sagemaker.tags import Tags

NAME = "InferenceComponentName"
FIXED = (NAME, "EndpointName", "VariantName")
"""What UpdateInferenceComponent cannot change, though the type has no createOnlyProperties."""


class ComponentType:
    """Inference components, through the same actions that the API uses."""

    def __init__(self, actions: Actions, components: Components, tags: Tags) -> None:
        self.actions, self.components, self.tags = actions, components, tags

    def create(self, logical_id: str, properties: Properties, stack: str) -> Created:
        """Create a component and wait until its copies answer; delete one that never does."""
        name = physical_name(properties, NAME, stack, logical_id)
        known = input_shape("CreateInferenceComponent").members
        request = {field: value for field, value in properties.items() if field in known}
        call(self.actions["CreateInferenceComponent"], {**request, NAME: name})
        component = self.components.component(name)
        try:
            self._wait(component)
        except ValueError:
            self.delete(component.arn, properties)
            raise
        return component.arn, self._attributes(component)

    def update(self, physical_id: str, old: Properties, new: Properties, stack: str) -> Created:
        """Change a component in place; on failure its old copies still answer."""
        name = last(physical_id)
        changed = [field for field in FIXED if old.get(field) != new.get(field)]
        if changed:
            raise ValueError(
                f"Resource handler returned message: {', '.join(changed)} of inference component "
                f"{name} cannot be changed (NotUpdatable)"
            )
        self.tags.begin(physical_id, new.get("Tags"))
        known = input_shape("UpdateInferenceComponent").members
        fields = [field for field in known if old.get(field) != new.get(field)]
        request = {field: new[field] for field in fields if new.get(field) is not None}
        if set(request) - {"DeploymentConfig"}:
            if new.get("DeploymentConfig") is not None:
                request["DeploymentConfig"] = new["DeploymentConfig"]
            call(partial(self._call_again, "UpdateInferenceComponent"), {**request, NAME: name})
            self._wait(self.components.component(name))
        return physical_id, self._attributes(self.components.component(name))

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Delete a component and wait until its copies have ended."""
        component = self.components.components.get(last(physical_id))
        call_delete(self.actions["DeleteInferenceComponent"], {NAME: last(physical_id)})
        if component is not None:
            self.components.wait(component)

    def _call_again(self, action: str, request: Properties) -> Properties:
        """Call an action, and again after a change of the component that was under way."""
        while True:
            try:
                return self.actions[action](request)
            except InProgress:
                self.components.wait(self.components.component(request[NAME]))

    def _wait(self, component: Component) -> None:
        self.components.wait(component)
        if component.status != "InService" or component.failure_reason is not None:
            raise ValueError(
                f"Resource handler returned message: {component.failure_reason or component.status}"
            )

    def _attributes(self, component: Component) -> dict[str, str]:
        return {
            "InferenceComponentArn": component.arn,
            "InferenceComponentName": component.name,
            "InferenceComponentStatus": component.status,
            "EndpointArn": component.endpoint_arn,
        }
