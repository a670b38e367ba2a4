"""SageMaker's control plane: models, endpoint configs and endpoints, with AWS's checks and error codes."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from workbench.local_cloud.account import read_object, sagemaker_arn
from workbench.local_cloud.archive import s3_location
from workbench.local_cloud.aws_error import Reply, validation_error
from workbench.local_cloud.checks import check_endpoint_config, check_model, checked_name, containers, number
from workbench.local_cloud.endpoints import Endpoint, Endpoints
from workbench.local_cloud.json_protocol import Actions, Request, dispatched

NUMBERS = frozenset(
    {
        "InitialInstanceCount", "InitialVariantWeight", "VolumeSizeInGB", "ModelDataDownloadTimeoutInSeconds",
        "ContainerStartupHealthCheckTimeoutInSeconds", "InitialSamplingPercentage",
    }
)  # fmt: skip
logger = logging.getLogger("roundhouse.sagemaker")


class ControlPlane:
    """Answers the `SageMaker.*` actions."""

    def __init__(self, endpoints: Endpoints) -> None:
        self.endpoints = endpoints
        self.actions: Actions = {
            "CreateModel": self.create_model,
            "DescribeModel": lambda request: self._found_model(checked_name(request, "ModelName")),
            "ListModels": lambda request: {"Models": _listed(endpoints.models, "ModelName", "ModelArn", request)},
            "DeleteModel": self.delete_model,
            "CreateEndpointConfig": self.create_endpoint_config,
            "DescribeEndpointConfig": lambda request: endpoints.config(checked_name(request, "EndpointConfigName")),
            "ListEndpointConfigs": lambda request: {
                "EndpointConfigs": _listed(endpoints.configs, "EndpointConfigName", "EndpointConfigArn", request)
            },
            "DeleteEndpointConfig": self.delete_endpoint_config,
            "CreateEndpoint": self.create_endpoint,
            "DescribeEndpoint": self.describe_endpoint,
            "ListEndpoints": self.list_endpoints,
            "UpdateEndpoint": self.update_endpoint,
            "DeleteEndpoint": self.delete_endpoint,
        }

    def answer(self, target: str, body: bytes) -> Reply:
        """Answers one request of the JSON 1.1 protocol."""
        return dispatched("SageMaker", self.actions, target, body)

    def create_model(self, request: Request) -> Request:
        """Records a model whose data is really there."""
        name = checked_name(request, "ModelName")
        arn = sagemaker_arn("model", name)
        if name in self.endpoints.models:
            raise validation_error(f'Cannot create already existing model "{arn}".')
        check_model(request)
        for definition in containers(request):
            _check_model_data(definition, str(request["ExecutionRoleArn"]))
        self.endpoints.models[name] = {**request, "ModelArn": arn, "CreationTime": time.time()}
        return {"ModelArn": arn}

    def delete_model(self, request: Request) -> Request:
        """Forgets a model."""
        name = checked_name(request, "ModelName")
        self._found_model(name)
        del self.endpoints.models[name]
        return {}

    def create_endpoint_config(self, request: Request) -> Request:
        """Records an endpoint config whose models are all there."""
        name = checked_name(request, "EndpointConfigName")
        arn = sagemaker_arn("endpoint-config", name)
        if name in self.endpoints.configs:
            raise validation_error(f'Cannot create already existing endpoint configuration "{arn}".')
        check_endpoint_config(request)
        for variant in (*request["ProductionVariants"], *(request.get("ShadowProductionVariants") or ())):
            self._found_model(variant["ModelName"])
        self.endpoints.configs[name] = {**_with_numbers(request), "EndpointConfigArn": arn, "CreationTime": time.time()}
        return {"EndpointConfigArn": arn}

    def delete_endpoint_config(self, request: Request) -> Request:
        """Forgets an endpoint config, even one in use, as AWS does; the log then says so."""
        name = checked_name(request, "EndpointConfigName")
        self.endpoints.config(name)
        users = self.endpoints.users(name)
        if users:
            logger.warning("endpoint config %s is deleted while %s uses it", name, ", ".join(users))
        del self.endpoints.configs[name]
        return {}

    def create_endpoint(self, request: Request) -> Request:
        """Begins to create an endpoint."""
        name, config = checked_name(request, "EndpointName"), checked_name(request, "EndpointConfigName")
        return {"EndpointArn": self.endpoints.create(name, config, request.get("DeploymentConfig")).arn}

    def update_endpoint(self, request: Request) -> Request:
        """Begins to put another endpoint config behind an endpoint."""
        name, config = checked_name(request, "EndpointName"), checked_name(request, "EndpointConfigName")
        return {"EndpointArn": self.endpoints.update(name, config, request.get("DeploymentConfig")).arn}

    def delete_endpoint(self, request: Request) -> Request:
        """Begins to delete an endpoint."""
        self.endpoints.delete(checked_name(request, "EndpointName"))
        return {}

    def describe_endpoint(self, request: Request) -> Request:
        """An endpoint's state."""
        endpoint = self.endpoints.named(checked_name(request, "EndpointName"))
        optional = {
            "FailureReason": endpoint.failure_reason,
            "LastDeploymentConfig": endpoint.deployment_config,
            "ProductionVariants": self._variants(endpoint),
        }
        return {
            **_summary(endpoint),
            "EndpointConfigName": endpoint.config_name,
            **{field: value for field, value in optional.items() if value},
        }

    def list_endpoints(self, request: Request) -> Request:
        """Every endpoint whose name contains the asked-for part."""
        part = str(request.get("NameContains", ""))
        found = [endpoint for endpoint in self.endpoints.endpoints.values() if part in endpoint.name]
        return {"Endpoints": [_summary(endpoint) for endpoint in found]}

    def _variants(self, endpoint: Endpoint) -> list[Request]:
        servers = endpoint.servers
        if servers is None:
            return []
        return [
            {
                "VariantName": variant.name,
                "CurrentWeight": variant.weight,
                "DesiredWeight": variant.weight,
                "CurrentInstanceCount": 1,
                "DesiredInstanceCount": 1,
            }
            for variant in servers.variants
        ]

    def _found_model(self, name: str) -> Request:
        model = self.endpoints.models.get(name)
        if model is None:
            raise validation_error(f'Could not find model "{sagemaker_arn("model", name)}".')
        return model


