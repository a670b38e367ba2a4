"""Rules of names, which SageMaker accepts and nothing else has, and of models that join another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from onboarding.aws_limits import NAME_LENGTH
from onboarding.environment_spec import EnvironmentSpec
from onboarding.environment_view import (
    EnvironmentView,
    SpecFiles,
    is_part_of_a_shared_endpoint,
    models_left_out,
    shared_endpoint_name,
)
from onboarding.fault import Fault, comma_list
from onboarding.model_spec import EndpointSpec, JoinSpec, ModelSpec
from onboarding.platform import instance_types
from onboarding.rules.endpoint_rules import unknown_instance_type
from onboarding.serving_spec import server_beside
from onboarding.validation import Checked

Files = Mapping[str, Checked[Any]]


def file_names(files: Files) -> Iterator[Fault]:
    """A file is called what it holds, and no two hold the same name in any case."""
    first_files: dict[str, str] = {}
    for stem, file in sorted(files.items(), key=lambda item: (item[1].spec.name != item[0], item)):
        name = file.spec.name
        if name.lower() in first_files:
            yield file.at("name").fault(
                f"duplicate name: {first_files[name.lower()]} has it too",
                value=name,
                way_out="name each file's content after the file",
            )
        elif name != stem:
            yield file.fault(
                "name",
                "is not the file's name",
                allowed=stem,
                way_out=f"write `name: {stem}`, or rename the file",
            )
        first_files.setdefault(name.lower(), file.document.file)


def name_lengths(files: Files, environment: str) -> Iterator[Fault]:
    """`<environment>-<name>` is at most 63 characters."""
    longest = NAME_LENGTH - len(environment) - 1
    for file in files.values():
        if len(file.spec.name) > longest:
            yield file.fault(
                "name",
                f"is {len(file.spec.name)} characters long",
                allowed=f"at most {longest}, since SageMaker's {NAME_LENGTH} include the "
                f"prefix '{environment}-'",
                way_out="shorten it",
            )


def overrides_are_of_something(
    files: SpecFiles, environment: Checked[EnvironmentSpec]
) -> Iterator[Fault]:
    """An override names a file that is there, and never renames it."""
    known: dict[Literal["models", "endpoints"], Files] = {
        "models": files.every_model,
        "endpoints": files.endpoints,
    }
    left_out = models_left_out(files, environment)
    for section, names in known.items():
        for name, override in environment.spec.overrides(section).items():
            if f"{section}/{name}" in files.unread:
                continue
            if name not in names:
                yield environment.at((section, name)).unknown(
                    f"overrides '{name}', which is not in {section}/",
                    name,
                    names,
                    "remove the override, or add the file",
                )
            elif "name" in override:
                yield environment.at((section, name, "name")).fault(
                    "an override cannot rename", way_out="remove the key"
                )
            elif section == "models" and name in left_out:
                yield environment.at((section, name)).fault(
                    f"overrides '{name}', which `models` leaves out of this environment",
                    value=name,
                    way_out="remove the override, or deploy the model",
                )
            elif is_part_of_a_shared_endpoint(names[name].document.data, override):
                shared = names[name].document.data["endpoint"]
                yield environment.at((section, name, "endpoint")).fault(
                    f"overrides keys of 'endpoint' of {name}, whose endpoint is the shared "
                    f"'{shared}'",
                    value=comma_list(override["endpoint"]),
                    allowed=f"keys of `endpoints: {{{shared}: …}}`, or a whole endpoint with "
                    "instance_type",
                    way_out=f"move them to `endpoints: {{{shared}: …}}` of this file, where they "
                    "hold for every model of that endpoint",
                )


def selected_models_are_there(
    files: SpecFiles, environment: Checked[EnvironmentSpec]
) -> Iterator[Fault]:
    """`only` or `except`, not both; each names a model or a label that a model has."""
    spec = environment.spec.models
    if spec.only is not None and spec.except_ is not None:
        yield environment.at("models.except").fault(
            "'models.only' and 'models.except' are both given",
            allowed="one of the two",
            way_out="remove one of them",
        )
    labels = {
        f"{label}={value}"
        for model in files.every_model.values()
        for label, value in model.spec.labels.items()
    }
    for key, selectors in (("only", spec.only or ()), ("except", spec.except_ or ())):
        for index, selector in enumerate(selectors):
            known = tuple(sorted(labels)) if "=" in selector else tuple(files.every_model)
            if selector not in known and f"models/{selector}" not in files.unread:
                yield environment.at(f"models.{key}[{index}]").unknown(
                    f"'models.{key}' names no model and no label of one",
                    selector,
                    known,
                    "remove it, or write it into a model",
                )


def shared_endpoints_are_there(view: EnvironmentView) -> Iterator[Fault]:
    """A model shares an endpoint that has a file, on that endpoint's server."""
    for model in view.models.values():
        name = shared_endpoint_name(model)
        if name is None or f"endpoints/{name}" in view.unread:
            continue
        endpoint = view.endpoints.get(name)
        if endpoint is None:
            yield model.at("endpoint").unknown(
                "unknown shared endpoint",
                name,
                view.endpoints,
                f"add endpoints/{name}.yaml, or describe an endpoint of the model's own",
            )
            continue
        serving, server = model.spec.serving, endpoint.spec.server
        if "server" in serving.model_fields_set and serving.server != server:
            yield model.fault(
                "serving.server",
                f"is not the server of the shared endpoint {name}",
                allowed=server,
                way_out="leave it out: the endpoint decides",
            )


