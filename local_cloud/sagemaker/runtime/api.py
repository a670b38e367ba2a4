"""SageMaker Runtime: InvokeEndpoint, InvokeEndpointAsync and InvokeEndpointWithResponseStream.

Shadow variants get copies of requests; their answers and faults go nowhere.
Source of the refusals of inference components: its own sentences, as its users quote them.
"""

from __future__ import annotations

import contextvars
import logging
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace

from local_cloud.account import account_id
from local_cloud.containers.container import NotListening
from local_cloud.protocol.constraints import RUNTIME, checked_request, header_fields
from local_cloud.protocol.errors import AwsError, Reply, error_reply
from local_cloud.sagemaker.components.component import Component
from local_cloud.sagemaker.components.components import Components
from local_cloud.sagemaker.hosting.endpoint import Endpoint, Served
from local_cloud.sagemaker.hosting.fleet import VariantFleet
from local_cloud.sagemaker.hosting.instance import Instance, NoInstance
from local_cloud.sagemaker.metrics import component_metrics
from local_cloud.sagemaker.runtime.asynchronous import Asynchronous
from local_cloud.sagemaker.runtime.invocation import (
    TARGET_VARIANT,
    Invocation,
    StreamedReply,
    refusal,
)
from local_cloud.sagemaker.runtime.streams import StreamedInvocation

THREADS = 8
WAITING = 64
logger = logging.getLogger("roundhouse.shadow")


class Shadows:
    """Sends copies from threads of their own; when too many wait, further ones are not sent."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="shadow")
        self._waiting = threading.Semaphore(WAITING)

    def copy(self, served: Served, invocation: Invocation) -> None:
        """Sends copies to shadow variants, by their weight against the production variant's."""
        for shadow in served.fleet.shadow.values():
            share = shadow_share(shadow.weight, served.variant.weight)
            if random.random() < share and self._waiting.acquire(blocking=False):
                self._threads.submit(contextvars.copy_context().run, self._send, shadow, invocation)

    def _send(self, shadow: VariantFleet, invocation: Invocation) -> None:
        try:
            with shadow.serving() as instance:
                invocation.send(instance)
        except (NoInstance, NotListening, AwsError) as error:
            logger.debug("shadow variant %s did not answer: %s", shadow.name, error)
        finally:
            self._waiting.release()


def shadow_share(shadow_weight: float, production_weight: float) -> float:
    """Return the share of requests that a shadow variant gets a copy of, at most all."""
    if production_weight <= 0:
        return float(shadow_weight > 0)
    return min(1.0, shadow_weight / production_weight)


ASYNCHRONOUS, STREAMED = "async-invocations", "invocations-response-stream"
OPERATIONS = {
    "invocations": "InvokeEndpoint",
    ASYNCHRONOUS: "InvokeEndpointAsync",
    STREAMED: "InvokeEndpointWithResponseStream",
}
PATH = re.compile(rf"/endpoints/(?P<name>[^/]+)/(?P<kind>{'|'.join(OPERATIONS)})")
COMPONENT = "x-amzn-sagemaker-inference-component"
BODY_BYTES = 6_291_456
ANSWERING = ("InService", "Updating")
"""Statuses of inference components whose copies answer."""
Avoided = dict[Instance, NotListening]
Pick = Callable[[Avoided], AbstractContextManager[Instance]]