def _check_model_data(definition: Request, role: str) -> None:
    url = definition.get("ModelDataUrl")
    if url is None or definition.get("Mode") == "MultiModel" or read_object(*s3_location(url)) is not None:
        return
    raise validation_error(
        f'Could not access model data at {url}. Please ensure that the role "{role}" exists and that its trust relationship '
        'policy allows the action "sts:AssumeRole" for the service principal "sagemaker.amazonaws.com". Also ensure that the '
        'role has "s3:GetObject" permissions and that the object is located in the endpoint\'s region.'
    )


def _summary(endpoint: Endpoint) -> dict[str, object]:
    return {
        "EndpointName": endpoint.name,
        "EndpointArn": endpoint.arn,
        "EndpointStatus": endpoint.status,
        "CreationTime": endpoint.created,
        "LastModifiedTime": endpoint.modified,
    }


def _listed(records: Mapping[str, Request], name: str, arn: str, request: Request) -> list[Request]:
    part = str(request.get("NameContains", ""))
    kept = [record for record in records.values() if part in record[name]]
    return [{name: record[name], arn: record[arn], "CreationTime": record["CreationTime"]} for record in kept]


def _with_numbers(value: Any) -> Any:
    """Turns the numbers that CloudFormation passes as text back into numbers."""
    if isinstance(value, list):
        return [_with_numbers(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _number(item) if key in NUMBERS else _with_numbers(item) for key, item in value.items()}
    return value


def _number(value: object) -> float | int:
    exact = number(value)
    return int(exact) if exact.is_integer() else exact
