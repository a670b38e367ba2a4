"""SageMaker's control plane.

Models, endpoint configs and endpoints, with AWS's checks and error codes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

from local_cloud.containers.archive import s3_location
from local_cloud.ministack.account import read_object, sagemaker_arn
from local_cloud.protocol.constraints import checked_request
from local_cloud.protocol.errors import Actions, Reply, Request, dispatch, validation_error
from local_cloud.protocol.listing import list_page
from local_cloud.sagemaker.checks import (
    check_endpoint_config,
    check_model,
    containers,
    types_beyond_the_key,
)
from local_cloud.sagemaker.describe import description, summary
from local_cloud.sagemaker.hosting.endpoints import Endpoints
from local_cloud.sagemaker.hosting.rollout import check_deployment
from local_cloud.sagemaker.hosting.update_request import (
    check_update,
    update_request,
    wanted_changes,
)
from local_cloud.sagemaker.tags import Tags, check_tags

ScaledVariants = Callable[[str], Collection[str]]
logger = logging.getLogger("roundhouse.sagemaker")


class ControlPlane:
    """Answers the `SageMaker.*` actions.

    `scaled_variants` tells which variants of an endpoint are scalable targets.
    """

    def __init__(self, endpoints: Endpoints, scaled_variants: ScaledVariants) -> None:
        self.endpoints, self.records = endpoints, endpoints.records
        records = self.records
        self._scaled_variants = scaled_variants
        self.tags = Tags(
            {
                "model": records.models,
                "endpoint-config": records.configs,
                "endpoint": endpoints.endpoints,
            }
        )
        answers: Actions = {
            "CreateModel": self._create_model,
            "DescribeModel": lambda request: records.model(request["ModelName"]),
            "ListModels": lambda request: list_page(
                request, "Models", "Model", map(_model_summary, records.models.values())
            ),
            "DeleteModel": self._delete_model,
            "CreateEndpointConfig": self._create_endpoint_config,
            "DescribeEndpointConfig": lambda request: records.config(request["EndpointConfigName"]),
            "ListEndpointConfigs": lambda request: list_page(
                request,
                "EndpointConfigs",
                "EndpointConfig",
                map(_config_summary, records.configs.values()),
            ),
            "DeleteEndpointConfig": self._delete_endpoint_config,
            "CreateEndpoint": self._create_endpoint,
            "DescribeEndpoint": lambda request: description(
                endpoints.endpoint_named(request["EndpointName"]), records.models.get
            ),
            "ListEndpoints": lambda request: list_page(
                request, "Endpoints", "Endpoint", map(summary, endpoints.endpoints.values())
            ),
            "UpdateEndpoint": self._update_endpoint,
            "UpdateEndpointWeightsAndCapacities": self._update_weights_and_capacities,
            "DeleteEndpoint": self._delete_endpoint,
            **self.tags.actions,
        }
        self.actions: Actions = {
            name: _with_check(name, action) for name, action in answers.items()
        }

    def add(self, answers: Actions) -> None:
        """Answers further actions."""
        self.actions = {
            **self.actions,
            **{name: _with_check(name, action) for name, action in answers.items()},
        }

    def answer(self, target: str, body: bytes) -> Reply:
        """Answers one request of the JSON 1.1 protocol."""
        return dispatch("SageMaker", self.actions, target, body)

    def _create_model(self, request: Request) -> Request:
        """Records a model whose data is really there."""
        name = request["ModelName"]
        arn = sagemaker_arn("model", name)
        if name in self.records.models:
            raise validation_error(f'Cannot create already existing model "{arn}".')
        check_model(request)
        check_tags(request.get("Tags"))
        for definition in containers(request):
            _check_model_data(definition, str(request["ExecutionRoleArn"]))
        self.tags.begin(arn, request.get("Tags"))
        self.records.models[name] = _record(request, ModelArn=arn)
        return {"ModelArn": arn}

    def _delete_model(self, request: Request) -> Request:
        self.records.model(request["ModelName"])
        del self.records.models[request["ModelName"]]
        return {}

    def _create_endpoint_config(self, request: Request) -> Request:
        """Records an endpoint config whose models are all there."""
        name = request["EndpointConfigName"]
        arn = sagemaker_arn("endpoint-config", name)
        if name in self.records.configs:
            raise validation_error(
                f'Cannot create already existing endpoint configuration "{arn}".'
            )
        check_endpoint_config(request, self.records.model)
        check_tags(request.get("Tags"))
        beyond = types_beyond_the_key(request)
        if beyond:
            logger.warning(
                "endpoint config %s: KmsKeyId does not encrypt the local storage of %s",
                name,
                ", ".join(beyond),
            )
        self.tags.begin(arn, request.get("Tags"))
        self.records.configs[name] = _record(request, EndpointConfigArn=arn)
        return {"EndpointConfigArn": arn}

    def _delete_endpoint_config(self, request: Request) -> Request:
        """Forgets an endpoint config, even one in use, as AWS does; the log then says so."""
        name = request["EndpointConfigName"]
        self.records.config(name)
        users = self.endpoints.users(name)
        if users:
            logger.warning("endpoint config %s is deleted while %s uses it", name, ", ".join(users))
        del self.records.configs[name]
        return {}

    def _create_endpoint(self, request: Request) -> Request:
        """Begins to create an endpoint."""
        config = self.records.config(request["EndpointConfigName"])
        deployment = request.get("DeploymentConfig")
        check_deployment(
            deployment,
            {
                variant["VariantName"]: variant["InitialInstanceCount"]
                for variant in config["ProductionVariants"]
            },
        )
        check_tags(request.get("Tags"))
        arn = self.endpoints.create(
            request["EndpointName"], request["EndpointConfigName"], deployment
        ).arn
        self.tags.begin(arn, request.get("Tags"))
        return {"EndpointArn": arn}

    def _update_endpoint(self, request: Request) -> Request:
        """Begins to put another endpoint config behind an endpoint.

        The one that it has must still be there.
        """
        endpoint = self.endpoints.endpoint_named(request["EndpointName"])
        requested = update_request(request, endpoint)
        self.records.config(endpoint.config_name)
        config = self.records.config(requested.config_name)
        traffic = endpoint.traffic
        if traffic is not None and not endpoint.is_in_progress:
            check_update(requested, traffic.fleet, config, self._scaled_variants(endpoint.name))
        return {"EndpointArn": self.endpoints.update(requested).arn}

    def _update_weights_and_capacities(self, request: Request) -> Request:
        """Begins to change weights and instance counts."""
        wanted = wanted_changes(request["DesiredWeightsAndCapacities"])
        return {"EndpointArn": self.endpoints.change(request["EndpointName"], wanted).arn}

    def _delete_endpoint(self, request: Request) -> Request:
        """Begins to delete an endpoint."""
        self.endpoints.delete(request["EndpointName"])
        return {}


def _with_check(name: str, action: Callable[[Request], Request]) -> Callable[[Request], Request]:
    """An action that first holds its request against the API model."""
    return lambda request: action(checked_request(name, request))


def _check_model_data(definition: Request, role: str) -> None:
    url = definition.get("ModelDataUrl")
    if (
        url is None
        or definition.get("Mode") == "MultiModel"
        or read_object(*s3_location(url)) is not None
    ):
        return
    raise validation_error(
        f'Could not access model data at {url}. Please ensure that the role "{role}" exists and '
        "that its trust relationship "
        'policy allows the action "sts:AssumeRole" for the service principal '
        '"sagemaker.amazonaws.com". Also ensure that the '
        'role has "s3:GetObject" permissions and that the object is located in the endpoint\'s '
        "region."
    )


def _record(request: Request, **given: str) -> Request:
    """What is kept of a request that made a model or an endpoint config; tags are kept apart."""
    kept = {name: value for name, value in request.items() if name != "Tags"}
    return {
        **kept,
        "EnableNetworkIsolation": kept.get("EnableNetworkIsolation") or False,
        **given,
        "CreationTime": time.time(),
    }


def _model_summary(record: Request) -> Request:
    return {name: record[name] for name in ("ModelName", "ModelArn", "CreationTime")}


def _config_summary(record: Request) -> Request:
    return {
        name: record[name] for name in ("EndpointConfigName", "EndpointConfigArn", "CreationTime")
    }
