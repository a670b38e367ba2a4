"""Rules of names, which SageMaker accepts and nothing else has, and of models that join another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, TypeVar

from onboarding.aws_limits import NAME_LENGTH
from onboarding.deployment import VARIANT
from onboarding.document import Document
from onboarding.environment_spec import EnvironmentSpec
from onboarding.environment_view import (
    EnvironmentView,
    SpecFiles,
    adapter_components,
    is_part_of_a_shared_endpoint,
    models_left_out,
    shared_endpoint_name,
)
from onboarding.fault import Fault
from onboarding.model_spec import EndpointSpec, JoinSpec, ModelSpec, SharedEndpointSpec
from onboarding.nearest import comma_list
from onboarding.platform import instance_types
from onboarding.rules.endpoint_rules import unknown_instance_type
from onboarding.rules.rule import JoinCase, rule
from onboarding.serving_spec import ServingSpec, server_beside
from onboarding.validation import Checked
from onboarding.values import Server, Value

SpecT = TypeVar("SpecT", bound=Value)


def file_names(specs: Mapping[str, Checked[SpecT]]) -> Iterator[Fault]:
    """A file is called what it holds, and no two hold the same name in any case."""
    first_files: dict[str, str] = {}
    for stem, file in sorted(specs.items(), key=lambda item: (_name(item[1]) != item[0], item[0])):
        name = _name(file)
        if name is None:
            continue
        place = file.document.at("name")
        if name.lower() in first_files:
            other = first_files[name.lower()]
            yield place.fault(
                f"duplicate name: {other} has it too",
                value=name,
                way_out="name each file's content after the file",
            )
        elif name != stem:
            yield place.fault(
                "'name' is not the file's name",
                value=name,
                allowed=stem,
                way_out=f"write `name: {stem}`, or rename the file",
            )
        first_files.setdefault(name.lower(), file.document.file)


def name_lengths(specs: Mapping[str, Checked[SpecT]], environment: str) -> Iterator[Fault]:
    """`<environment>-<name>` is at most 63 characters."""
    longest = NAME_LENGTH - len(environment) - 1
    for file in specs.values():
        name = _name(file)
        if name is not None and len(name) > longest:
            yield file.document.at("name").fault(
                f"'name' is {len(name)} characters long",
                value=name,
                allowed=f"at most {longest}, since SageMaker's {NAME_LENGTH} include the "
                f"prefix '{environment}-'",
                way_out="shorten it",
            )


def overrides_are_of_something(
    files: SpecFiles, environment: Checked[EnvironmentSpec]
) -> Iterator[Fault]:
    """An override names a file that is there, and never renames it."""
    known: dict[Literal["models", "endpoints"], tuple[str, ...]] = {
        "models": tuple(files.every_model),
        "endpoints": tuple(files.endpoints),
    }
    left_out = models_left_out(files.every_model, environment)
    for section, names in known.items():
        if section not in environment.sections:
            continue
        for name, override in environment.spec.overrides(section).items():
            if f"{section}/{name}" in files.unread:
                continue
            if name not in names:
                yield environment.document.at(section, name).unknown(
                    f"overrides '{name}', which is not in {section}/",
                    name,
                    names,
                    "remove the override, or add the file",
                )
            elif "name" in override:
                yield environment.document.at(section, name, "name").fault(
                    "an override cannot rename", way_out="remove the key"
                )
            elif section == "models" and name in left_out:
                yield environment.document.at("models", name).fault(
                    f"overrides '{name}', which `models` leaves out of this environment",
                    value=name,
                    way_out="remove the override, or deploy the model",
                )
            elif section == "models":
                yield from _override_of_a_shared_endpoint(files, environment, name, override)


def selected_models_are_there(
    files: SpecFiles, environment: Checked[EnvironmentSpec]
) -> Iterator[Fault]:
    """`only` or `except`, not both; each names a model or a label that a model has."""
    if "models" not in environment.sections:
        return
    spec, document = environment.spec.models, environment.document
    if spec.only is not None and spec.except_ is not None:
        yield document.at("models", "except").fault(
            "'models.only' and 'models.except' are both given",
            allowed="one of the two",
            way_out="remove one of them",
        )
    labels = {
        f"{label}={value}"
        for model in files.every_model.values()
        if "labels" in model.sections
        for label, value in model.spec.labels.items()
    }
    for key, selectors in (("only", spec.only or ()), ("except", spec.except_ or ())):
        for index, selector in enumerate(selectors):
            known = tuple(sorted(labels)) if "=" in selector else tuple(files.every_model)
            if selector not in known and f"models/{selector}" not in files.unread:
                yield document.at("models", key, index).unknown(
                    f"'models.{key}' names no model and no label of one",
                    selector,
                    known,
                    "remove it, or write it into a model",
                )


def no_model_is_called_like_a_key(files: SpecFiles) -> Iterator[Fault]:
    """`only` and `except` are keys of an environment's `models`."""
    for name in ("only", "except"):
        if name in files.every_model:
            yield (
                files.every_model[name]
                .document.at("name")
                .fault(
                    f"'{name}' is a key of `models` in environment files, so no model can be "
                    "overridden by that name",
                    value=name,
                    way_out="rename the model and its file",
                )
            )


