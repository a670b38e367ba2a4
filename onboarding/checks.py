"""Cases of a tree (endpoints on platforms, engines on hardware, variants), and their rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from onboarding.dataset import Datasets, is_inside
from onboarding.document import KeyPath
from onboarding.ensemble_spec import EnsembleSpec
from onboarding.environment_view import (
    EnvironmentView,
    SpecFiles,
    model_server,
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
from onboarding.repository_spec import RepositorySpec
from onboarding.rules import (
    dataset_rules,
    endpoint_rules,
    ensemble_rules,
    environment_rules,
    name_rules,
    placement_rules,
    precision_rules,
    repository_rules,
    runtime_rules,
    source_rules,
    task_rules,
    user_code_rules,
)
from onboarding.rules.rule import (
    EndpointCase,
    EngineCase,
    EnvironmentCase,
    JoinCase,
    JoiningModel,
    ModelCase,
    PlacementCase,
    ScalingCase,
    VariantsCase,
    apply_rules,
    rules_of,
)
from onboarding.validation import Checked
from onboarding.values import Server

MODEL_RULES = rules_of(
    ModelCase,
    source_rules,
    task_rules,
    precision_rules,
    user_code_rules,
    runtime_rules,
    dataset_rules,
)
ENSEMBLE_RULES = rules_of(ModelCase, ensemble_rules)
REPOSITORY_RULES = rules_of(ModelCase, repository_rules)
ENDPOINT_RULES = rules_of(EndpointCase, endpoint_rules)
SCALING_RULES = rules_of(ScalingCase, endpoint_rules)
VARIANT_RULES = rules_of(VariantsCase, endpoint_rules)
JOIN_RULES = rules_of(JoinCase, name_rules)
PLACEMENT_RULES = rules_of(PlacementCase, placement_rules)
ENGINE_RULES = rules_of(EngineCase, precision_rules, user_code_rules, runtime_rules)
ENVIRONMENT_RULES = rules_of(EnvironmentCase, environment_rules, source_rules)


def file_faults(files: SpecFiles, datasets: Datasets, root: Path) -> Iterator[Fault]:
    """Return the faults of the files themselves, whatever the environment."""
    yield from name_rules.file_names(files.every_model)
    yield from name_rules.file_names(files.endpoints)
    yield from name_rules.file_names(files.environments)
    yield from name_rules.no_model_is_called_like_a_key(files)
    yield from environment_rules.environments_do_not_meet(files)
    yield from environment_rules.lock_folders_are_distinct(files)
    yield from environment_rules.promotions_have_a_source(files)
    yield from environment_rules.accounts_have_one_oidc_provider(files)
    yield from _spec_faults(files, datasets)
    yield from ensemble_rules.endpoints_are_left_out_for_ensembles_alone(files)
    for environment in files.environments.values():
        yield from environment.faults
        case = EnvironmentCase(
            spec=environment.spec,
            document=environment.document,
            is_inside_root=lambda path: is_inside(root, path),
        )
        yield from apply_rules(ENVIRONMENT_RULES, case, environment.sections)
        yield from name_rules.selected_models_are_there(files, environment)
        yield from name_rules.overrides_are_of_something(files, environment)


def override_faults(view: EnvironmentView, datasets: Datasets) -> Iterator[Fault]:
    """Return the faults of the files with an environment's overrides merged onto them."""
    yield from _spec_faults(view, datasets)


def environment_faults(view: EnvironmentView, datasets: Datasets) -> Iterator[Fault]:
    """Return the faults of one environment: its names, its hardware, its platform."""
    environment = view.environment.spec
    if "name" in view.environment.sections:
        yield from name_rules.name_lengths(view.every_model, environment.name)
        yield from name_rules.name_lengths(view.endpoints, environment.name)
    yield from name_rules.shared_endpoints_are_there(view)
    yield from name_rules.endpoints_do_not_collide(view)
    yield from name_rules.adapters_do_not_collide(view)
    yield from placement_rules.sources_in_s3_are_readable(view)
    yield from placement_rules.queue_delays_are_within_the_slo(view)
    yield from placement_rules.python_server_honours_the_serving_keys(view)
    yield from placement_rules.endpoints_with_other_images_are_there(view)
    yield from placement_rules.regions_take_no_instances(view)
    yield from ensemble_rules.servers_play_ensembles(view)
    yield from ensemble_rules.models_of_ensembles(view, datasets)
    for model, join in joins(view):
        yield from apply_rules(JOIN_RULES, join, model.sections)
    for endpoint, case in variants(view):
        yield from apply_rules(VARIANT_RULES, case, endpoint.sections)
    for placement in placements(view):
        yield from apply_rules(PLACEMENT_RULES, placement, view.environment.sections)
    for model, engine in engine_cases(view, datasets):
        rules = ENGINE_RULES
        if isinstance(model.spec, RepositorySpec):
            rules = rules_of(EngineCase, repository_rules)
        yield from apply_rules(rules, engine, model.sections)


