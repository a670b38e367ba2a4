"""SageMaker's control plane: models, endpoint configs and endpoints, as its API shows them."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, MutableMapping
from functools import partial
from typing import Any

from local_cloud.account import sagemaker_arn
from local_cloud.protocol.constraints import checked_actions
from local_cloud.protocol.errors import (
    Actions,
    Reply,
    Request,
    dispatch,
    present_fields,
    validation_error,
)
from local_cloud.protocol.listing import list_page
from local_cloud.sagemaker.definitions import (
    all_variants,
    containers,
    hosts_components,
    model_names,
)
from local_cloud.sagemaker.hosting.endpoint import Endpoint
from local_cloud.sagemaker.hosting.endpoints import WORDS, Endpoints
from local_cloud.sagemaker.hosting.fleet import VariantFleet

Record = Mapping[str, Any]
logger = logging.getLogger("roundhouse.sagemaker")
FindModel = Callable[[str], Record | None]


def summary(endpoint: Endpoint) -> Record:
    """Return an endpoint as lists show it."""
    return {
        "EndpointName": endpoint.name,
        "EndpointArn": endpoint.arn,
        "EndpointStatus": endpoint.status,
        "CreationTime": endpoint.created,
        "LastModifiedTime": endpoint.modified,
    }


def description(endpoint: Endpoint, find_model: FindModel) -> Record:
    """Return an endpoint in full; fields without a value are left out."""
    traffic = endpoint.traffic
    fleet = None if traffic is None else traffic.fleet
    variants = () if fleet is None else fleet.production.values()
    shadows = () if fleet is None else fleet.shadow.values()
    optional = {
        "FailureReason": endpoint.failure_reason,
        "LastDeploymentConfig": endpoint.deployment_config,
        "ProductionVariants": [_running(variant, find_model) for variant in variants],
        "ShadowProductionVariants": [_running(variant, find_model) for variant in shadows],
    }
    present = {field: value for field, value in optional.items() if value}
    return {**summary(endpoint), "EndpointConfigName": endpoint.config_name, **present}


def _running(variant: VariantFleet, find_model: FindModel) -> Record:
    types = Counter(instance.instance_type for instance in variant.instances)
    pools = [
        {"InstanceType": name, "CurrentInstanceCount": count}
        for name, count in sorted(types.items())
    ]
    has_pools = variant.spec.get("InstancePools") is not None
    return {
        "VariantName": variant.name,
        **present_fields(DeployedImages=_images(variant, find_model) or None),
        "CurrentWeight": variant.weight,
        "DesiredWeight": variant.weight,
        "CurrentInstanceCount": len(variant.instances),
        "DesiredInstanceCount": variant.desired,
        **({"InstancePools": pools} if has_pools and pools else {}),
        **present_fields(
            RoutingConfig=variant.spec.get("RoutingConfig"),
            ManagedInstanceScaling=variant.spec.get("ManagedInstanceScaling"),
        ),
    }


def _images(variant: VariantFleet, find_model: FindModel) -> list[Record]:
    """The images of the variant's models, resolved where the model names a digest."""
    if hosts_components(variant.spec):
        return []
    names = [instance.model_name for instance in variant.instances] or [variant.spec["ModelName"]]
    models = [model for name in dict.fromkeys(names) if (model := find_model(name)) is not None]
    images = dict.fromkeys(
        str(definition["Image"]) for model in models for definition in containers(model)
    )
    return [
        {"SpecifiedImage": image, **({"ResolvedImage": image} if "@sha256:" in image else {})}
        for image in images
    ]


class ControlPlane:
    """Answers the `SageMaker.*` actions; `scaled_variants` are an endpoint's scalable targets."""

    def __init__(
        self, endpoints: Endpoints, scaled_variants: Callable[[str], Collection[str]]
    ) -> None:
        self.endpoints = endpoints
        self.hosted_components: Callable[[str], Collection[str]] = lambda endpoint: ()
        self.actions: Actions = {}
        self.add(
            {
                "CreateModel": partial(_store, endpoints.models, "Model"),
                "DescribeModel": lambda request: endpoints.model(request["ModelName"]),
                "DeleteModel": partial(_delete, endpoints.models, endpoints.model, "Model"),
                "CreateEndpointConfig": self._create_endpoint_config,
                "DescribeEndpointConfig": lambda request: endpoints.config(
                    request["EndpointConfigName"]
                ),
                "DeleteEndpointConfig": partial(
                    _delete, endpoints.configs, endpoints.config, "EndpointConfig"
                ),
                "CreateEndpoint": self._create_endpoint,
                "DescribeEndpoint": lambda request: description(
                    endpoints.endpoint_named(request["EndpointName"]), endpoints.models.get
                ),
                "ListEndpoints": lambda request: list_page(
                    request, "Endpoints", "Endpoint", map(summary, endpoints.endpoints.values())
                ),
                "UpdateEndpoint": lambda request: {
                    "EndpointArn": endpoints.update(
                        request, scaled_variants(request["EndpointName"])
                    ).arn
                },
                "UpdateEndpointWeightsAndCapacities": lambda request: {
                    "EndpointArn": endpoints.change(
                        request["EndpointName"],
                        {
                            item["VariantName"]: item
                            for item in request["DesiredWeightsAndCapacities"]
                        },
                    ).arn
                },
                "DeleteEndpoint": self._delete_endpoint,
            }
        )

    def add(self, actions: Actions) -> None:
        """Answer further actions."""
        self.actions = {**self.actions, **checked_actions(actions)}

    def answer(self, target: str, body: bytes) -> Reply:
        """Answer one request of the JSON 1.1 protocol."""
        return dispatch("SageMaker", self.actions, target, body)

    def _create_endpoint_config(self, request: Request) -> Request:
        """Record an endpoint config whose models all exist."""
        for variant in all_variants(request):
            for model in model_names(variant):
                self.endpoints.model(model)
        if request.get("DataCaptureConfig") is not None:
            name = request["EndpointConfigName"]
            logger.warning("%s: the local cloud captures no requests", name)
        return _store(self.endpoints.configs, "EndpointConfig", request)

    def _create_endpoint(self, request: Request) -> Request:
        name, deployment = request["EndpointName"], request.get("DeploymentConfig")
        arn = self.endpoints.create(name, request["EndpointConfigName"], deployment).arn
        return {"EndpointArn": arn}

    def _delete_endpoint(self, request: Request) -> Request:
        """Begin to delete an endpoint that hosts no inference component any more."""
        name = request["EndpointName"]
        hosted = self.hosted_components(name)
        if hosted:
            raise validation_error(
                f'Cannot delete endpoint "{self.endpoints.endpoint_named(name).arn}": delete its '
                f"inference components first: {', '.join(hosted)}."
            )
        self.endpoints.delete(name)
        return {}


def _store(records: MutableMapping[str, Record], noun: str, request: Request) -> Request:
    """Record a new model or endpoint config; return its ARN."""
    name, field = request[f"{noun}Name"], f"{noun}Arn"
    arn = sagemaker_arn(noun, name)
    if name in records:
        raise validation_error(f'Cannot create already existing {WORDS[noun]} "{arn}".')
    isolated = request.get("EnableNetworkIsolation") or False
    own = {"EnableNetworkIsolation": isolated, field: arn, "CreationTime": time.time()}
    records[name] = {**request, **own}
    return {field: arn}


def _delete(
    records: MutableMapping[str, Record], find: Callable[[str], Record], noun: str, request: Request
) -> Request:
    """Forget a model or an endpoint config, even one in use, as AWS does."""
    find(request[f"{noun}Name"])
    del records[request[f"{noun}Name"]]
    return {}
