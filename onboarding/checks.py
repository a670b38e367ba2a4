"""What rules judge of a tree: its files, and what each environment makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from onboarding.dataset import Datasets
from onboarding.environment_spec import EnvironmentSpec
from onboarding.environment_view import (
    EnvironmentView,
    SpecFiles,
    own_endpoint,
)
from onboarding.fault import Fault
from onboarding.model_spec import EnsembleSpec, JoinSpec, ModelSpec, RepositorySpec
from onboarding.promotion import PROMOTED
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
from onboarding.rules.cases import (
    engine_cases,
    faults_of,
    generation_case,
    generation_cases,
    placements,
)
from onboarding.text_generation.spec import TextGenerationSpec
from onboarding.validation import Checked

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
