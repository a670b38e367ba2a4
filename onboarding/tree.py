"""Everything a person wrote under an onboarding root, read once, with everything wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from onboarding.checks import environment_faults, file_faults, override_faults
from onboarding.dataset import Datasets
from onboarding.environment_spec import EnvironmentSpec
from onboarding.environment_view import EnvironmentView, SpecFiles, environment_view
from onboarding.fault import Fault, sorted_faults
from onboarding.folders import read_folder
from onboarding.model_spec import ModelSpec, SharedEndpointSpec
from onboarding.validation import Checked
from onboarding.values import Value

SpecT = TypeVar("SpecT", bound=Value)


@dataclass(frozen=True)
class Tree:
    """Specs by name, as their own files say; `views` holds them as each environment sees them.

    Only valid specs are listed.
    """

    root: Path
    models: dict[str, ModelSpec]
    endpoints: dict[str, SharedEndpointSpec]
    environments: dict[str, EnvironmentSpec]
    dataset_digests: dict[str, str]
    faults: tuple[Fault, ...]
    views: Mapping[str, EnvironmentView] = field(default_factory=dict)


def read_tree(root: Path) -> Tree:
    """Reads models/, endpoints/, environments/ and the datasets they name.

    Never raises on what they hold: see `faults`.
    """
    model_files = read_folder(root, "models", ModelSpec)
    endpoint_files = read_folder(root, "endpoints", SharedEndpointSpec, optional=True)
    environment_files = read_folder(root, "environments", EnvironmentSpec)
    models, endpoints = model_files.specs, endpoint_files.specs
    environments = environment_files.specs
    files = SpecFiles(
        models=models,
        endpoints=endpoints,
        environments=environments,
        unread=frozenset(model_files.unread + endpoint_files.unread),
    )
    views = {
        name: environment_view(files, name)
        for name, file in environments.items()
        if _overrides_are_readable(file)
    }
    datasets = Datasets(root)
    yaml_faults = [*model_files.faults, *endpoint_files.faults, *environment_files.faults]
    faults = [*file_faults(files, datasets, root)]
    for view in views.values():
        faults.extend(override_faults(_only_overridden(files, view), datasets))
    faults.extend(_by_environment(views))
    return Tree(
        root=root,
        models=_valid(models),
        endpoints=_valid(endpoints),
        environments=_valid(environments),
        dataset_digests=datasets.digests(),
        faults=sorted_faults([*yaml_faults, *_elsewhere(faults, yaml_faults)]),
        views=views,
    )


def _overrides_are_readable(environment: Checked[EnvironmentSpec]) -> bool:
    """Without its overrides an environment looks wrong in ways it is not."""
    return {"models", "endpoints"} <= environment.sections


def _only_overridden(files: SpecFiles, view: EnvironmentView) -> EnvironmentView:
    """Return an environment's view with only the files that it overrides."""
    models = {name: file for name, file in view.models.items() if file is not files.models[name]}
    endpoints = {
        name: file for name, file in view.endpoints.items() if file is not files.endpoints[name]
    }
    return replace(view, models=models, endpoints=endpoints)


def _by_environment(views: Mapping[str, EnvironmentView]) -> Iterator[Fault]:
    """Return each fault once, naming its environments unless all have it."""
    found: dict[Fault, list[str]] = {}
    for name, view in views.items():
        for fault in dict.fromkeys(environment_faults(view)):
            found.setdefault(fault, []).append(name)
    for fault, names in found.items():
        if fault.file.startswith("environments/") or len(names) == len(views):
            yield fault
        else:
            where = "environment" if len(names) == 1 else "environments"
            yield fault.model_copy(update={"what": f"in {where} {', '.join(names)}, {fault.what}"})


def _elsewhere(faults: Iterable[Fault], yaml_faults: Iterable[Fault]) -> Iterator[Fault]:
    """Return the faults of other lines: a value that YAML cannot read is wrong in every way."""
    lines = {(fault.file, fault.line) for fault in yaml_faults}
    return (fault for fault in faults if (fault.file, fault.line) not in lines)


def _valid(specs: Mapping[str, Checked[SpecT]]) -> dict[str, SpecT]:
    return {name: file.spec for name, file in specs.items() if file.is_valid}
