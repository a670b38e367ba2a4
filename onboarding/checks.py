"""What rules judge of a tree: its files, and what each environment makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from onboarding.dataset import Datasets
from onboarding.ensemble_spec import EnsembleSpec
from onboarding.environment_spec import EnvironmentSpec
from onboarding.environment_view import (
    EnvironmentView,
    SpecFiles,
    own_endpoint,
    serving_server,
    shared_endpoint_name,
)
from onboarding.fault import Fault
from onboarding.model_spec import EndpointSpec, JoinSpec, ModelSpec
from onboarding.platform import (
    InstanceType,
    ServingPlatform,
    host_images,
    instance_types,
    serving_platforms,
)
from onboarding.promotion import PROMOTED
from onboarding.repository_spec import RepositorySpec
from onboarding.rules import (
    dataset_rules,
    endpoint_rules,
    ensemble_rules,
    environment_rules,
    generation_placement_rules,
    generation_serving_rules,
    generation_source_rules,
    name_rules,
    placement_rules,
    precision_rules,
    repository_rules,
    runtime_rules,
    source_rules,
    task_rules,
    user_code_rules,
)
from onboarding.rules.generation_case import generation_case, generation_cases
from onboarding.rules.rule import EngineCase, PlacementCase, faults_of
from onboarding.text_generation.spec import TextGenerationSpec
from onboarding.validation import Checked
from onboarding.values import Server

ENSEMBLE_RULES = (
    *task_rules.ACCURACY_RULES,
    *dataset_rules.ACCURACY_RULES,
    *user_code_rules.CODE_RULES,
)
"""Of every model of ours, ensembles among them, which have neither source nor engine."""
MODEL_RULES = (
    *ENSEMBLE_RULES,
    *source_rules.RULES,
    *task_rules.RULES,
    *precision_rules.RULES,
    *user_code_rules.RULES,
    *runtime_rules.RULES,
    *dataset_rules.RULES,
)
ENDPOINT_RULES = (*endpoint_rules.RULES, *endpoint_rules.SCALING_RULES)
ENGINE_RULES = (
    *precision_rules.ENGINE_RULES,
    *user_code_rules.ENGINE_RULES,
    *runtime_rules.ENGINE_RULES,
)
GENERATOR_RULES = (*generation_source_rules.RULES, *generation_serving_rules.RULES)
VIEW_RULES = (
    name_rules.shared_endpoints_are_there,
    name_rules.endpoints_do_not_collide,
    *placement_rules.VIEW_RULES,
    ensemble_rules.servers_play_ensembles,
)


def file_faults(
    files: SpecFiles, environments: Mapping[str, Checked[EnvironmentSpec]], datasets: Datasets
) -> Iterator[Fault]:
    """Return the faults of the files themselves, whatever the environment."""
    for named in (files.every_model, files.endpoints, environments):
        yield from name_rules.file_names(named)
    yield from faults_of(environment_rules.FILE_RULES, files, environments)
    yield from spec_faults(files.files, datasets)
    yield from ensemble_rules.endpoints_are_left_out_for_ensembles_alone(files)
    for environment in environments.values():
        yield from faults_of(environment_rules.RULES, environment, datasets.root)
        yield from faults_of(name_rules.ENVIRONMENT_RULES, files, environment)


def spec_faults(files: Iterable[Checked[Any]], datasets: Datasets) -> Iterator[Fault]:
    """Return the faults of models and endpoints, as written or with an environment's overrides."""
    for file in files:
        if isinstance(file.spec, ModelSpec):
            yield from _model_faults(file, datasets)
        elif isinstance(file.spec, TextGenerationSpec):
            yield from faults_of(GENERATOR_RULES, generation_case(file, datasets.root))
        else:
            yield from faults_of(ENDPOINT_RULES, file)


def environment_faults(view: EnvironmentView, datasets: Datasets) -> Iterator[Fault]:
    """Return the faults of one environment: its names, its hardware, its platform.

    Of text generators none in a promotion's exported files, which were checked when it was made: a
    platform row that changes afterwards refuses nothing that is served.
    """
    for files in (view.every_model, view.endpoints):
        yield from name_rules.name_lengths(files, view.environment.spec.name)
    yield from faults_of(VIEW_RULES, view)
    yield from faults_of((ensemble_rules.models_of_ensembles,), view, datasets)
    for name, join in view.joins.items():
        yield from faults_of(name_rules.JOIN_RULES, view, view.models[name], join)
    for name, endpoint in (*view.own_endpoints.items(), *view.endpoints.items()):
        joining = [other for other in view.joining.get(name, ()) if other != name]
        joined = tuple((view.joins[other], view.models[other]) for other in joining)
        yield from faults_of(endpoint_rules.VARIANT_RULES, name, endpoint, joined)
    for placement in placements(view):
        yield from faults_of(placement_rules.RULES, placement)
    for engine in engine_cases(view, datasets):
        is_repository = isinstance(engine.model.spec, RepositorySpec)
        rules = repository_rules.ENGINE_RULES if is_repository else ENGINE_RULES
        yield from faults_of(rules, engine)
    if not (datasets.root / PROMOTED).is_dir():
        for case in generation_cases(view, datasets.root):
            yield from faults_of(generation_placement_rules.RULES, case)


