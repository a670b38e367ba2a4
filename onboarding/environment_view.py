"""The files as one environment sees them: with its overrides merged on before validation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeVar

from onboarding.document import Place
from onboarding.environment_spec import EnvironmentSpec
from onboarding.fault import Fault
from onboarding.model_spec import (
    EndpointSpec,
    EnsembleSpec,
    JoinSpec,
    ModelSpec,
    SharedEndpointSpec,
)
from onboarding.names import adapter_endpoint
from onboarding.serving_spec import server_beside
from onboarding.text_generation.spec import TextGenerationSpec
from onboarding.validation import Checked, validate
from onboarding.values import Server, Value

SpecT = TypeVar("SpecT", bound=Value)


@dataclass(frozen=True, kw_only=True)
class SpecFiles:
    """The valid files of models/ and endpoints/, by file name without `.yaml`."""

    models: Mapping[str, Checked[ModelSpec]]
    endpoints: Mapping[str, Checked[SharedEndpointSpec]]
    generators: Mapping[str, Checked[TextGenerationSpec]] = field(default_factory=dict)
    """Files of models/ whose task is text-generation; `models` has the others."""
    unread: frozenset[str] = frozenset()
    """Files that are there and are not valid, as `models/name`."""

    @property
    def every_model(self) -> Mapping[str, Checked[ModelSpec] | Checked[TextGenerationSpec]]:
        """Every file of models/."""
        return {**self.models, **self.generators}

    @property
    def files(self) -> tuple[Checked[Any], ...]:
        """Every file."""
        return (*self.models.values(), *self.endpoints.values(), *self.generators.values())


@dataclass(frozen=True, kw_only=True)
class EnvironmentView(SpecFiles):
    """The models and shared endpoints of one environment, with its overrides."""

    environment: Checked[EnvironmentSpec]
    left_out: frozenset[str] = frozenset()
    """Models that the environment's `models` leaves out, by `only` or `except`."""
    faults: tuple[Fault, ...] = ()
    """Of the form of files with their overrides."""

    @cached_property
    def own_endpoints(self) -> Mapping[str, Checked[EndpointSpec]]:
        """The endpoint of every model that has one of its own, by the model's name."""
        found = {name: own_endpoint(model) for name, model in self.models.items()}
        return {name: endpoint for name, endpoint in found.items() if endpoint is not None}

    @cached_property
    def joins(self) -> Mapping[str, JoinSpec]:
        """The join of every model that joins another, by name, refused ones included."""
        return {
            name: model.spec.endpoint
            for name, model in sorted(self.models.items())
            if isinstance(model.spec.endpoint, JoinSpec)
        }

    @cached_property
    def instance_types(self) -> frozenset[str]:
        """The instance types that the files name."""
        endpoints = [item.spec for item in (*self.own_endpoints.values(), *self.endpoints.values())]
        named = {endpoint.instance_type for endpoint in endpoints}
        named.update(pool.instance_type for item in endpoints for pool in item.instance_pools)
        named.update(join.instance_type for join in self.joins.values() if join.instance_type)
        for generator in self.generators.values():
            named.update(generator.spec.endpoint.instance_types)
        return frozenset(named)

    @cached_property
    def joining(self) -> Mapping[str, tuple[str, ...]]:
        """The models, by name, that join each model."""
        found: dict[str, tuple[str, ...]] = {}
        for name, join in self.joins.items():
            found[join.joins] = (*found.get(join.joins, ()), name)
        return found

    def ensembles_of(self, model: str) -> tuple[str, ...]:
        """Return the ensembles, by name, that call a model."""
        return tuple(
            name
            for name, file in self.models.items()
            if isinstance(file.spec, EnsembleSpec) and model in file.spec.models
        )


def environment_view(files: SpecFiles, environment: Checked[EnvironmentSpec]) -> EnvironmentView:
    """Return the files of one environment."""
    left_out = models_left_out(files, environment)
    kept = {name: model for name, model in files.every_model.items() if name not in left_out}
    faults: list[Fault] = []
    models, generators = split_models(
        _with_overrides(ModelSpec, kept, environment, "models", faults)
    )
    endpoints = _with_overrides(
        SharedEndpointSpec, files.endpoints, environment, "endpoints", faults
    )
    return EnvironmentView(
        environment=environment,
        models=models,
        generators=generators,
        endpoints=endpoints,
        unread=files.unread
        | {f"models/{name}" for name in kept if name not in {*models, *generators}}
        | {f"endpoints/{name}" for name in files.endpoints if name not in endpoints},
        left_out=left_out,
        faults=tuple(faults),
    )


