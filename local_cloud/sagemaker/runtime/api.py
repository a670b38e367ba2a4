"""SageMaker Runtime: InvokeEndpoint and InvokeEndpointAsync."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

from local_cloud.containers.container import NotListening
from local_cloud.ministack.account import account_id
from local_cloud.protocol.constraints import RUNTIME, checked_request, header_fields
from local_cloud.protocol.errors import AwsError, Reply, error_reply
from local_cloud.sagemaker.hosting.endpoint import Endpoint
from local_cloud.sagemaker.hosting.endpoints import Endpoints
from local_cloud.sagemaker.hosting.fleet import NoInstance
from local_cloud.sagemaker.hosting.instance import Instance
from local_cloud.sagemaker.runtime.asynchronous import Asynchronous
from local_cloud.sagemaker.runtime.capture import Captures
from local_cloud.sagemaker.runtime.invocation import TARGET_VARIANT, Invocation, refusal
from local_cloud.sagemaker.runtime.shadow import Shadows

PATH = re.compile(r"/endpoints/(?P<name>[^/]+)/(?P<kind>invocations|async-invocations)")
BODY_BYTES = 6_291_456
OPERATIONS = {"invocations": "InvokeEndpoint", "async-invocations": "InvokeEndpointAsync"}
NOT_HERE = {
    "InferenceComponentName": "an endpoint whose models are inference components",
    "TargetContainerHostname": "a model of several containers that are invoked directly",
}
"""Fields that only what the local cloud does not run can answer."""


class Runtime:
    """Answers invocations of all endpoints, from any number of threads."""

    def __init__(self, endpoints: Endpoints) -> None:
        self.endpoints = endpoints
        self._shadows = Shadows()
        self._captures = Captures(endpoints.settings)
        self._asynchronous = Asynchronous(endpoints.settings, self._invoke)

    def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Answers one invocation, refusing what SageMaker Runtime refuses."""
        begun = time.monotonic()
        try:
            match = PATH.fullmatch(path)
            if match is None:
                raise refusal(
                    "The local cloud answers /endpoints/<name>/invocations and "
                    f"async-invocations, not {path}."
                )
            _check_fields(OPERATIONS[match["kind"]], match["name"], headers)
            endpoint = self.endpoints.endpoints.get(match["name"])
            if endpoint is None:
                raise refusal(f"Endpoint {match['name']} of account {account_id()} not found.")
            if match["kind"] == "async-invocations":
                return self._asynchronous.accept(endpoint, headers, body)
            if endpoint.is_asynchronous:
                raise refusal(
                    f"Endpoint {endpoint.name} of account {account_id()} is asynchronous: use "
                    "InvokeEndpointAsync."
                )
            if len(body) > BODY_BYTES:
                raise refusal(
                    f"Request body of {len(body)} bytes exceeds the {BODY_BYTES} bytes that "
                    "InvokeEndpoint takes."
                )
            invocation = Invocation(endpoint=endpoint.name, headers=headers, body=body, begun=begun)
            return self._invoke(endpoint, invocation)
        except AwsError as error:
            return error_reply(error)

    def _invoke(self, endpoint: Endpoint, invocation: Invocation) -> Reply:
        """Try instances until one takes the request; one without a listening server only once."""
        avoided: dict[Instance, NotListening] = {}
        variant = invocation.headers.get(TARGET_VARIANT)
        while (traffic := endpoint.traffic) is not None:
            if variant is not None and not traffic.knows(variant):
                raise refusal(f"Could not find variant {variant} in endpoint {endpoint.name}.")
            try:
                with traffic.serving(variant, avoided) as served:
                    try:
                        reply = invocation.send(served.instance)
                    except NotListening as error:
                        avoided[served.instance] = error
                        continue
            except NoInstance:
                if traffic is not endpoint.traffic:
                    continue
                return _reply_without_instance(endpoint, invocation, avoided)
            self._shadows.copy(served, invocation)
            self._captures.record(served, invocation, reply)
            return reply
        raise refusal(
            f"Endpoint {endpoint.name} of account {account_id()} is {endpoint.status}, not "
            "InService."
        )


def _check_fields(operation: str, endpoint_name: str, headers: Mapping[str, str]) -> None:
    """Refuse fields outside the API model, and those that no local endpoint supports."""
    names = header_fields(operation)
    fields = {field: headers[name] for field, name in names.items() if name in headers}
    try:
        checked_request(operation, {"EndpointName": endpoint_name, "Body": b"", **fields}, RUNTIME)
    except AwsError as error:
        raise refusal(error.message) from error
    for field, needed in NOT_HERE.items():
        if field in fields:
            raise refusal(
                f"{field} {fields[field]} needs {needed}, and endpoint {endpoint_name} has none."
            )


def _reply_without_instance(
    endpoint: Endpoint, invocation: Invocation, avoided: dict[Instance, NotListening]
) -> Reply:
    """The last instance's fault, where there was any."""
    if avoided:
        instance, error = avoided.popitem()
        return invocation.unreachable(instance, error, time.monotonic())
    message = (
        f"Endpoint {endpoint.name} of account {account_id()} has no healthy instance to "
        "answer with."
    )
    raise AwsError("ServiceUnavailable", message, 503)
