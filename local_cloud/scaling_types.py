"""CloudFormation's types of Application Auto Scaling: scalable targets and scaling policies."""

from __future__ import annotations

from typing import Any

from local_cloud.formation_calls import Created, Properties, gone, said
from local_cloud.scaling import Scaling

TARGET_FIELDS = ("ServiceNamespace", "ResourceId", "ScalableDimension")


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
        """Registers a target and its scheduled actions; its Ref is resource, dimension and
        namespace.
        """
        said(self.scaling.declare, properties)
        identity = "|".join(
            str(properties[name])
            for name in ("ResourceId", "ScalableDimension", "ServiceNamespace")
        )
        return identity, {"Id": identity}

    def delete_target(self, physical_id: str, properties: Properties) -> None:
        """Deregisters a target."""
        gone(self.scaling.deregister, {name: properties[name] for name in TARGET_FIELDS})

    def put_policy(self, properties: Properties) -> Created:
        """Puts a policy; its Ref is its ARN."""
        request = _policy(properties)
        arn = str(said(self.scaling.actions["PutScalingPolicy"], request)["PolicyARN"])
        return arn, {"Arn": arn, "PolicyName": properties["PolicyName"]}

    def delete_policy(self, physical_id: str, properties: Properties) -> None:
        """Deletes a policy."""
        gone(self.scaling.delete_policy, _policy(properties))


def _policy(properties: Properties) -> Properties:
    """A policy's request: its target may be given by the target's Ref."""
    target = properties.get("ScalingTargetId")
    if target is None:
        return properties
    names = ("ResourceId", "ScalableDimension", "ServiceNamespace")
    return {**properties, **dict(zip(names, str(target).split("|"), strict=True))}
