"""SageMaker Runtime: InvokeEndpoint, passed on to the endpoint's own server."""

from __future__ import annotations

import contextlib
import http.client
import re
import time
from collections.abc import Mapping

from workbench.local_cloud.account import account_id
from workbench.local_cloud.archive import ArchiveError
from workbench.local_cloud.aws_error import AwsError, Reply, error_reply
from workbench.local_cloud.endpoints import Endpoint, Endpoints
from workbench.local_cloud.metrics import InvocationMetrics
from workbench.local_cloud.multi_model import LoadError, Loading, TargetModelError
from workbench.local_cloud.server_client import Response
from workbench.local_cloud.servers import ServersStopped, VariantServer

PATH = re.compile(r"/endpoints/(?P<name>[^/]+)/invocations")
BODY_BYTES = 6_291_456
MODEL_SECONDS = 60.0
TARGET_MODEL = "x-amzn-sagemaker-target-model"
TARGET_VARIANT = "x-amzn-sagemaker-target-variant"
PASSED_ON = ("content-type", "accept", "x-amzn-sagemaker-custom-attributes", "x-amzn-sagemaker-inference-id")
PASSED_BACK = ("content-type", "x-amzn-sagemaker-custom-attributes")


class Runtime:
    """Answers invocations of all endpoints, from any number of threads."""

    def __init__(self, endpoints: Endpoints) -> None:
        self.endpoints = endpoints

    def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Answers one invocation, refusing what SageMaker Runtime refuses."""
        begun = time.monotonic()
        try:
            endpoint = self._endpoint(path)
            if len(body) > BODY_BYTES:
                raise _refusal(f"Request body of {len(body)} bytes exceeds the {BODY_BYTES} bytes that InvokeEndpoint takes.")
            return self._served(endpoint, headers, body, begun)
        except AwsError as error:
            return error_reply(error)

    def _served(self, endpoint: Endpoint, headers: Mapping[str, str], body: bytes, begun: float) -> Reply:
        """Asks the endpoint's servers; those that an update has just replaced pass the request on to the new ones."""
        while endpoint.servers is not None:
            wanted = headers.get(TARGET_VARIANT)
            with contextlib.suppress(ServersStopped), endpoint.servers.serving(wanted) as server:
                if server is None:
                    raise _refusal(f"Could not find variant {wanted} in endpoint {endpoint.name}.")
                return _ask(endpoint, server, headers, body, begun)
        raise _refusal(f"Endpoint {endpoint.name} of account {account_id()} is {endpoint.status}, not InService.")

    def _endpoint(self, path: str) -> Endpoint:
        match = PATH.fullmatch(path)
        if match is None:
            raise _refusal(f"The local cloud answers /endpoints/<name>/invocations, not {path}.")
        endpoint: Endpoint | None = self.endpoints.endpoints.get(match["name"])
        if endpoint is None:
            raise _refusal(f"Endpoint {match['name']} of account {account_id()} not found.")
        return endpoint


def _ask(endpoint: Endpoint, server: VariantServer, headers: Mapping[str, str], body: bytes, begun: float) -> Reply:
    sent = {name: headers[name] for name in PASSED_ON if name in headers}
    metrics = InvocationMetrics(endpoint=endpoint.name, variant=server.name)
    asked = time.monotonic()
    try:
        response, loading = _passed_on(server, headers.get(TARGET_MODEL), sent, body)
    except LoadError as error:
        metrics.record(status=error.response.status, model_seconds=0.0, overhead_seconds=0.0)
        return _model_error(endpoint, server, error.response)
    except (OSError, http.client.HTTPException) as error:
        metrics.record(status=500, model_seconds=time.monotonic() - asked, overhead_seconds=asked - begun)
        return _model_error(endpoint, server, Response(status=0, headers={}, body=_unreachable(error).encode()))
    model_seconds = time.monotonic() - asked - loading.downloading_seconds - loading.loading_seconds
    metrics.record(status=response.status, model_seconds=model_seconds, overhead_seconds=asked - begun)
    if server.target_models is not None:
        metrics.record_loading(loading)
    if response.status >= 400:
        return _model_error(endpoint, server, response)
    returned = {name.title(): response.headers[name] for name in PASSED_BACK if name in response.headers}
    return 200, {**returned, "x-Amzn-Invoked-Production-Variant": server.name}, response.body


def _passed_on(
    server: VariantServer, target_model: str | None, headers: Mapping[str, str], body: bytes
) -> tuple[Response, Loading]:
    if server.target_models is None:
        if target_model is not None:
            raise _refusal("TargetModel is only for multi-model endpoints; this endpoint has one model.")
        return server.client.request("POST", "/invocations", body, headers, MODEL_SECONDS), Loading(cache_hit=True)
    if target_model is None:
        raise _refusal("TargetModel is required: this is a multi-model endpoint.")
    try:
        return server.target_models.invoke(target_model.removeprefix("/"), body, headers, MODEL_SECONDS)
    except (TargetModelError, ArchiveError) as error:
        raise _refusal(str(error)) from error


def _unreachable(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "Your invocation timed out while waiting for a response from container primary."
    return f"The container did not answer ({error})."


def _model_error(endpoint: Endpoint, server: VariantServer, response: Response) -> Reply:
    """Wraps a server's own error as SageMaker Runtime does."""
    said = response.body.decode(errors="replace")
    side = "client" if 400 <= response.status < 500 else "server"
    log = server.container.spec.log
    message = f'Received {side} error ({response.status}) from primary with message "{said}". See {log} for more information.'
    return error_reply(
        AwsError("ModelError", message, 424),
        OriginalStatusCode=response.status,
        OriginalMessage=said,
        LogStreamArn=f"arn:aws:logs:us-east-1:{account_id()}:log-group:/aws/sagemaker/Endpoints/{endpoint.name}",
    )


def _refusal(message: str) -> AwsError:
    return AwsError("ValidationError", message)
