"""SageMaker Runtime.

InvokeEndpoint and InvokeEndpointAsync, passed on to the endpoint's own instances.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

from local_cloud.containers.container import NotListening
from local_cloud.ministack.account import account_id
from local_cloud.protocol.constraints import RUNTIME, api_model, checked_request
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
        self._asynchronous = Asynchronous(endpoints.settings, self._ask_instances)

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
            check_fields(OPERATIONS[match["kind"]], match["name"], headers)
            endpoint = self._endpoint(match["name"])
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
            return self._ask_instances(
                endpoint,
                Invocation(endpoint=endpoint.name, headers=headers, body=body, begun=begun),
            )
        except AwsError as error:
            return error_reply(error)

    def _endpoint(self, name: str) -> Endpoint:
        endpoint: Endpoint | None = self.endpoints.endpoints.get(name)
        if endpoint is None:
            raise refusal(f"Endpoint {name} of account {account_id()} not found.")
        return endpoint

    def _ask_instances(self, endpoint: Endpoint, invocation: Invocation) -> Reply:
        """Asks instances until one takes the request.

        One that takes no connection is not asked again.
        """
        avoided: dict[Instance, NotListening] = {}
        while (traffic := endpoint.traffic) is not None:
            wanted = invocation.headers.get(TARGET_VARIANT)
            if wanted is not None and not traffic.knows(wanted):
                raise refusal(f"Could not find variant {wanted} in endpoint {endpoint.name}.")
            try:
                with traffic.serving(wanted, avoided) as served:
                    try:
                        reply = invocation.ask(served.instance)
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


def check_fields(operation: str, endpoint_name: str, headers: Mapping[str, str]) -> None:
    """Refuses fields outside the API model, and those that this endpoint cannot answer.

    Header names are in lower case.
    """
    sent = api_model(RUNTIME).headers[operation]
    fields = {field: headers[name] for field, name in sent.items() if name in headers}
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
    endpoint: Endpoint, invocation: Invocation, avoided: Mapping[Instance, NotListening]
) -> Reply:
    """The reply when no instance took the request: the last one's fault, where there was any."""
    for instance, error in reversed(list(avoided.items())):
        return invocation.unreachable(instance, error, time.monotonic())
    message = (
        f"Endpoint {endpoint.name} of account {account_id()} has no healthy instance to "
        "answer with."
    )
    raise AwsError("ServiceUnavailable", message, 503)