def _spec_faults(specs: SpecFiles | EnvironmentView, datasets: Datasets) -> Iterator[Fault]:
    for model in specs.models.values():
        yield from model.faults
        yield from _model_faults(model, datasets)
    for endpoint in specs.endpoints.values():
        yield from endpoint.faults
        yield from _endpoint_faults(endpoint, multi_model=True)


def _model_faults(model: Checked[ModelSpec], datasets: Datasets) -> Iterator[Fault]:
    case = ModelCase(spec=model.spec, document=model.document, datasets=datasets)
    if isinstance(model.spec, RepositorySpec):
        yield from apply_rules(REPOSITORY_RULES, case, model.sections)
    else:
        yield from apply_rules(MODEL_RULES, case, model.sections)
    if isinstance(model.spec, EnsembleSpec):
        yield from apply_rules(ENSEMBLE_RULES, case, model.sections)
    own = own_endpoint(model)
    if own is not None:
        yield from _endpoint_faults(own)
    elif (
        "endpoint" in model.sections
        and isinstance(model.spec.endpoint, JoinSpec)
        and model.spec.endpoint.scaling is not None
    ):
        scaling = ScalingCase(
            scaling=model.spec.endpoint.scaling,
            document=model.document.part("endpoint"),
            of="a model that joins another",
        )
        yield from _scaling_faults(scaling)


def _endpoint_faults(
    endpoint: Checked[EndpointSpec], *, multi_model: bool = False
) -> Iterator[Fault]:
    case = EndpointCase(spec=endpoint.spec, document=endpoint.document, multi_model=multi_model)
    yield from apply_rules(ENDPOINT_RULES, case, endpoint.sections)
    if "scaling" in endpoint.sections:
        scaling = ScalingCase(
            scaling=endpoint.spec.scaling,
            document=endpoint.document,
            of="a multi-model endpoint" if multi_model else "an endpoint of one model",
        )
        yield from _scaling_faults(scaling)


def _scaling_faults(case: ScalingCase) -> Iterator[Fault]:
    yield from apply_rules(SCALING_RULES, case, frozenset({"scaling"}))


def placements(view: EnvironmentView) -> Iterator[PlacementCase]:
    """Return every instance type of every endpoint, where type and platform are known."""
    for name, endpoint in view.own_endpoints.items():
        yield from _placements(
            view,
            view.models[name],
            endpoint_types(endpoint, ("endpoint",)),
            model_server(view.models[name]),
        )
    for name, model in view.models.items():
        joined = view.joins[name].joins if name in view.joins else name
        yield from _placements(
            view,
            model,
            joined_type(view, name),
            model_server(view.models.get(joined, model)),
        )
    for shared in view.endpoints.values():
        server: Server = shared.spec.server if "server" in shared.sections else "triton"
        yield from _placements(view, shared, own_type(shared, ()), server, multi_model=True)


def engine_cases(
    view: EnvironmentView, datasets: Datasets
) -> Iterator[tuple[Checked[ModelSpec], EngineCase]]:
    """Return every model on every instance type that serves it or an ensemble that calls it."""
    platform = _platform(view)
    if platform is None:
        return
    for name, model in view.models.items():
        users = (name, *view.ensembles_of(name))
        placed = tuple(place for user in users for place in serving_types(view, user))
        instances = tuple(instance for _, instance in placed)
        server, multi_model = serving_server(view, name)
        for path, instance in placed:
            yield (
                model,
                EngineCase(
                    spec=model.spec,
                    document=model.document,
                    platform=platform,
                    instance=instance,
                    instance_path=path,
                    instances=instances,
                    server=server,
                    multi_model=multi_model,
                    has_signers="trusted_signers" in view.environment.sections
                    and bool(view.environment.spec.trusted_signers),
                    driver=host_driver(view, platform),
                    is_called=len(users) > 1,
                    library=datasets.shared_library,
                    root=datasets.root,
                ),
            )


