"""The files as one environment sees them: with its overrides merged on before validation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeVar

from onboarding.document import Place
from onboarding.ensemble_spec import EnsembleSpec
from onboarding.environment_spec import EnvironmentSpec
from onboarding.model_spec import EndpointSpec, JoinSpec, ModelSpec, SharedEndpointSpec
from onboarding.names import adapter_endpoint
from onboarding.serving_spec import server_beside
from onboarding.text_generation.spec import TextGenerationSpec
from onboarding.validation import Checked, validate
from onboarding.values import Server, Value

SpecT = TypeVar("SpecT", bound=Value)


@dataclass(frozen=True, kw_only=True)
class SpecFiles:
    """The spec files of an onboarding root, by file name without `.yaml`."""

    models: Mapping[str, Checked[ModelSpec]]
    endpoints: Mapping[str, Checked[SharedEndpointSpec]]
    environments: Mapping[str, Checked[EnvironmentSpec]]
    unread: frozenset[str] = frozenset()
    """Files that are there and hold no readable document, as `models/name`."""
    generators: Mapping[str, Checked[TextGenerationSpec]] = field(default_factory=dict)
    """Files of models/ whose task is text-generation; `models` has the others."""

    @property
    def every_model(self) -> Mapping[str, Checked[ModelSpec] | Checked[TextGenerationSpec]]:
        """Every file of models/."""
        return {**self.models, **self.generators}


@dataclass(frozen=True, kw_only=True)
class EnvironmentView:
    """The models and shared endpoints of one environment."""

    environment: Checked[EnvironmentSpec]
    models: Mapping[str, Checked[ModelSpec]]
    endpoints: Mapping[str, Checked[SharedEndpointSpec]]
    unread: frozenset[str] = frozenset()
    """As of the files."""
    left_out: frozenset[str] = frozenset()
    """Models that the environment's `models` leaves out, by `only` or `except`."""
    generators: Mapping[str, Checked[TextGenerationSpec]] = field(default_factory=dict)
    """As of the files."""

    @property
    def every_model(self) -> Mapping[str, Checked[ModelSpec] | Checked[TextGenerationSpec]]:
        """Every model of the environment."""
        return {**self.models, **self.generators}

    @cached_property
    def own_endpoints(self) -> Mapping[str, Checked[EndpointSpec]]:
        """The endpoint of every model that has one of its own, by the model's name."""
        found = {name: own_endpoint(model) for name, model in self.models.items()}
        return {name: endpoint for name, endpoint in found.items() if endpoint is not None}

    @cached_property
    def joins(self) -> Mapping[str, JoinSpec]:
        """The join of every model that joins another, by name, refused ones included."""
        sections = {
            name: model.spec.endpoint
            for name, model in self.models.items()
            if model.has("endpoint")
        }
        return {
            name: endpoint
            for name, endpoint in sorted(sections.items())
            if isinstance(endpoint, JoinSpec)
        }

    @cached_property
    def instance_types(self) -> frozenset[str]:
        """The instance types that the files name, of endpoints that are valid so far."""
        endpoints = (*self.own_endpoints.values(), *self.endpoints.values())
        named = {item.spec.instance_type for item in endpoints if item.has("instance_type")}
        pools = (item.spec.instance_pools for item in endpoints if item.has("instance_pools"))
        named.update(pool.instance_type for of_one in pools for pool in of_one)
        named.update(join.instance_type for join in self.joins.values() if join.instance_type)
        for generator in self.generators.values():
            if generator.has("endpoint"):
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
            if isinstance(file.spec, EnsembleSpec)
            and file.has("steps")
            and model in file.spec.models
        )


def environment_view(files: SpecFiles, environment: str) -> EnvironmentView:
    """The files of one environment."""
    own = files.environments[environment]
    left_out = models_left_out(files.every_model, own)
    models = {name: model for name, model in files.every_model.items() if name not in left_out}
    others, generators = split_models(_with_overrides(ModelSpec, models, own, "models"))
    return EnvironmentView(
        environment=own,
        models=others,
        generators=generators,
        endpoints=_with_overrides(SharedEndpointSpec, files.endpoints, own, "endpoints"),
        unread=files.unread,
        left_out=left_out,
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
        for index, item in enumerate(file.spec.serving.adapters if file.has("serving") else ()):
            place = file.at(f"serving.adapters[{index}].name")
            yield adapter_endpoint(name, item.name), place


def models_left_out(
    models: Mapping[str, Checked[Any]], environment: Checked[EnvironmentSpec]
) -> frozenset[str]:
    """Return the models that an environment does not deploy, by its `only` and `except`."""
    if not environment.has("models"):
        return frozenset()
    spec = environment.spec.models
    kept = set(models) if spec.only is None else selected_models(models, spec.only)
    return frozenset(set(models) - kept | selected_models(models, spec.except_ or ()))


def selected_models(models: Mapping[str, Checked[Any]], selectors: Iterable[str]) -> frozenset[str]:
    """Return the models that selectors choose: by name, or by a label written `label=value`."""
    wanted = frozenset(selectors)
    return frozenset(
        name
        for name, model in models.items()
        if name in wanted
        or (model.has("labels") and wanted & set(map("=".join, model.spec.labels.items())))
    )


def own_endpoint(model: Checked[ModelSpec]) -> Checked[EndpointSpec] | None:
    """Return the endpoint that a model's file describes; None when it describes none of its own."""
    written = model.document.data.get("endpoint")
    if not isinstance(written, Mapping) or "joins" in written:
        return None
    return validate(EndpointSpec, model.document.part("endpoint"))


def shared_endpoint_name(model: Checked[ModelSpec]) -> str | None:
    """The shared endpoint that a model joins."""
    is_shared = model.has("endpoint") and isinstance(model.spec.endpoint, str)
    return str(model.spec.endpoint) if is_shared else None


def serving_server(view: EnvironmentView, name: str) -> tuple[Server, bool]:
    """Return the server that answers for a model, and whether it does so for several."""
    shared = view.endpoints.get(shared_endpoint_name(view.models[name]) or "")
    if shared is not None:
        return (shared.spec.server if shared.has("server") else "triton"), True
    model = view.models[name]
    if name not in view.joins:
        return model_server(model), False
    server = model_server(view.models.get(view.joins[name].joins, model))
    is_valid = model.has("serving")
    return server_beside(model.spec.serving, server) if is_valid else server, False


def model_server(model: Checked[ModelSpec]) -> Server:
    """Return the server that a model's own file names."""
    return model.spec.serving.server if model.has("serving") else "triton"


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
) -> dict[str, Checked[SpecT]]:
    overrides: Mapping[str, object] = (
        environment.spec.overrides(section) if environment.has(section) else {}
    )
    result = dict(specs)
    for name in overrides.keys() & specs.keys():
        override = environment.document.part(section, name)
        if is_part_of_a_shared_endpoint(specs[name].document.data, override.data):
            override = override.without([("endpoint",)])
        result[name] = validate(spec_type, specs[name].document.with_overrides(override))
    return result
