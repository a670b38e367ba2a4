"""CloudFormation types that MiniStack lacks: SageMaker, scaling, OIDC, alarms on metric math.

Changes of AWS::SageMaker::Endpoint and ::InferenceComponent take time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ministack.services.cloudformation import provisioners, stacks

from local_cloud.account import sagemaker_arn
from local_cloud.application_autoscaling.api import Scaling
from local_cloud.cloudwatch.alarms import without_metric
from local_cloud.iam.web_identity import delete_provider, put_provider
from local_cloud.protocol.constraints import input_shape
from local_cloud.protocol.errors import AwsError
from local_cloud.sagemaker.components.components import Components
from local_cloud.sagemaker.control_plane import ControlPlane
from local_cloud.sagemaker.hosting.changes import Changing, InProgress

Properties = Mapping[str, Any]
Created = tuple[str, dict[str, Any]]
"""A resource's Ref and its attributes."""
Action = Callable[[Properties], Properties]
COMPONENT = "InferenceComponent"
IN_SERVICE = ("InService", None)
FIXED = (f"{COMPONENT}Name", "EndpointName", "VariantName")
"""What UpdateInferenceComponent cannot change, though the type has no createOnlyProperties."""


def call(action: Action, request: Properties, ignored_code: str | None = None) -> Properties:
    """Call an action; its refusal becomes the reason that CloudFormation shows."""
    try:
        return action(request)
    except AwsError as error:
        if error.code == ignored_code:
            return {}
        raise ValueError(
            f"Resource handler returned message: {error.message} ({error.code})"
        ) from error


@dataclass(frozen=True, kw_only=True)
class HostingType:
    """A type of resource of SageMaker, through the same control plane that the API uses.

    `changes` returns the request that brings about a change of the present resource's properties,
    None where there is none; it may raise ValueError.
    """

    kind: str
    control_plane: ControlPlane
    resources: Mapping[str, Any]
    changes: Callable[[Any, Properties, Properties], Properties | None] = lambda *_: None

    @property
    def name_field(self) -> str:
        """The property that names a resource."""
        return f"{self.kind}Name"

    @property
    def handlers(self) -> dict[str, Any]:
        """What MiniStack's CloudFormation calls."""
        return {"create": self.create, "update": self.update, "delete": self.delete}

    def find(self, name: str) -> Any:
        """Return the resource of a name once nothing is under way on it; None: it is gone."""
        resource = self.resources.get(name)
        if isinstance(resource, Changing):
            resource.wait()
        return resource

    def create(self, logical_id: str, properties: Properties, stack: str) -> Created:
        """Create a resource and wait until it answers; delete one that never does."""
        name = properties.get(self.name_field)
        if name is None:
            name = provisioners._physical_name(stack, logical_id, max_len=63)
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
        name = physical_id.rpartition("/")[2]
        request = self.changes(self.find(name), old, new)
        if request is None:
            return self._created(name)
        action = f"Update{self.kind}"
        call(partial(self._call_again, action), {**request, self.name_field: name})
        return self._settled(name)

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Delete a resource that is not gone yet, and wait until what runs of it has ended."""
        name = physical_id.rpartition("/")[2]
        if self.find(name) is not None:
            call(partial(self._call_again, f"Delete{self.kind}"), {self.name_field: name})
            self.find(name)

    def _call_again(self, action: str, request: Properties) -> Properties:
        """Call an action, and again after a change of the resource that was under way."""
        while True:
            try:
                return self.control_plane.actions[action](request)
            except InProgress:
                self.find(request[self.name_field])

    def _settled(self, name: str) -> Created:
        found, reason = self.find(name), None
        if found is None:
            reason = "it was deleted"
        elif isinstance(found, Changing) and (found.status, found.failure_reason) != IN_SERVICE:
            reason = found.failure_reason or found.status
        if reason is not None:
            raise ValueError(f"Resource handler returned message: {reason}")
        return self._created(name)

    def _created(self, name: str) -> Created:
        arn = sagemaker_arn(self.kind, name)
        return arn, {self.name_field: name, "Id": arn, f"{self.kind}Arn": arn}


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


MODEL_TYPE, CONFIG_TYPE = "AWS::SageMaker::Model", "AWS::SageMaker::EndpointConfig"
ENDPOINT_TYPE = "AWS::SageMaker::Endpoint"
COMPONENT_TYPE = "AWS::SageMaker::InferenceComponent"
WAITING = (ENDPOINT_TYPE, COMPONENT_TYPE)
"""Types whose resources take time: they block in a thread of their own."""
TARGET_TYPE = "AWS::ApplicationAutoScaling::ScalableTarget"
POLICY_TYPE = "AWS::ApplicationAutoScaling::ScalingPolicy"
OIDC_TYPE = "AWS::IAM::OIDCProvider"
TARGET_FIELDS = ("ResourceId", "ScalableDimension", "ServiceNamespace")
"""A scalable target's Ref joins them in this order."""


