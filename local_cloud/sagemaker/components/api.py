"""SageMaker's actions on inference components."""

from __future__ import annotations

from collections.abc import Sequence

from local_cloud.ministack.account import sagemaker_arn
from local_cloud.protocol.errors import Actions, Request, validation_error
from local_cloud.protocol.listing import list_page
from local_cloud.sagemaker.components.checks import (
    check_adapter,
    check_creation,
    check_rolling,
    check_specification,
    component_variant,
    the_specification,
)
from local_cloud.sagemaker.components.component import Component, Spec, description, summary
from local_cloud.sagemaker.components.components import Components
from local_cloud.sagemaker.hosting.endpoint import Endpoint
from local_cloud.sagemaker.tags import Tags, check_tags

KIND = "inference-component"


class ComponentActions:
    """Answers the actions on inference components."""

    def __init__(self, components: Components, tags: Tags) -> None:
        self.components, self.tags = components, tags
        tags.resources[KIND] = components.components
        self.actions: Actions = {
            "CreateInferenceComponent": self._create,
            "DescribeInferenceComponent": self._describe,
            "ListInferenceComponents": self._list,
            "UpdateInferenceComponent": self._update,
            "UpdateInferenceComponentRuntimeConfig": self._scale,
            "DeleteInferenceComponent": self._delete,
        }

    def _create(self, request: Request) -> Request:
        name = request["InferenceComponentName"]
        endpoint = self._endpoint(request["EndpointName"])
        variants = _variants(endpoint)
        specification = the_specification(request)
        check_tags(request.get("Tags"))
        base = specification.get("BaseInferenceComponentName")
        if base is None:
            variant = component_variant(request, variants, endpoint.name)
            check_creation(request, variant, self.components.endpoints.model)
            variant_name = str(variant["VariantName"])
        else:
            check_adapter(request)
            variant_name = self._base(base, endpoint.name).variant
        component = Component(
            name=name,
            arn=sagemaker_arn(KIND, name),
            endpoint=endpoint.name,
            endpoint_arn=endpoint.arn,
            variant=variant_name,
            specification=specification,
            desired=(request.get("RuntimeConfig") or {"CopyCount": 0})["CopyCount"],
        )
        self.components.create(component)
        self.tags.begin(component.arn, request.get("Tags"))
        return {"InferenceComponentArn": component.arn}

    def _endpoint(self, name: str) -> Endpoint:
        endpoint = self.components.endpoints.endpoint_named(name)
        if endpoint.traffic is None or endpoint.status == "Deleting":
            raise validation_error(
                f'Cannot create an inference component on endpoint "{endpoint.arn}" in status '
                f"{endpoint.status}."
            )
        return endpoint

    def _base(self, name: str, endpoint: str) -> Component:
        base = self.components.component(name)
        if base.endpoint != endpoint or base.base is not None or base.status != "InService":
            raise validation_error(
                f"BaseInferenceComponentName {name} must name an inference component of endpoint "
                f"{endpoint} that is InService and no adapter; it is {base.status} on "
                f"{base.endpoint}."
            )
        return base

    def _describe(self, request: Request) -> Request:
        component = self.components.component(request["InferenceComponentName"])
        copies = self.components.serving_component(component).copies
        return description(component, len(copies))

    def _list(self, request: Request) -> Request:
        wanted = {
            "EndpointName": request.get("EndpointNameEquals"),
            "VariantName": request.get("VariantNameEquals"),
        }
        records = [
            record
            for record in map(summary, self.components.components.values())
            if all(value in (None, record[field]) for field, value in wanted.items())
        ]
        return list_page(request, "InferenceComponents", "InferenceComponent", records)

    def _update(self, request: Request) -> Request:
        """Change a component in place; what a request leaves out stays."""
        component = self.components.component(request["InferenceComponentName"])
        specification = self._changed_specification(request, component)
        copies = request.get("RuntimeConfig")
        count = None if copies is None else copies["CopyCount"]
        if component.base is not None and copies is not None:
            raise validation_error(
                f"RuntimeConfig of adapter {component.name} is that of its base."
            )
        deployment = request.get("DeploymentConfig")
        check_rolling(deployment, component.desired if count is None else count)
        changed = self.components.update(component.name, specification, count, deployment)
        return {"InferenceComponentArn": changed.arn}

    def _changed_specification(self, request: Request, component: Component) -> Spec | None:
        if request.get("Specification") is None and request.get("Specifications") is None:
            return None
        specification = the_specification(request)
        if specification.get("BaseInferenceComponentName") != component.base:
            raise validation_error(
                f"BaseInferenceComponentName of {component.name} cannot be changed."
            )
        if component.base is not None:
            check_adapter({**request, "RuntimeConfig": None})
            return specification
        endpoint = self.components.endpoints.endpoint_named(component.endpoint)
        named = {"VariantName": component.variant}
        variant = component_variant(named, _variants(endpoint), endpoint.name)
        check_specification(specification, variant, self.components.endpoints.model)
        return specification

    def _scale(self, request: Request) -> Request:
        component = self.components.component(request["InferenceComponentName"])
        if component.base is not None:
            raise validation_error(f"Adapter {component.name} has no copies of its own.")
        self.components.scale(component.name, request["DesiredRuntimeConfig"]["CopyCount"])
        return {"InferenceComponentArn": component.arn}

    def _delete(self, request: Request) -> Request:
        self.components.delete(request["InferenceComponentName"])
        return {}


def _variants(endpoint: Endpoint) -> Sequence[Request]:
    """The variants of the endpoint config that answers, even one that is deleted."""
    traffic = endpoint.traffic
    return () if traffic is None else traffic.fleet.config["ProductionVariants"]