def split_models(
    models: Mapping[str, Checked[Any]],
) -> tuple[dict[str, Checked[ModelSpec]], dict[str, Checked[TextGenerationSpec]]]:
    """Return the models that engines are built for, and the text generators."""
    generators = {
        name: model for name, model in models.items() if isinstance(model.spec, TextGenerationSpec)
    }
    return {name: model for name, model in models.items() if name not in generators}, generators


def adapter_components(
    generators: Mapping[str, Checked[TextGenerationSpec]],
) -> Iterator[tuple[str, Place]]:
    """Yield `names.adapter_endpoint` of each adapter, and where its name is written."""
    for name, file in generators.items():
        for index, item in enumerate(file.spec.serving.adapters):
            place = file.at(f"serving.adapters[{index}].name")
            yield adapter_endpoint(name, item.name), place


def models_left_out(files: SpecFiles, environment: Checked[EnvironmentSpec]) -> frozenset[str]:
    """Return the models that an environment does not deploy, by its `only` and `except`."""
    spec, models = environment.spec.models, files.every_model
    kept = set(models) if spec.only is None else selected_models(models, spec.only)
    return frozenset(set(models) - kept | selected_models(models, spec.except_ or ()))


def selected_models(models: Mapping[str, Checked[Any]], selectors: Iterable[str]) -> frozenset[str]:
    """Return the models that selectors choose: by name, or by a label written `label=value`."""
    wanted = frozenset(selectors)
    return frozenset(
        name
        for name, model in models.items()
        if name in wanted or wanted & set(map("=".join, model.spec.labels.items()))
    )


def own_endpoint(model: Checked[ModelSpec]) -> Checked[EndpointSpec] | None:
    """Return the endpoint that a model's file describes; None when it describes none of its own."""
    endpoint = model.spec.endpoint
    if not isinstance(endpoint, EndpointSpec):
        return None
    return Checked(document=model.document.part("endpoint"), spec=endpoint)


def shared_endpoint_name(model: Checked[ModelSpec]) -> str | None:
    """The shared endpoint that a model joins."""
    endpoint = model.spec.endpoint
    return endpoint if isinstance(endpoint, str) else None


def serving_server(view: EnvironmentView, name: str) -> tuple[Server, bool]:
    """Return the server that answers for a model, and whether it does so for several."""
    model = view.models[name]
    shared = view.endpoints.get(shared_endpoint_name(model) or "")
    if shared is not None:
        return shared.spec.server, True
    if name not in view.joins:
        return model.spec.serving.server, False
    first = view.models.get(view.joins[name].joins, model)
    return server_beside(model.spec.serving, first.spec.serving.server), False


def is_part_of_a_shared_endpoint(written: Mapping[str, Any], override: Mapping[str, Any]) -> bool:
    """True when an override changes keys of `endpoint` where the file names a shared endpoint."""
    endpoint = override.get("endpoint")
    if not isinstance(written.get("endpoint"), str) or not isinstance(endpoint, Mapping):
        return False
    return not {"instance_type", "joins"} & endpoint.keys()


def _with_overrides(
    spec_type: type[SpecT],
    specs: Mapping[str, Checked[Any]],
    environment: Checked[EnvironmentSpec],
    section: Literal["models", "endpoints"],
    faults: list[Fault],
) -> dict[str, Checked[SpecT]]:
    """Return the files with an environment's overrides, those that are valid; adds the faults."""
    result = dict(specs)
    for name in environment.spec.overrides(section).keys() & specs.keys():
        override = environment.document.part(section, name)
        if is_part_of_a_shared_endpoint(specs[name].document.data, override.data):
            override = override.without([("endpoint",)])
        checked, wrong = validate(spec_type, specs[name].document.with_overrides(override))
        faults += wrong
        if checked is None:
            del result[name]
        else:
            result[name] = checked
    return result