def _all_but_tags(operation: str) -> tuple[str, ...]:
    return tuple(name for name in input_shape(operation).members if name != "Tags")


REPLACING_PROPERTIES = {
    MODEL_TYPE: _all_but_tags("CreateModel"),
    CONFIG_TYPE: _all_but_tags("CreateEndpointConfig"),
    ENDPOINT_TYPE: ("EndpointName",),
    TARGET_TYPE: TARGET_FIELDS,
    POLICY_TYPE: ("PolicyName", "ScalingTargetId", *TARGET_FIELDS),
    OIDC_TYPE: ("Url",),
    COMPONENT_TYPE: (),
}
"""Properties whose change creates the resource anew. Source: the types' createOnlyProperties."""
CUSTOM_NAMES = {
    MODEL_TYPE: "ModelName", CONFIG_TYPE: "EndpointConfigName", ENDPOINT_TYPE: "EndpointName",
}  # fmt: skip


def install(control_plane: ControlPlane, components: Components, scaling: Scaling) -> None:
    """Add the types to MiniStack's CloudFormation."""
    endpoints, new_type = control_plane.endpoints, partial(HostingType, control_plane=control_plane)
    types = (
        new_type(kind="Model", resources=endpoints.models),
        new_type(kind="EndpointConfig", resources=endpoints.configs),
        new_type(kind="Endpoint", resources=endpoints.endpoints, changes=endpoint_changes),
        new_type(kind=COMPONENT, resources=components.components, changes=component_changes),
    )
    provisioners._RESOURCE_HANDLERS.update(
        {
            **{f"AWS::SageMaker::{item.kind}": item.handlers for item in types},
            TARGET_TYPE: _handlers(
                partial(_put_target, scaling), scaling.actions["DeregisterScalableTarget"]
            ),
            POLICY_TYPE: _handlers(
                partial(_put_policy, scaling),
                lambda properties: scaling.actions["DeleteScalingPolicy"](_policy(properties)),
            ),
            OIDC_TYPE: {
                "create": lambda logical_id, properties, stack: put_provider(properties),
                "update": lambda physical_id, old, new, stack: put_provider(new, physical_id),
                "delete": lambda physical_id, properties: delete_provider(physical_id),
            },
        }
    )
    provisioners._REPLACING_PROPERTIES.update(REPLACING_PROPERTIES)
    provisioners._CUSTOM_NAME_REPLACEMENT.update(
        {kind: {"name": name} for kind, name in CUSTOM_NAMES.items()}
    )
    runs_on_thread = stacks._runs_on_worker_thread
    stacks._runs_on_worker_thread = lambda kind: kind in WAITING or runs_on_thread(kind)
    _accept_every_alarm()


def _handlers(put: Callable[[Properties], Created], delete: Action) -> dict[str, Any]:
    """Handlers of a type that one action creates and updates."""
    gone = "ObjectNotFoundException"
    return {
        "create": lambda logical_id, properties, stack: put(properties),
        "update": lambda physical_id, old, new, stack: put(new),
        "delete": lambda physical_id, properties: call(delete, properties, gone),
    }


def _put_target(scaling: Scaling, properties: Properties) -> Created:
    call(scaling.actions["RegisterScalableTarget"], properties)
    identity = "|".join(str(properties[name]) for name in TARGET_FIELDS)
    return identity, {"Id": identity}


def _put_policy(scaling: Scaling, properties: Properties) -> Created:
    arn = call(scaling.actions["PutScalingPolicy"], _policy(properties))["PolicyARN"]
    return arn, {"Arn": arn, "PolicyName": properties["PolicyName"]}


def _policy(properties: Properties) -> Properties:
    """A policy's request: its target may be given by the target's Ref."""
    target = properties.get("ScalingTargetId")
    if target is None:
        return properties
    return {**properties, **dict(zip(TARGET_FIELDS, str(target).split("|"), strict=True))}


def _accept_every_alarm() -> None:
    """Let alarms on metric math be stored; MiniStack does not evaluate them."""
    record = provisioners._cw_metric_alarm_record

    def alarm_record(name: str, properties: Properties) -> dict[str, Any]:
        if not properties.get("Metrics"):
            return dict(record(name, properties))
        single = {**properties, "Metrics": None, "MetricName": "math", "Namespace": "math"}
        return without_metric({**record(name, single), "Metrics": properties["Metrics"]})

    provisioners._cw_metric_alarm_record = alarm_record
