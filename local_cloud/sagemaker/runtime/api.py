"""SageMaker Runtime: InvokeEndpoint, InvokeEndpointAsync and InvokeEndpointWithResponseStream."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import ExitStack

from local_cloud.containers.container import NotListening
from local_cloud.ministack.account import account_id
from local_cloud.protocol.constraints import RUNTIME, checked_request, header_fields
from local_cloud.protocol.errors import AwsError, Reply, error_reply
from local_cloud.sagemaker.components.components import Components
from local_cloud.sagemaker.hosting.endpoint import Endpoint
from local_cloud.sagemaker.hosting.fleet import NoInstance
from local_cloud.sagemaker.hosting.instance import Instance
from local_cloud.sagemaker.runtime.asynchronous import Asynchronous
from local_cloud.sagemaker.runtime.capture import Captures
from local_cloud.sagemaker.runtime.component_invocation import invoke_component
from local_cloud.sagemaker.runtime.invocation import TARGET_VARIANT, Invocation, refusal
from local_cloud.sagemaker.runtime.shadow import Shadows
from local_cloud.sagemaker.runtime.streaming import StreamedInvocation
from local_cloud.sagemaker.runtime.streams import StreamedReply

ASYNCHRONOUS, STREAMED = "async-invocations", "invocations-response-stream"
OPERATIONS = {
    "invocations": "InvokeEndpoint",
    ASYNCHRONOUS: "InvokeEndpointAsync",
    STREAMED: "InvokeEndpointWithResponseStream",
}
PATH = re.compile(rf"/endpoints/(?P<name>[^/]+)/(?P<kind>{'|'.join(OPERATIONS)})")
COMPONENT = "x-amzn-sagemaker-inference-component"
BODY_BYTES = 6_291_456
NOT_HERE = {
    "TargetContainerHostname": "a model of several containers that are invoked directly",
}
"""Fields that only what the local cloud does not run can answer."""


class Runtime:
    """Answers invocations of all endpoints, from any number of threads."""

    def __init__(self, components: Components) -> None:
        self.components, self.endpoints = components, components.endpoints
        self._shadows = Shadows()
        self._captures = Captures(self.endpoints.settings)
        self._asynchronous = Asynchronous(self.endpoints.settings, self._invoke_whole)

    def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> Reply | StreamedReply:
        """Answer one invocation, refusing what SageMaker Runtime refuses."""
        begun = time.monotonic()
        try:
            match = PATH.fullmatch(path)
            if match is None:
                raise refusal(
                    "The local cloud answers /endpoints/<name>/invocations, async-invocations and "
                    f"invocations-response-stream, not {path}."
                )
            _check_fields(OPERATIONS[match["kind"]], match["name"], headers)
            endpoint = self._endpoint(match["name"])
            if match["kind"] == ASYNCHRONOUS:
                return self._asynchronous.accept(endpoint, headers, body)
            _check_body(body)
            kind = StreamedInvocation if match["kind"] == STREAMED else Invocation
            invocation = kind(endpoint=endpoint.name, headers=headers, body=body, begun=begun)
            return self.invoke(endpoint, invocation, headers.get(COMPONENT))
        except AwsError as error:
            return error_reply(error)

    def answer_openai(
        self, name: str, component: str | None, headers: Mapping[str, str], body: bytes
    ) -> Reply | StreamedReply:
        """Answer a request of the OpenAI path with the container's own answer. Raises AwsError.

        Which of a container's routes AWS calls is not published; here it is /invocations.
        """
        endpoint = self._endpoint(name)
        _check_body(body)
        invocation = StreamedInvocation(
            endpoint=name, headers=headers, body=body, begun=time.monotonic(), is_plain=True
        )
        return self.invoke(endpoint, invocation, component)

    def _endpoint(self, name: str) -> Endpoint:
        endpoint = self.endpoints.endpoints.get(name)
        if endpoint is None:
            raise refusal(f"Endpoint {name} of account {account_id()} not found.")
        return endpoint

    def invoke(
        self, endpoint: Endpoint, invocation: Invocation, component: str | None
    ) -> Reply | StreamedReply:
        """Invoke an endpoint's model, or one of its inference components."""
        if endpoint.is_asynchronous:
            raise refusal(
                f"Endpoint {endpoint.name} of account {account_id()} is asynchronous: use "
                "InvokeEndpointAsync."
            )
        traffic = endpoint.traffic
        hosts_components = traffic is not None and traffic.fleet.hosts_components
        if component is not None and traffic is not None and not hosts_components:
            raise refusal(
                f"InferenceComponentName {component} needs an endpoint whose models are inference "
                f"components, and endpoint {endpoint.name} has none."
            )
        if hosts_components:
            return invoke_component(self.components, endpoint, invocation, component)
        return self._invoke(endpoint, invocation)

    def _invoke_whole(self, endpoint: Endpoint, invocation: Invocation) -> Reply:
        reply = self._invoke(endpoint, invocation)
        assert not isinstance(reply, StreamedReply)
        return reply

    def _invoke(self, endpoint: Endpoint, invocation: Invocation) -> Reply | StreamedReply:
        """Try instances until one takes the request; one without a listening server only once."""
        avoided: dict[Instance, NotListening] = {}
        variant = invocation.headers.get(TARGET_VARIANT)
        while (traffic := endpoint.traffic) is not None:
            if variant is not None and not traffic.knows(variant):
                raise refusal(f"Could not find variant {variant} in endpoint {endpoint.name}.")
            with ExitStack() as stack:
                try:
                    served = stack.enter_context(traffic.serving(variant, avoided))
                except NoInstance:
                    if traffic is not endpoint.traffic:
                        continue
                    return _reply_without_instance(endpoint, invocation, avoided)
                try:
                    reply = invocation.send(served.instance)
                except NotListening as error:
                    avoided[served.instance] = error
                    continue
                if isinstance(reply, StreamedReply):
                    reply.held = stack.pop_all()
                    return reply
            self._shadows.copy(served, invocation)
            self._captures.record(served, invocation, reply)
            return reply
        raise refusal(
            f"Endpoint {endpoint.name} of account {account_id()} is {endpoint.status}, not "
            "InService."
        )


def _check_body(body: bytes) -> None:
    if len(body) > BODY_BYTES:
        raise refusal(
            f"Request body of {len(body)} bytes exceeds the {BODY_BYTES} bytes that "
            "InvokeEndpoint takes."
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
