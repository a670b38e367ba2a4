"""Invocations of inference components: picked by name, answered by a copy.

Source of the two refusals: SageMaker Runtime's own sentences, as its users quote them.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace

from local_cloud.containers.container import NotListening
from local_cloud.ministack.account import account_id
from local_cloud.protocol.errors import Reply
from local_cloud.sagemaker.components.component import Component, Spec
from local_cloud.sagemaker.components.components import Components
from local_cloud.sagemaker.hosting.endpoint import Endpoint
from local_cloud.sagemaker.hosting.fleet import NoInstance
from local_cloud.sagemaker.hosting.instance import Instance
from local_cloud.sagemaker.metrics.invocation_metrics import ComponentMetrics
from local_cloud.sagemaker.runtime.invocation import Invocation, refusal
from local_cloud.sagemaker.runtime.streams import StreamedReply

ANSWERING = ("InService", "Updating")


def invoke_component(
    components: Components, endpoint: Endpoint, invocation: Invocation, name: str | None
) -> Reply | StreamedReply:
    """Try copies until one takes the request; one without a listening server only once."""
    component = _component(components, endpoint, name)
    serving = components.serving_component(component)
    routing = _routing(endpoint, component)
    invocation = replace(
        invocation,
        component=serving.name,
        adapter=None if component.base is None else component.name,
    )
    avoided: dict[Instance, NotListening] = {}
    while True:
        with ExitStack() as stack:
            try:
                copy = stack.enter_context(serving.serving(routing, invocation.body, avoided))
            except NoInstance:
                if avoided:
                    instance, error = avoided.popitem()
                    return invocation.unreachable(instance, error, time.monotonic())
                ComponentMetrics(component=component.name).record_no_capacity()
                raise refusal(
                    "Inference Component has no capacity to process this request. "
                    "ApplicationAutoScaling may be in-progress (if configured) or try to increase "
                    "the capacity by invoking UpdateInferenceComponentRuntimeConfig API."
                ) from None
            try:
                reply = invocation.send(copy)
            except NotListening as error:
                avoided[copy] = error
                continue
            if isinstance(reply, StreamedReply):
                reply.held = stack.pop_all()
            return reply


def _component(components: Components, endpoint: Endpoint, name: str | None) -> Component:
    """The component of a request. Raises AwsError where it is missing, unknown or not ready."""
    if name is None:
        raise refusal(
            "Inference Component Name header is required for endpoints to which you plan to "
            "deploy inference components. Please include Inference Component Name header or "
            "consider using SageMaker models."
        )
    component = components.components.get(name)
    if component is None or component.endpoint != endpoint.name:
        raise refusal(
            f"Inference component {name} of endpoint {endpoint.name} of account {account_id()} "
            "not found."
        )
    if component.status not in ANSWERING:
        raise refusal(f"Inference component {name} is {component.status}, not InService.")
    return component


def _routing(endpoint: Endpoint, component: Component) -> Spec:
    traffic = endpoint.traffic
    variant = None if traffic is None else traffic.fleet.production.get(component.variant)
    return {} if variant is None else variant.spec.get("RoutingConfig") or {}