def endpoints_do_not_collide(view: EnvironmentView) -> Iterator[Fault]:
    """A model's own endpoint is called like the model, so no shared endpoint may be."""
    shared = {name.lower(): name for name in view.endpoints}
    for name, model in view.every_model.items():
        if name.lower() in shared and (name in view.own_endpoints or name in view.generators):
            yield model.at("name").fault(
                f"duplicate name: endpoints/{shared[name.lower()]}.yaml is called the same as "
                "the model's own endpoint",
                value=name,
                way_out="rename one of the two",
            )


def joined_model_has_an_endpoint(
    view: EnvironmentView, model: Checked[ModelSpec], join: JoinSpec
) -> Iterator[Fault]:
    """Another model of that name, neither behind a multi-model endpoint nor beside a third one."""
    name, wanted, place = model.spec.name, join.joins, model.at("endpoint.joins")
    other = view.models.get(wanted)
    own, known = "a model with an endpoint of its own", [key for key in view.models if key != name]
    begin = f"'endpoint.joins' names {wanted}, which"
    if wanted == name:
        yield place.fault(
            "'endpoint.joins' names the model itself",
            value=name,
            allowed="another model, with an endpoint of its own",
            way_out="name that model, or describe an endpoint of the model's own",
        )
    elif other is not None:
        endpoint = other.spec.endpoint
        if endpoint is None or isinstance(endpoint, EndpointSpec):
            return
        does, way_out = (
            (f"joins {endpoint.joins} itself", f"join {endpoint.joins}")
            if isinstance(endpoint, JoinSpec)
            else (
                f"shares the endpoint {endpoint}",
                f"write `endpoint: {endpoint}` to share it too",
            )
        )
        yield model.at("endpoint.joins", "endpoint").fault(
            f"{begin} {does}",
            value=wanted,
            allowed=own,
            way_out=f"{way_out}, or give {wanted} an endpoint of its own",
        )
    elif wanted in view.left_out:
        yield place.fault(
            f"{begin} the environment does not deploy",
            value=wanted,
            allowed=comma_list(known),
            way_out=f"deploy {wanted} too, or leave {name} out (`models: only` or `except` of the "
            "environment file)",
        )
    elif wanted in view.endpoints:
        yield place.fault(
            f"'endpoint.joins' names endpoints/{wanted}.yaml, which is no model",
            value=wanted,
            allowed=own,
            way_out=f"write `endpoint: {wanted}` to share that endpoint",
        )
    elif f"models/{wanted}" not in view.unread:
        yield place.unknown(
            "'endpoint.joins' names no model",
            wanted,
            known,
            f"add models/{wanted}.yaml, or describe an endpoint of the model's own",
        )


def joined_model_has_the_same_task(
    view: EnvironmentView, model: Checked[ModelSpec], join: JoinSpec
) -> Iterator[Fault]:
    """A client does not know which variant answers."""
    other = view.models.get(join.joins)
    if other is not None and other.spec.task != model.spec.task:
        yield model.fault(
            "task",
            f"is {model.spec.task}, and {join.joins}, which the model joins, has {other.spec.task}",
            allowed=other.spec.task,
            way_out="join a model of the same task, or describe an endpoint of the model's own",
            beside=["endpoint.joins"],
        )


def joined_model_has_the_same_server(
    view: EnvironmentView, model: Checked[ModelSpec], join: JoinSpec
) -> Iterator[Fault]:
    """The endpoint's server serves every variant but a baseline, and keeps answers where it can.

    A server that the file leaves out is the right one.
    """
    other, serving = view.models.get(join.joins), model.spec.serving
    if other is None:
        return
    server, names_server = other.spec.serving.server, "server" in serving.model_fields_set
    if names_server and not serving.is_baseline and serving.server != server:
        yield model.fault(
            "serving.server",
            f"is not the server of {join.joins}, which the model joins",
            allowed=server,
            way_out="leave it out: the endpoint decides",
            beside=["endpoint.joins"],
        )
    if serving.response_cache and not names_server and server_beside(serving, server) == "python":
        yield model.fault(
            "serving.response_cache",
            f"is Triton's, and the server of {join.joins}, which the model joins, is python",
            value="response_cache: true",
            allowed="response_cache: false",
            way_out="take it out, or describe an endpoint of the model's own on Triton",
        )


def joined_instance_type_is_known(
    view: EnvironmentView, model: Checked[ModelSpec], join: JoinSpec
) -> Iterator[Fault]:
    """A type that has a row, so that its GPU is known."""
    if join.instance_type is not None and join.instance_type not in instance_types():
        yield unknown_instance_type(model.at("endpoint.instance_type"), join.instance_type)


ENVIRONMENT_RULES = (overrides_are_of_something, selected_models_are_there)
JOIN_RULES = (
    joined_model_has_an_endpoint,
    joined_model_has_the_same_task,
    joined_model_has_the_same_server,
    joined_instance_type_is_known,
)
