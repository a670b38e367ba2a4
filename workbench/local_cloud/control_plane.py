"""SageMaker's control plane: models, endpoint configs and endpoints, with AWS's checks and error codes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping

from workbench.local_cloud.account import read_object, sagemaker_arn
from workbench.local_cloud.archive import s3_location
from workbench.local_cloud.aws_error import Reply, validation_error
from workbench.local_cloud.checks import check_model, containers
from workbench.local_cloud.config_checks import check_endpoint_config, types_beyond_the_key
from workbench.local_cloud.constraints import checked_request
from workbench.local_cloud.describe import description, summary
from workbench.local_cloud.endpoints import Endpoints
from workbench.local_cloud.json_protocol import Actions, Request, dispatched
from workbench.local_cloud.rollout import check_deployment
from workbench.local_cloud.scale import Wanted
from workbench.local_cloud.update_request import check_update, update_request

ScaledVariants = Callable[[str], Collection[str]]
logger = logging.getLogger("roundhouse.sagemaker")


class ControlPlane:
    """Answers the `SageMaker.*` actions; `scaled_variants` tells which variants of an endpoint are scalable targets."""

    def __init__(self, endpoints: Endpoints, scaled_variants: ScaledVariants) -> None:
        self.endpoints, self.records = endpoints, endpoints.records
        records = self.records
        self._scaled_variants = scaled_variants
        answers: Actions = {
            "CreateModel": self._create_model,
            "DescribeModel": lambda request: records.model(request["ModelName"]),
            "ListModels": lambda request: {"Models": _listed(records.models, "ModelName", "ModelArn", request)},
            "DeleteModel": self._delete_model,
            "CreateEndpointConfig": self._create_endpoint_config,
            "DescribeEndpointConfig": lambda request: records.config(request["EndpointConfigName"]),
            "ListEndpointConfigs": lambda request: {
                "EndpointConfigs": _listed(records.configs, "EndpointConfigName", "EndpointConfigArn", request)
            },
            "DeleteEndpointConfig": self._delete_endpoint_config,
            "CreateEndpoint": self._create_endpoint,
            "DescribeEndpoint": lambda request: description(endpoints.named(request["EndpointName"]), records.models.get),
            "ListEndpoints": self._list_endpoints,
            "UpdateEndpoint": self._update_endpoint,
            "UpdateEndpointWeightsAndCapacities": self._update_weights_and_capacities,
            "DeleteEndpoint": self._delete_endpoint,
        }
        self.actions: Actions = {name: _checked(name, action) for name, action in answers.items()}

    def add(self, answers: Actions) -> None:
        """Answers further actions."""
        self.actions = {**self.actions, **{name: _checked(name, action) for name, action in answers.items()}}

    def answer(self, target: str, body: bytes) -> Reply:
        """Answers one request of the JSON 1.1 protocol."""
        return dispatched("SageMaker", self.actions, target, body)

    def _create_model(self, request: Request) -> Request:
        """Records a model whose data is really there."""
        name = request["ModelName"]
        arn = sagemaker_arn("model", name)
        if name in self.records.models:
            raise validation_error(f'Cannot create already existing model "{arn}".')
        check_model(request)
        for definition in containers(request):
            _check_model_data(definition, str(request["ExecutionRoleArn"]))
        self.records.models[name] = {**request, "ModelArn": arn, "CreationTime": time.time()}
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
            raise validation_error(f'Cannot create already existing endpoint configuration "{arn}".')
        check_endpoint_config(request, self.records.model)
        beyond = types_beyond_the_key(request)
        if beyond:
            logger.warning("endpoint config %s: KmsKeyId does not encrypt the local storage of %s", name, ", ".join(beyond))
        self.records.configs[name] = {**request, "EndpointConfigArn": arn, "CreationTime": time.time()}
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
        check_deployment(deployment, {each["VariantName"]: each["InitialInstanceCount"] for each in config["ProductionVariants"]})
        return {"EndpointArn": self.endpoints.create(request["EndpointName"], request["EndpointConfigName"], deployment).arn}

    def _update_endpoint(self, request: Request) -> Request:
        """Begins to put another endpoint config behind an endpoint."""
        endpoint = self.endpoints.named(request["EndpointName"])
        asked = update_request(request, endpoint)
        config = self.records.config(asked.config_name)
        if endpoint.traffic is not None and not endpoint.is_in_progress:
            check_update(asked, endpoint.traffic.fleet, config, self._scaled_variants(endpoint.name))
        return {"EndpointArn": self.endpoints.update(asked).arn}

    def _update_weights_and_capacities(self, request: Request) -> Request:
        """Begins to change weights and instance counts."""
        wanted = {
            each["VariantName"]: Wanted(weight=each.get("DesiredWeight"), count=each.get("DesiredInstanceCount"))
            for each in request["DesiredWeightsAndCapacities"]
        }
        return {"EndpointArn": self.endpoints.change(request["EndpointName"], wanted).arn}

    def _delete_endpoint(self, request: Request) -> Request:
        """Begins to delete an endpoint."""
        self.endpoints.delete(request["EndpointName"])
        return {}

    def _list_endpoints(self, request: Request) -> Request:
        """Every endpoint whose name contains the asked-for part."""
        part = str(request.get("NameContains", ""))
        return {"Endpoints": [summary(each) for each in self.endpoints.endpoints.values() if part in each.name]}


def _checked(name: str, action: Callable[[Request], Request]) -> Callable[[Request], Request]:
    """An action that first holds its request against the API model."""
    return lambda request: action(checked_request(name, request))


def _check_model_data(definition: Request, role: str) -> None:
    url = definition.get("ModelDataUrl")
    if url is None or definition.get("Mode") == "MultiModel" or read_object(*s3_location(url)) is not None:
        return
    raise validation_error(
        f'Could not access model data at {url}. Please ensure that the role "{role}" exists and that its trust relationship '
        'policy allows the action "sts:AssumeRole" for the service principal "sagemaker.amazonaws.com". Also ensure that the '
        'role has "s3:GetObject" permissions and that the object is located in the endpoint\'s region.'
    )


def _listed(records: Mapping[str, Request], name: str, arn: str, request: Request) -> list[Request]:
    part = str(request.get("NameContains", ""))
    kept = [record for record in records.values() if part in record[name]]
    return [{name: record[name], arn: record[arn], "CreationTime": record["CreationTime"]} for record in kept]