def _model_faults(model: Checked[ModelSpec], datasets: Datasets) -> Iterator[Fault]:
    if isinstance(model.spec, RepositorySpec):
        yield from faults_of(repository_rules.RULES, model, datasets)
    elif isinstance(model.spec, EnsembleSpec):
        yield from faults_of((*ENSEMBLE_RULES, *ensemble_rules.RULES), model, datasets)
    else:
        yield from faults_of(MODEL_RULES, model, datasets)
    own = own_endpoint(model)
    if own is not None:
        yield from faults_of(ENDPOINT_RULES, own)
    elif isinstance(model.spec.endpoint, JoinSpec):
        join = Checked(document=model.document.part("endpoint"), spec=model.spec.endpoint)
        yield from faults_of(endpoint_rules.SCALING_RULES, join)


def placements(view: EnvironmentView) -> Iterator[PlacementCase[Any]]:
    """Return every instance type of every endpoint, where type and platform are known."""
    for name, endpoint in view.own_endpoints.items():
        model = view.models[name]
        types = endpoint_types(endpoint, "endpoint.")
        yield from _placements(view, model, types, model.spec.serving.server)
    for name, join in view.joins.items():
        first = view.models.get(join.joins, view.models[name])
        yield from _placements(
            view, view.models[name], joined_type(view, name), first.spec.serving.server
        )
    for shared in view.endpoints.values():
        types, server = own_type(shared, ""), shared.spec.server
        yield from _placements(view, shared, types, server, multi_model=True)


def _placements(
    view: EnvironmentView,
    file: Checked[ModelSpec] | Checked[EndpointSpec],
    placed: tuple[Placed, ...],
    server: Server,
    *,
    multi_model: bool = False,
) -> Iterator[PlacementCase[Any]]:
    platform = _platform(view)
    for path, instance in placed if platform is not None else ():
        assert platform is not None
        yield PlacementCase(
            environment=view.environment,
            platform=platform,
            instance=instance,
            file=file,
            instance_path=path,
            server=server,
            server_path="server" if multi_model else "serving.server",
            multi_model=multi_model,
        )


def engine_cases(view: EnvironmentView, datasets: Datasets) -> Iterator[EngineCase]:
    """Return every model on every instance type that serves it or an ensemble that calls it."""
    platform, environment = _platform(view), view.environment
    if platform is None:
        return
    for name, model in view.models.items():
        if isinstance(model.spec, EnsembleSpec):
            continue
        users = (name, *view.ensembles_of(name))
        placed = tuple(place for user in users for place in serving_types(view, user))
        server, multi_model = serving_server(view, name)
        for path, instance in placed:
            yield EngineCase(
                model=model,
                datasets=datasets,
                platform=platform,
                instance=instance,
                instance_path=path,
                instances=tuple(other for _, other in placed),
                server=server,
                multi_model=multi_model,
                has_signers=bool(environment.spec.trusted_signers),
                driver=host_driver(view, platform),
                is_called=len(users) > 1,
            )


def _platform(view: EnvironmentView) -> ServingPlatform | None:
    return serving_platforms().get(view.environment.spec.platform)


Placed = tuple[str, InstanceType]
"""Where a file names an instance type that has a row."""


def serving_types(view: EnvironmentView, name: str) -> tuple[Placed, ...]:
    """Every instance type that serves a model, and where its file says so."""
    if name in view.own_endpoints:
        return endpoint_types(view.own_endpoints[name], "endpoint.")
    if name in view.joins:
        if view.joins[name].instance_type is not None:
            return joined_type(view, name)
        inherited: Checked[EndpointSpec] | None = view.own_endpoints.get(view.joins[name].joins)
    else:
        inherited = view.endpoints.get(shared_endpoint_name(view.models[name]) or "")
    return () if inherited is None else own_type(inherited, "endpoint.")


def endpoint_types(endpoint: Checked[EndpointSpec], inside: str) -> tuple[Placed, ...]:
    """The instance types of an endpoint that have a row: its own, then its pools'."""
    named = (
        _row_at(f"{inside}instance_pools[{index}].instance_type", pool.instance_type)
        for index, pool in enumerate(endpoint.spec.instance_pools)
    )
    return (*own_type(endpoint, inside), *(place for places in named for place in places))


def own_type(endpoint: Checked[EndpointSpec], inside: str) -> tuple[Placed, ...]:
    """The instance type that an endpoint names, where it has a row."""
    return _row_at(f"{inside}instance_type", endpoint.spec.instance_type)


def joined_type(view: EnvironmentView, name: str) -> tuple[Placed, ...]:
    """The instance type that a model names which joins another."""
    return _row_at("endpoint.instance_type", view.joins[name].instance_type)


def _row_at(path: str, name: str | None) -> tuple[Placed, ...]:
    row = instance_types().get(name or "")
    return () if row is None else ((path, row),)


def host_driver(view: EnvironmentView, platform: ServingPlatform) -> int | None:
    """The NVIDIA driver of the environment's host image."""
    named = view.environment.spec.inference_ami_version
    image = host_images().get((platform.inference_ami_version if named is None else named) or "")
    return None if image is None else image.driver
