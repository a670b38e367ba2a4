"""SageMaker's actions on inference components."""

from __future__ import annotations

from local_cloud.account import sagemaker_arn
from local_cloud.protocol.errors import Actions, Request, validation_error
from local_cloud.protocol.listing import list_page
from local_cloud.sagemaker.components.component import Component, description, summary
from local_cloud.sagemaker.components.components import Components
from local_cloud.sagemaker.hosting.endpoint import Endpoint


class ComponentActions:
    """Answers the actions on inference components."""

    def __init__(self, components: Components) -> None:
        self.components = components
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
        specification = request["Specification"]
        base = specification.get("BaseInferenceComponentName")
        if base is not None:
            variant = self._base(base, endpoint.name).variant
        else:
            variant = _variant(request, endpoint)
            if specification.get("ModelName") is not None:
                self.components.endpoints.model(specification["ModelName"])
        component = Component(
            name=name,
            arn=sagemaker_arn("InferenceComponent", name),
            endpoint=endpoint.name,
            endpoint_arn=endpoint.arn,
            variant=variant,
            specification=specification,
            desired=(request.get("RuntimeConfig") or {"CopyCount": 0})["CopyCount"],
        )
        self.components.create(component)
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
        specification = request.get("Specification")
        if (
            specification is not None
            and specification.get("BaseInferenceComponentName") != component.base
        ):
            raise validation_error(
                f"BaseInferenceComponentName of {component.name} cannot be changed."
            )
        count = (request.get("RuntimeConfig") or {}).get("CopyCount")
        deployment = request.get("DeploymentConfig")
        changed = self.components.update(component.name, specification, count, deployment)
        return {"InferenceComponentArn": changed.arn}

    def _scale(self, request: Request) -> Request:
        component = self.components.component(request["InferenceComponentName"])
        self.components.scale(component.name, request["DesiredRuntimeConfig"]["CopyCount"])
        return {"InferenceComponentArn": component.arn}

    def _delete(self, request: Request) -> Request:
        self.components.delete(request["InferenceComponentName"])
        return {}


def _variant(request: Request, endpoint: Endpoint) -> str:
    """The variant that a component names, or the endpoint's only one."""
    known = [] if endpoint.traffic is None else list(endpoint.traffic.fleet.production)
    name = request.get("VariantName") or known[0]
    if name not in known or not endpoint.fleets[0].hosts_components:
        raise validation_error(
            f"VariantName must name a variant without a model of endpoint {endpoint.name}, which "
            f"has {', '.join(known)}; found {name}."
        )
    return str(name)