class Runtime:
    """Answers invocations of all endpoints, from any number of threads."""

    def __init__(self, components: Components) -> None:
        self.components, self.endpoints = components, components.endpoints
        self._shadows = Shadows()
        self._asynchronous = Asynchronous(self.endpoints.settings, self._invoke_whole)

    def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> Reply | StreamedReply:
        """Answer one invocation, refusing what SageMaker Runtime refuses."""
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
            if len(body) > BODY_BYTES:
                raise refusal(
                    f"Request body of {len(body)} bytes exceeds the {BODY_BYTES} bytes that "
                    "InvokeEndpoint takes."
                )
            kind = StreamedInvocation if match["kind"] == STREAMED else Invocation
            invocation = kind(endpoint=endpoint, headers=headers, body=body)
            return self.invoke(endpoint, invocation, headers.get(COMPONENT))
        except AwsError as error:
            return error_reply(error)

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
            return self._invoke_component(endpoint, invocation, component)
        return self._invoke(endpoint, invocation)

    def _invoke_whole(self, endpoint: Endpoint, invocation: Invocation) -> Reply:
        reply = self._invoke(endpoint, invocation)
        assert not isinstance(reply, StreamedReply)
        return reply

    def _invoke(self, endpoint: Endpoint, invocation: Invocation) -> Reply | StreamedReply:
        """Invoke an endpoint's model; shadows get what was answered whole."""
        variant, chosen = invocation.headers.get(TARGET_VARIANT), list[Served]()

        @contextmanager
        def pick(avoided: Avoided) -> Iterator[Instance]:
            while (traffic := endpoint.traffic) is not None:
                if variant is not None and not traffic.knows(variant):
                    raise refusal(f"Could not find variant {variant} in endpoint {endpoint.name}.")
                try:
                    with traffic.serving(variant, avoided) as served:
                        chosen.append(served)
                        yield served.instance
                    return
                except NoInstance:
                    if traffic is endpoint.traffic:
                        raise
            raise refusal(
                f"Endpoint {endpoint.name} of account {account_id()} is {endpoint.status}, not "
                "InService."
            )

        try:
            reply = _answer_of_one(invocation, pick)
        except NoInstance:
            message = (
                f"Endpoint {endpoint.name} of account {account_id()} has no healthy instance to "
                "answer with."
            )
            raise AwsError("ServiceUnavailable", message, 503) from None
        if chosen and not isinstance(reply, StreamedReply):
            self._shadows.copy(chosen[-1], invocation)
        return reply

    def _invoke_component(
        self, endpoint: Endpoint, invocation: Invocation, name: str | None
    ) -> Reply | StreamedReply:
        """Invoke an inference component: one of its copies, or of its base's, answers."""
        component = self._component(endpoint, name)
        serving = self.components.serving_component(component)
        traffic = endpoint.traffic
        variant = None if traffic is None else traffic.fleet.production.get(component.variant)
        routing = {} if variant is None else variant.spec.get("RoutingConfig") or {}
        copies = len(serving.copies)
        invocation = replace(invocation, component=component, copies=copies)
        try:
            return _answer_of_one(invocation, lambda avoided: serving.serving(routing, avoided))
        except NoInstance:
            component_metrics(component.name).add("NoCapacityInvocationFailures", 1)
            raise refusal(
                "Inference Component has no capacity to process this request. "
                "ApplicationAutoScaling may be in-progress (if configured) or try to increase "
                "the capacity by invoking UpdateInferenceComponentRuntimeConfig API."
            ) from None

    def _component(self, endpoint: Endpoint, name: str | None) -> Component:
        """The component of a request. Raises AwsError where it is missing or not ready."""
        if name is None:
            raise refusal(
                "Inference Component Name header is required for endpoints to which you plan to "
                "deploy inference components. Please include Inference Component Name header or "
                "consider using SageMaker models."
            )
        component = self.components.components.get(name)
        if component is None or component.endpoint != endpoint.name:
            raise refusal(
                f"Inference component {name} of endpoint {endpoint.name} of account "
                f"{account_id()} not found."
            )
        if component.status not in ANSWERING:
            raise refusal(f"Inference component {name} is {component.status}, not InService.")
        return component


def _answer_of_one(invocation: Invocation, pick: Pick) -> Reply | StreamedReply:
    """Try instances until one takes the request; one without a listening server only once.

    Raises NoInstance where there is none, and no fault of one that was tried.
    """
    avoided: Avoided = {}
    while True:
        with ExitStack() as stack:
            try:
                instance = stack.enter_context(pick(avoided))
            except NoInstance:
                if not avoided:
                    raise
                instance, error = avoided.popitem()
                return invocation.unreachable(instance, error, time.monotonic())
            try:
                reply = invocation.send(instance)
            except NotListening as error:
                avoided[instance] = error
                continue
            if isinstance(reply, StreamedReply):
                reply.held = stack.pop_all()
            return reply


def _check_fields(operation: str, endpoint_name: str, headers: Mapping[str, str]) -> None:
    """Refuse fields outside the API model."""
    names = header_fields(operation)
    fields = {field: headers[name] for field, name in names.items() if name in headers}
    try:
        checked_request(operation, {"EndpointName": endpoint_name, "Body": b"", **fields}, RUNTIME)
    except AwsError as error:
        raise refusal(error.message) from error
