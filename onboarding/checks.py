"""Applies every rule to every case that a tree holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from onboarding.cases import engine_cases, joins, placements, variants
from onboarding.dataset import Datasets, is_inside
from onboarding.environment_view import EnvironmentView, SpecFiles, own_endpoint
from onboarding.fault import Fault
from onboarding.model_spec import EndpointSpec, JoinSpec, ModelSpec
from onboarding.rules import (
    dataset_rules,
    endpoint_rules,
    environment_rules,
    join_rules,
    name_rules,
    placement_rules,
    precision_rules,
    profile_rules,
    scaling_rules,
    source_rules,
    task_rules,
    variant_rules,
    view_rules,
)
from onboarding.rules.rule import EndpointCase, EnvironmentCase, ModelCase, ScalingCase, apply_rules
from onboarding.validation import Checked

MODEL_RULES = (
    source_rules.RULES
    + profile_rules.RULES
    + precision_rules.RULES
    + dataset_rules.RULES
    + task_rules.RULES
)


def file_faults(files: SpecFiles, datasets: Datasets, root: Path) -> Iterator[Fault]:
    """What is wrong with the files as they stand, whatever the environment."""
    yield from name_rules.file_names(files.models)
    yield from name_rules.file_names(files.endpoints)
    yield from name_rules.file_names(files.environments)
    yield from name_rules.sagemaker_names(files.models)
    yield from name_rules.sagemaker_names(files.endpoints)
    yield from name_rules.environments_do_not_meet(files)
    yield from name_rules.lock_folders_are_distinct(files)
    yield from _spec_faults(files, datasets)
    for environment in files.environments.values():
        yield from environment.faults
        case = EnvironmentCase(
            spec=environment.spec,
            document=environment.document,
            is_inside_root=lambda path: is_inside(root, path),
        )
        yield from apply_rules(environment_rules.RULES, case, environment.sections)
        yield from name_rules.overrides_are_of_something(files, environment)


def override_faults(view: EnvironmentView, datasets: Datasets) -> Iterator[Fault]:
    """What is wrong with the files once an environment's overrides are on them."""
    yield from _spec_faults(view, datasets)


def environment_faults(view: EnvironmentView) -> Iterator[Fault]:
    """What is wrong only in one environment: its names, its hardware, its platform."""
    environment = view.environment.spec
    if "name" in view.environment.sections:
        yield from name_rules.name_lengths(view.models, environment.name)
        yield from name_rules.name_lengths(view.endpoints, environment.name)
    yield from name_rules.shared_endpoints_are_there(view)
    yield from name_rules.endpoints_do_not_collide(view)
    yield from view_rules.onnx_sources_are_readable(view)
    yield from view_rules.queue_delays_are_within_the_slo(view)
    for model, join in joins(view):
        yield from apply_rules(join_rules.RULES, join, model.sections)
    for endpoint, case in variants(view):
        yield from apply_rules(variant_rules.RULES, case, endpoint.sections)
    for placement in placements(view):
        yield from apply_rules(placement_rules.RULES, placement, view.environment.sections)
    for model, engine in engine_cases(view):
        yield from apply_rules(precision_rules.ENGINE_RULES, engine, model.sections)


def _spec_faults(specs: SpecFiles | EnvironmentView, datasets: Datasets) -> Iterator[Fault]:
    for model in specs.models.values():
        yield from model.faults
        yield from _model_faults(model, datasets)
    for endpoint in specs.endpoints.values():
        yield from endpoint.faults
        yield from _endpoint_faults(endpoint, multi_model=True)


def _model_faults(model: Checked[ModelSpec], datasets: Datasets) -> Iterator[Fault]:
    yield from apply_rules(
        MODEL_RULES,
        ModelCase(spec=model.spec, document=model.document, datasets=datasets),
        model.sections,
    )
    own = own_endpoint(model)
    if own is not None:
        yield from _endpoint_faults(own)
    elif (
        "endpoint" in model.sections
        and isinstance(model.spec.endpoint, JoinSpec)
        and model.spec.endpoint.scaling is not None
    ):
        document = model.document.part("endpoint")
        yield from _scaling_faults(
            ScalingCase(
                scaling=model.spec.endpoint.scaling,
                document=document,
                asynchronous=False,
                may_be_asynchronous=False,
            )
        )


def _endpoint_faults(
    endpoint: Checked[EndpointSpec], *, multi_model: bool = False
) -> Iterator[Fault]:
    case = EndpointCase(spec=endpoint.spec, document=endpoint.document, multi_model=multi_model)
    yield from apply_rules(endpoint_rules.RULES, case, endpoint.sections)
    if {"scaling", "asynchronous"} <= endpoint.sections:
        yield from _scaling_faults(
            ScalingCase(
                scaling=endpoint.spec.scaling,
                document=endpoint.document,
                asynchronous=endpoint.spec.asynchronous is not None,
                may_be_asynchronous=not multi_model,
            )
        )


def _scaling_faults(case: ScalingCase) -> Iterator[Fault]:
    yield from apply_rules(scaling_rules.RULES, case, frozenset({"scaling"}))