def _override_of_a_shared_endpoint(
    files: SpecFiles,
    environment: Checked[EnvironmentSpec],
    name: str,
    override: Mapping[str, object],
) -> Iterator[Fault]:
    written = files.every_model[name].document.data
    if is_part_of_a_shared_endpoint(written, override):
        shared = written["endpoint"]
        yield environment.document.at("models", name, "endpoint").fault(
            f"overrides keys of 'endpoint' of {name}, whose endpoint is the shared '{shared}'",
            value=comma_list(override["endpoint"]),  # type: ignore[arg-type]
            allowed=f"keys of `endpoints: {{{shared}: …}}`, or a whole endpoint with instance_type",
            way_out=f"move them to `endpoints: {{{shared}: …}}` of this file, where they hold "
            "for every "
            "model of that endpoint",
        )


def shared_endpoints_are_there(view: EnvironmentView) -> Iterator[Fault]:
    """A model joins an endpoint that has a file, on that endpoint's server."""
    for model in view.models.values():
        name = shared_endpoint_name(model)
        if name is None or f"endpoints/{name}" in view.unread:
            continue
        if name not in view.endpoints:
            yield model.document.at("endpoint").unknown(
                "unknown shared endpoint",
                name,
                view.endpoints,
                f"add endpoints/{name}.yaml, or describe an endpoint of the model's own",
            )
        else:
            yield from _server_conflict(model, view.endpoints[name], name)


def _server_conflict(
    model: Checked[ModelSpec], endpoint: Checked[SharedEndpointSpec], name: str
) -> Iterator[Fault]:
    if "serving" not in model.sections or "server" not in endpoint.sections:
        return
    serving, server = model.spec.serving, endpoint.spec.server
    if "server" in serving.model_fields_set and serving.server != server:
        yield model.document.at("serving", "server").fault(
            f"'serving.server' is not the server of the shared endpoint {name}",
            value=serving.server,
            allowed=server,
            way_out="leave it out: the endpoint decides",
        )


def endpoints_do_not_collide(view: EnvironmentView) -> Iterator[Fault]:
    """A model's own endpoint is called like the model, so no shared endpoint may be."""
    shared = {name.lower(): name for name in view.endpoints}
    for name, model in view.every_model.items():
        if name.lower() in shared and (name in view.own_endpoints or name in view.generators):
            yield model.document.at("name").fault(
                f"duplicate name: endpoints/{shared[name.lower()]}.yaml is called the same as "
                "the model's own endpoint",
                value=name,
                way_out="rename one of the two",
            )


def adapters_do_not_collide(view: EnvironmentView) -> Iterator[Fault]:
    """An adapter's component `<environment>-<model>-<adapter>` is called like nothing else."""
    models = (*view.own_endpoints, *view.generators)
    owners = {name.lower(): f"endpoints/{name}.yaml" for name in view.endpoints}
    owners |= {name.lower(): f"models/{name}.yaml" for name in models}
    prefix = view.environment.spec.name if "name" in view.environment.sections else ""
    for name, place in adapter_components(view.generators):
        owner = owners.get(name.lower())
        owners.setdefault(name.lower(), f"another adapter of {place.file}")
        if owner is not None:
            yield place.fault(
                f"duplicate name: the adapter's component is called '{name}', as {owner} is",
                value=name,
                way_out="rename the adapter, or the other",
            )
        elif prefix and len(prefix) + 1 + len(name) > NAME_LENGTH:
            yield place.fault(
                f"the adapter's component would be called '{prefix}-{name}', of "
                f"{len(prefix) + 1 + len(name)} characters",
                value=name,
                allowed=f"at most {NAME_LENGTH}",
                way_out="shorten the name of the adapter or of the model",
            )


def _name(file: Checked[SpecT]) -> str | None:
    return getattr(file.spec, "name", None) if "name" in file.sections else None


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
        yield place.unknown(
            "'endpoint.joins' names no model",
            wanted,
            known,
            f"add models/{wanted}.yaml, or describe an endpoint of the model's own",
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