def joins(view: EnvironmentView) -> Iterator[tuple[Checked[ModelSpec], JoinCase]]:
    """Every model of an environment that joins another."""
    for name, join in view.joins.items():
        model = view.models[name]
        yield (
            model,
            JoinCase(
                name=name,
                spec=join,
                model=model.spec,
                document=model.document,
                models=view.models,
                shared_endpoints=tuple(view.endpoints),
                unread=view.unread,
                left_out=view.left_out,
            ),
        )


def variants(view: EnvironmentView) -> Iterator[tuple[Checked[EndpointSpec], VariantsCase]]:
    """Every endpoint of an environment, with the models that join it."""
    for name, endpoint in view.own_endpoints.items():
        others = [other for other in view.joining.get(name, ()) if other != name]
        joined = tuple(
            JoiningModel(name=other, spec=view.joins[other], document=view.models[other].document)
            for other in others
        )
        yield (
            endpoint,
            VariantsCase(name=name, spec=endpoint.spec, document=endpoint.document, joined=joined),
        )
    for name, shared in view.endpoints.items():
        yield shared, VariantsCase(name=name, spec=shared.spec, document=shared.document, joined=())


def _placements(
    view: EnvironmentView,
    source: Checked[ModelSpec] | Checked[EndpointSpec],
    placed: tuple[Placed, ...],
    server: Server,
    *,
    multi_model: bool = False,
) -> Iterator[PlacementCase]:
    platform = _platform(view)
    if platform is None:
        return
    for path, instance in placed:
        yield PlacementCase(
            environment=view.environment.spec,
            environment_document=view.environment.document,
            platform=platform,
            instance=instance,
            document=source.document,
            instance_path=path,
            server=server,
            server_path=("server",) if multi_model else ("serving", "server"),
            multi_model=multi_model,
        )


def _platform(view: EnvironmentView) -> ServingPlatform | None:
    return (
        serving_platforms().get(view.environment.spec.platform)
        if "platform" in view.environment.sections
        else None
    )


Placed = tuple[KeyPath, InstanceType]


def serving_types(view: EnvironmentView, name: str) -> tuple[Placed, ...]:
    """Every instance type that serves a model, and where its file says so."""
    if name in view.own_endpoints:
        return endpoint_types(view.own_endpoints[name], ("endpoint",))
    if name in view.joins:
        if view.joins[name].instance_type is not None:
            return joined_type(view, name)
        inherited: Checked[EndpointSpec] | None = view.own_endpoints.get(view.joins[name].joins)
    else:
        inherited = view.endpoints.get(shared_endpoint_name(view.models[name]) or "")
    return () if inherited is None else own_type(inherited, ("endpoint",))


def endpoint_types(endpoint: Checked[EndpointSpec], inside: KeyPath) -> tuple[Placed, ...]:
    """The instance types of an endpoint that have a row: its own, then its pools'."""
    pools = endpoint.spec.instance_pools if "instance_pools" in endpoint.sections else ()
    named = (
        ((*inside, "instance_pools", index, "instance_type"), pool.instance_type)
        for index, pool in enumerate(pools)
    )
    known = ((path, instance_types()[name]) for path, name in named if name in instance_types())
    return (*own_type(endpoint, inside), *known)


def own_type(endpoint: Checked[EndpointSpec], inside: KeyPath) -> tuple[Placed, ...]:
    """The instance type that an endpoint names, where it has a row."""
    known = (
        instance_types().get(endpoint.spec.instance_type)
        if "instance_type" in endpoint.sections
        else None
    )
    return () if known is None else (((*inside, "instance_type"), known),)


def joined_type(view: EnvironmentView, name: str) -> tuple[Placed, ...]:
    """The instance type that a model names which joins another."""
    named = view.joins[name].instance_type if name in view.joins else None
    known = None if named is None else instance_types().get(named)
    return () if known is None else ((("endpoint", "instance_type"), known),)


def host_driver(view: EnvironmentView, platform: ServingPlatform) -> int | None:
    """The NVIDIA driver of the environment's host image."""
    named = None
    if "inference_ami_version" in view.environment.sections:
        named = view.environment.spec.inference_ami_version
    image = host_images().get(platform.inference_ami_version or "" if named is None else named)
    return None if image is None else image.driver
