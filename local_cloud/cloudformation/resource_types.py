"""CloudFormation types that MiniStack lacks.

SageMaker, Application Auto Scaling, and alarms on metric math.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ministack.services.cloudformation import provisioners, stacks

from local_cloud.application_autoscaling.api import Scaling
from local_cloud.ministack.account import sagemaker_arn
from local_cloud.protocol.errors import AwsError
from local_cloud.sagemaker.control_plane import ControlPlane
from local_cloud.sagemaker.hosting.endpoint import Endpoint
from local_cloud.sagemaker.hosting.endpoints import InProgress

TARGET_FIELDS = ("ServiceNamespace", "ResourceId", "ScalableDimension")
ENDPOINT_TYPE = "AWS::SageMaker::Endpoint"
UPDATE_ONLY = (
    "RetainAllVariantProperties",
    "ExcludeRetainedVariantProperties",
    "RetainDeploymentConfig",
)
"""Properties that CreateEndpoint does not know."""

# Properties whose change makes CloudFormation create the resource anew. Source: the types'
# createOnlyProperties.
REPLACING_PROPERTIES = {
    "AWS::SageMaker::Model": (
        "ModelName",
        "PrimaryContainer",
        "Containers",
        "ExecutionRoleArn",
        "VpcConfig",
        "EnableNetworkIsolation",
        "InferenceExecutionConfig",
    ),
    "AWS::SageMaker::EndpointConfig": (
        "EndpointConfigName",
        "ProductionVariants",
        "ShadowProductionVariants",
        "DataCaptureConfig",
        "AsyncInferenceConfig",
        "KmsKeyId",
        "ExplainerConfig",
        "VpcConfig",
        "EnableNetworkIsolation",
        "ExecutionRoleArn",
        "MetricsConfig",
    ),
    ENDPOINT_TYPE: ("EndpointName",),
    "AWS::ApplicationAutoScaling::ScalableTarget": TARGET_FIELDS,
    "AWS::ApplicationAutoScaling::ScalingPolicy": ("PolicyName", "ScalingTargetId", *TARGET_FIELDS),
}
CUSTOM_NAMES = {
    "AWS::SageMaker::Model": "ModelName",
    "AWS::SageMaker::EndpointConfig": "EndpointConfigName",
    ENDPOINT_TYPE: "EndpointName",
}


def install(control_plane: ControlPlane, scaling: Scaling) -> None:
    """Adds the types to MiniStack's CloudFormation; endpoints block in a thread of their own."""
    types = SageMakerTypes(control_plane)
    provisioners._RESOURCE_HANDLERS.update(
        {
            "AWS::SageMaker::Model": types.handlers_without_update("Model", "ModelName", "model"),
            "AWS::SageMaker::EndpointConfig": types.handlers_without_update(
                "EndpointConfig", "EndpointConfigName", "endpoint-config"
            ),
            ENDPOINT_TYPE: {
                "create": types.create_endpoint,
                "update": types.update_endpoint,
                "delete": types.delete_endpoint,
            },
            **ScalingTypes(scaling).handlers(),
        }
    )
    provisioners._REPLACING_PROPERTIES.update(REPLACING_PROPERTIES)
    provisioners._CUSTOM_NAME_REPLACEMENT.update(
        {kind: {"name": name} for kind, name in CUSTOM_NAMES.items()}
    )
    runs_on_thread = stacks._runs_on_worker_thread
    stacks._runs_on_worker_thread = lambda kind: kind == ENDPOINT_TYPE or runs_on_thread(kind)
    _accept_metric_math()


