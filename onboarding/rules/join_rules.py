"""Rules of models that join another's endpoint: it exists, and answers are of the same kind."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.deployment import VARIANT
from onboarding.document import Document
from onboarding.fault import Fault
from onboarding.model_spec import EndpointSpec, JoinSpec
from onboarding.nearest import comma_list, did_you_mean
from onboarding.platform import instance_types
from onboarding.rules.endpoint_rules import unknown_instance_type
from onboarding.rules.rule import JoinCase, rule, rules_of
from onboarding.serving_spec import ServingSpec, server_beside
from onboarding.values import Server


@rule("endpoint")
def joined_model_is_there(case: JoinCase) -> Iterator[Fault]:
    """A model file of that name."""
    wanted, known = case.spec.joins, [name for name in case.models if name != case.name]
    if case.other is not None or f"models/{wanted}" in case.unread:
        return
    place = case.document.at("endpoint", "joins")
    if wanted in case.left_out:
        yield place.fault(
            f"'endpoint.joins' names {wanted}, which the environment does not deploy",
            value=wanted,
            allowed=comma_list(known),
            way_out=f"deploy {wanted} too, or leave {case.name} out (`models: only` or `except` "
            "of the environment file)",
        )
    elif wanted in case.shared_endpoints:
        yield place.fault(
            f"'endpoint.joins' names endpoints/{wanted}.yaml, which is no model",
            value=wanted,
            allowed="a model with an endpoint of its own",
            way_out=f"write `endpoint: {wanted}` to share that endpoint",
        )
    else:
        yield place.fault(
            "'endpoint.joins' names no model",
            value=wanted,
            allowed=comma_list(known),
            way_out=did_you_mean(
                wanted,
                known,
                f"add models/{wanted}.yaml, or describe an endpoint of the model's own",
            ),
        )


@rule("endpoint")
def joined_model_is_another(case: JoinCase) -> Iterator[Fault]:
    """A model cannot answer beside itself."""
    if case.spec.joins == case.name:
        yield case.document.at("endpoint", "joins").fault(
            "'endpoint.joins' names the model itself",
            value=case.name,
            allowed="another model, with an endpoint of its own",
            way_out="name that model, or describe an endpoint of the model's own",
        )


@rule("endpoint")
def joined_model_has_its_own_endpoint(case: JoinCase) -> Iterator[Fault]:
    """Neither a model that joins itself, nor one behind a multi-model endpoint, has variants."""
    other = case.other
    if other is None or case.spec.joins == case.name or "endpoint" not in other.sections:
        return
    endpoint = other.spec.endpoint
    if isinstance(endpoint, EndpointSpec):
        return
    does, way_out = (
        (f"joins {endpoint.joins} itself", f"join {endpoint.joins}")
        if isinstance(endpoint, JoinSpec)
        else (f"shares the endpoint {endpoint}", f"write `endpoint: {endpoint}` to share it too")
    )
    yield case.document.at_change(("endpoint", "joins"), ("endpoint",)).fault(
        f"'endpoint.joins' names {case.spec.joins}, which {does}",
        value=case.spec.joins,
        allowed="a model with an endpoint of its own",
        way_out=f"{way_out}, or give {case.spec.joins} an endpoint of its own",
    )


@rule("endpoint", "task")
def joined_model_has_the_same_task(case: JoinCase) -> Iterator[Fault]:
    """A client does not know which variant answers."""
    other = case.other
    if other is not None and "task" in other.sections and other.spec.task != case.model.task:
        yield case.document.at_change(("task",), ("endpoint", "joins")).fault(
            f"'task' is {case.model.task}, and {case.spec.joins}, which the model joins, has "
            f"{other.spec.task}",
            value=case.model.task,
            allowed=other.spec.task,
            way_out="join a model of the same task, or describe an endpoint of the model's own",
        )


@rule("endpoint", "serving")
def joined_model_has_the_same_server(case: JoinCase) -> Iterator[Fault]:
    """The endpoint's server serves every variant but a baseline.

    A server that the file leaves out is the right one.
    """
    other, serving = case.other, case.model.serving
    if other is None or "serving" not in other.sections or "server" not in serving.model_fields_set:
        return
    if serving.is_baseline:  # runtime_rules
        return
    if serving.server != other.spec.serving.server:
        yield case.document.at_change(("serving", "server"), ("endpoint", "joins")).fault(
            f"'serving.server' is not the server of {case.spec.joins}, which the model joins",
            value=serving.server,
            allowed=other.spec.serving.server,
            way_out="leave it out: the endpoint decides",
        )


@rule("endpoint", "serving")
def joined_cache_is_tritons(case: JoinCase) -> Iterator[Fault]:
    """The endpoint's server is the one that must keep answers."""
    other, serving = case.other, case.model.serving
    if (
        other is not None
        and "serving" in other.sections
        and cache_has_no_server(serving, server_beside(serving, other.spec.serving.server))
    ):
        yield cache_fault(case.document, f"the server of {case.spec.joins}, which the model joins,")


def cache_has_no_server(serving: ServingSpec, server: Server) -> bool:
    """True where another model's Python server would have to cache answers."""
    return (
        serving.response_cache and server == "python" and "server" not in serving.model_fields_set
    )


def cache_fault(document: Document, server: str) -> Fault:
    """Of a model whose answers a Python server is to keep."""
    return document.at("serving", "response_cache").fault(
        f"'serving.response_cache' is Triton's, and {server} is python",
        value="response_cache: true",
        allowed="response_cache: false",
        way_out="take it out, or describe an endpoint of the model's own on Triton",
    )


@rule("endpoint")
def joined_instance_type_is_known(case: JoinCase) -> Iterator[Fault]:
    """A type that has a row, so that its GPU is known."""
    name = case.spec.instance_type
    if name is not None and name not in instance_types():
        yield unknown_instance_type(case.document.at("endpoint", "instance_type"), name)


@rule("endpoint")
def variant_is_not_called_as_the_first(case: JoinCase) -> Iterator[Fault]:
    """Variants carry the name of the model that joins; the endpoint's own keeps its name."""
    if case.name.lower() == VARIANT.lower():
        yield case.document.at("name").fault(
            f"'name' is that of every endpoint's own variant, {VARIANT}, and the model joins one",
            value=case.name,
            way_out="rename the model and its file",
        )


RULES = rules_of(globals())
