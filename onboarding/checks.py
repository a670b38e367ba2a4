"""Applies every rule to every case that a tree holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from onboarding.cases import engine_cases, placements
from onboarding.dataset import Datasets, is_inside
from onboarding.fault import Fault
from onboarding.model_spec import EndpointSpec, ModelSpec
from onboarding.resolved import Files, Resolved, own_endpoint
from onboarding.rules import (
    dataset_rules,
    endpoint_rules,
    environment_rules,
    name_rules,
    placement_rules,
    precision_rules,
    profile_rules,
    source_rules,
    task_rules,
)
from onboarding.rules.rule import EndpointCase, EnvironmentCase, ModelCase, applied
from onboarding.validation import Checked

MODEL_RULES = source_rules.RULES + profile_rules.RULES + precision_rules.RULES + dataset_rules.RULES + task_rules.RULES


def file_faults(files: Files, datasets: Datasets, root: Path) -> Iterator[Fault]:
    """What is wrong with the files as they stand, whatever the environment."""
    yield from name_rules.file_names(files.models)
    yield from name_rules.file_names(files.endpoints)
    yield from name_rules.file_names(files.environments)
    yield from name_rules.sagemaker_names(files.models)
    yield from name_rules.sagemaker_names(files.endpoints)
    yield from _spec_faults(files, datasets)
    for environment in files.environments.values():
        yield from environment.faults
        case = EnvironmentCase(
            spec=environment.spec, document=environment.document, is_inside_root=lambda path: is_inside(root, path)
        )
        yield from applied(environment_rules.RULES, case, environment.sections)
        yield from name_rules.overrides_are_of_something(files, environment)


def override_faults(view: Resolved, datasets: Datasets) -> Iterator[Fault]:
    """What is wrong with the files once an environment's overrides are on them."""
    yield from _spec_faults(view, datasets)


def environment_faults(view: Resolved) -> Iterator[Fault]:
    """What is wrong only in one environment: its names, its hardware, its platform."""
    environment = view.environment.spec
    if "name" in view.environment.sections:
        yield from name_rules.name_lengths(view.models, environment.name)
        yield from name_rules.name_lengths(view.endpoints, environment.name)
    yield from name_rules.shared_endpoints_are_there(view)
    yield from name_rules.endpoints_do_not_collide(view)
    for placement in placements(view):
        yield from applied(placement_rules.RULES, placement, view.environment.sections)
    for model, engine in engine_cases(view):
        yield from applied(precision_rules.ENGINE_RULES, engine, model.sections)


def _spec_faults(specs: Files | Resolved, datasets: Datasets) -> Iterator[Fault]:
    for model in specs.models.values():
        yield from model.faults
        yield from _model_faults(model, datasets)
    for endpoint in specs.endpoints.values():
        yield from endpoint.faults
        yield from _endpoint_faults(endpoint)


def _model_faults(model: Checked[ModelSpec], datasets: Datasets) -> Iterator[Fault]:
    yield from applied(MODEL_RULES, ModelCase(spec=model.spec, document=model.document, datasets=datasets), model.sections)
    own = own_endpoint(model)
    if own is not None:
        yield from _endpoint_faults(own)


def _endpoint_faults(endpoint: Checked[EndpointSpec]) -> Iterator[Fault]:
    yield from applied(endpoint_rules.RULES, EndpointCase(spec=endpoint.spec, document=endpoint.document), endpoint.sections)