class SageMakerTypes:
    """Create, update and delete through the same control plane that the API uses."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self.actions = control_plane.actions
        self.endpoints, self.tags = control_plane.endpoints, control_plane.tags

    def handlers_without_update(self, kind: str, field: str, arn_kind: str) -> dict[str, Any]:
        """Handlers of a type that is only ever created and deleted.

        Its Ref is the ARN, its name an attribute.
        """
        actions = self.actions

        def create(logical_id: str, properties: Properties, stack: str) -> Created:
            name = _name(properties, field, stack, logical_id)
            call_action(actions[f"Create{kind}"], {**properties, field: name})
            return sagemaker_arn(arn_kind, name), {field: name, "Id": sagemaker_arn(arn_kind, name)}

        def update(physical_id: str, old: Properties, new: Properties, stack: str) -> Created:
            self.tags.begin(physical_id, new.get("Tags"))
            return physical_id, {field: _last(physical_id), "Id": physical_id}

        def delete(physical_id: str, properties: Properties) -> None:
            call_delete_action(actions[f"Delete{kind}"], {field: _last(physical_id)})

        return {"create": create, "update": update, "delete": delete}

    def create_endpoint(self, logical_id: str, properties: Properties, stack: str) -> Created:
        """Creates an endpoint and waits until it answers.

        One that never does is removed and its reason raised.
        """
        name = _name(properties, "EndpointName", stack, logical_id)
        given = {field: value for field, value in properties.items() if field not in UPDATE_ONLY}
        call_action(self.actions["CreateEndpoint"], {**given, "EndpointName": name})
        endpoint = self.endpoints.endpoint_named(name)
        try:
            self._wait(endpoint)
        except ValueError:
            self.delete_endpoint(endpoint.arn, properties)
            raise
        return endpoint.arn, {"EndpointName": name, "Id": endpoint.arn}

    def update_endpoint(
        self, physical_id: str, old: Properties, new: Properties, stack: str
    ) -> Created:
        """Puts the new endpoint config behind the endpoint and waits.

        On failure the old one still answers.
        """
        name = _last(physical_id)
        self.tags.begin(physical_id, new.get("Tags"))
        if old.get("EndpointConfigName") != new.get("EndpointConfigName"):
            endpoint = self._settled(name)
            if endpoint is None or endpoint.config_name != new.get("EndpointConfigName"):
                call_action(
                    partial(self._call_again, self.actions["UpdateEndpoint"]),
                    {**new, "EndpointName": name},
                )
                self._wait(self.endpoints.endpoint_named(name))
        return physical_id, {"EndpointName": name, "Id": physical_id}

    def delete_endpoint(self, physical_id: str, properties: Properties) -> None:
        """Deletes an endpoint and waits until its instances are gone."""
        endpoint = self._settled(_last(physical_id))
        if endpoint is None:
            return
        try:
            self._call_again(self.actions["DeleteEndpoint"], {"EndpointName": endpoint.name})
        except AwsError as error:
            raise ValueError(error.message) from error
        self.endpoints.wait(endpoint)

    def _settled(self, name: str) -> Endpoint | None:
        """An endpoint once nothing is under way on it, such as its own scaling.

        None when there is none.
        """
        endpoint: Endpoint | None = self.endpoints.endpoints.get(name)
        if endpoint is not None:
            self.endpoints.wait(endpoint)
        return endpoint

    def _call_again(
        self, action: Callable[[Properties], Properties], request: Properties
    ) -> Properties:
        """Calls an action, and again after a change of the endpoint that was under way."""
        while True:
            try:
                return action(request)
            except InProgress:
                self._settled(request["EndpointName"])

    def _wait(self, endpoint: Endpoint) -> None:
        self.endpoints.wait(endpoint)
        if endpoint.status != "InService" or endpoint.failure_reason is not None:
            raise ValueError(
                f"Resource handler returned message: {endpoint.failure_reason or endpoint.status}"
            )


def _name(properties: Properties, field: str, stack: str, logical_id: str) -> str:
    given = properties.get(field)
    return (
        str(provisioners._physical_name(stack, logical_id, max_len=63))
        if given is None
        else str(given)
    )


def _last(arn: str) -> str:
    return arn.rpartition("/")[2]


def _accept_metric_math() -> None:
    """Lets alarms on metric math be stored; MiniStack does not evaluate them."""
    record = provisioners._cw_metric_alarm_record

    def alarm_record(name: str, properties: Properties) -> dict[str, Any]:
        if not properties.get("Metrics"):
            return dict(record(name, properties))
        single = {**properties, "Metrics": None, "MetricName": "math", "Namespace": "math"}
        alarm = {**record(name, single), "Metrics": properties["Metrics"]}
        absent = (
            "MetricName",
            "Namespace",
            "Statistic",
            "Period",
            "Dimensions",
            "ExtendedStatistic",
            "Unit",
        )
        return {field: value for field, value in alarm.items() if field not in absent}

    provisioners._cw_metric_alarm_record = alarm_record


Properties = Mapping[str, Any]
Created = tuple[str, dict[str, Any]]
"""A resource's Ref and its attributes."""


def call_action(action: Any, request: Properties) -> Mapping[str, Any]:
    """Calls an action; its refusal becomes the reason that CloudFormation shows."""
    try:
        result: Mapping[str, Any] = action(request)
    except AwsError as error:
        raise ValueError(
            f"Resource handler returned message: {error.message} ({error.code})"
        ) from error
    return result


def call_delete_action(action: Any, request: Properties) -> None:
    """Calls a deleting action; what is gone already is no fault."""
    try:
        action(request)
    except AwsError as error:
        if "Could not find" not in error.message and error.code != "ObjectNotFoundException":
            raise ValueError(
                f"Resource handler returned message: {error.message} ({error.code})"
            ) from error


class ScalingTypes:
    """Scalable targets and scaling policies."""

    def __init__(self, scaling: Scaling) -> None:
        self.scaling = scaling

    def handlers(self) -> dict[str, Any]:
        """Both types' handlers."""
        kind = "AWS::ApplicationAutoScaling"
        return {
            f"{kind}::ScalableTarget": {
                "create": lambda logical_id, properties, stack: self.put_target(properties),
                "update": lambda physical_id, old, new, stack: self.put_target(new),
                "delete": self.delete_target,
            },
            f"{kind}::ScalingPolicy": {
                "create": lambda logical_id, properties, stack: self.put_policy(properties),
                "update": lambda physical_id, old, new, stack: self.put_policy(new),
                "delete": self.delete_policy,
            },
        }

    def put_target(self, properties: Properties) -> Created:
        """Registers a target and its scheduled actions.

        Its Ref is resource, dimension and namespace.
        """
        call_action(self.scaling.declare, properties)
        identity = "|".join(
            str(properties[name])
            for name in ("ResourceId", "ScalableDimension", "ServiceNamespace")
        )
        return identity, {"Id": identity}

    def delete_target(self, physical_id: str, properties: Properties) -> None:
        """Deregisters a target."""
        call_delete_action(
            self.scaling.deregister, {name: properties[name] for name in TARGET_FIELDS}
        )

    def put_policy(self, properties: Properties) -> Created:
        """Puts a policy; its Ref is its ARN."""
        request = _policy(properties)
        arn = str(call_action(self.scaling.actions["PutScalingPolicy"], request)["PolicyARN"])
        return arn, {"Arn": arn, "PolicyName": properties["PolicyName"]}

    def delete_policy(self, physical_id: str, properties: Properties) -> None:
        """Deletes a policy."""
        call_delete_action(self.scaling.delete_policy, _policy(properties))


def _policy(properties: Properties) -> Properties:
    """A policy's request: its target may be given by the target's Ref."""
    target = properties.get("ScalingTargetId")
    if target is None:
        return properties
    names = ("ResourceId", "ScalableDimension", "ServiceNamespace")
    return {**properties, **dict(zip(names, str(target).split("|"), strict=True))}
