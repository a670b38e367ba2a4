"""The onboarding tree of a comparison: the environment's own, and a model file for every cell."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from onboarding.environment_view import EnvironmentView
from onboarding.fault import Fault, FaultsError
from onboarding.lock import LOCK_SUFFIX
from onboarding.model_spec import EndpointSpec, JoinSpec, ModelSpec
from onboarding.platform import instance_types
from onboarding.tree import Tree, read_tree
from roundhouse.errors import RoundhouseError, UsageError
from roundhouse.measure.compare.cells import Cell, merge
from roundhouse.paths import TREE_FOLDERS, Paths, writing
from roundhouse.text import choices

MARK = "-cmp-"
"""In the names of cells' models and endpoints, by which they are found again."""
LETTERS, MODEL_DIGITS, CELL_DIGITS = 24, 3, 7
"""Of a model's name, and of the digests of its whole name and of the cell's.

SageMaker's names are 63 letters at most.
"""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The model that is compared, as the environment has it: overrides merged on."""

    name: str
    environment: str
    region: str
    document: Mapping[str, Any]
    spec: ModelSpec
    endpoint: EndpointSpec
    """Its own, the shared one, or that of the model it joins."""
    is_gpu: bool


def subject(tree: Tree, environment: str, name: str) -> Subject:
    """Return the model of an environment. Raises UsageError."""
    view = tree.views.get(environment)
    if view is None:
        raise UsageError(
            f"--env {environment}: no such environment; {choices(environment, tree.views)}"
        )
    if name not in view.models:
        raise UsageError(
            f"{name}: no such model in environment {environment}; {choices(name, view.models)}"
        )
    checked = view.models[name]
    spec, endpoint = checked.spec, _endpoint(view, checked.spec)
    return Subject(
        name=name,
        environment=environment,
        region=tree.environments[environment].region,
        document=checked.document.data,
        spec=spec,
        endpoint=endpoint,
        is_gpu=instance_types()[endpoint.instance_type].is_gpu,
    )


def require_instance_types(subject: Subject, names: Sequence[str]) -> None:
    """Raise UsageError for an instance type that is not known, or that the region lacks."""
    types = instance_types()
    for name in names:
        if name not in types:
            raise UsageError(f"--axes instance_type={name}: no such type; {choices(name, types)}")
        if types[name].is_missing_in(subject.region):
            regions = ", ".join(types[name].regions or ())
            raise UsageError(
                f"--axes instance_type={name}: SageMaker does not host it in {subject.region}, "
                f"only in {regions}; choose another type, or add the region with its source to "
                "onboarding/data/instance_regions.yaml."
            )


def _endpoint(view: EnvironmentView, spec: ModelSpec) -> EndpointSpec:
    endpoint = spec.endpoint
    if isinstance(endpoint, str):
        return view.endpoints[endpoint].spec
    if isinstance(endpoint, JoinSpec):
        joined = _endpoint(view, view.models[endpoint.joins].spec)
        if endpoint.instance_type is None:
            return joined
        return joined.model_copy(update={"instance_type": endpoint.instance_type})
    if endpoint is None:
        raise UsageError(
            f"{spec.name}: has no endpoint, since ensembles alone call it; compare an ensemble, or "
            "give it an endpoint."
        )
    return endpoint


def cell_prefix(subject: Subject) -> str:
    """Return how the names of all cells' models of a subject begin, and no other model's do."""
    return f"{subject.name[:LETTERS].rstrip('-')}{MARK}{_digest(subject.name, MODEL_DIGITS)}"


def cell_model(subject: Subject, cell: Cell) -> str:
    """Return the name of a cell's model, which is its endpoint's too."""
    return cell_prefix(subject) + _digest(f"{subject.name} {cell.name}", CELL_DIGITS)


def is_cell_model(subject: Subject, name: str) -> bool:
    """Return True for a name that `cell_model` gives to a cell of a subject."""
    digits = name.removeprefix(cell_prefix(subject))
    return digits != name and re.fullmatch(f"[0-9a-f]{{{CELL_DIGITS}}}", digits) is not None


def _digest(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def cell_document(subject: Subject, cell: Cell, slo_ms: float) -> dict[str, Any]:
    """Return the model file of a cell: one instance, deployed at once.

    It has no labels, by which other environments might choose it.
    """
    endpoint = {
        "instance_type": subject.endpoint.instance_type,
        "latency_slo_ms": slo_ms,
        "scaling": {
            "min": 1,
            "max": 1,
            "safety_factor": subject.endpoint.scaling.safety_factor,
        },
        "rollout": "all-at-once",
        "network_isolation": subject.endpoint.network_isolation,
    }
    name = cell_model(subject, cell)
    base = {**subject.document, "name": name, "endpoint": endpoint, "labels": None}
    return _without_nothing(merge(base, cell.overrides))


def _without_nothing(document: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out keys that an override sets to None, which is their default."""
    return {
        key: _without_nothing(value) if isinstance(value, Mapping) else value
        for key, value in document.items()
        if value is not None
    }


def write_tree(
    paths: Paths, folder: Path, subject: Subject, cells: Sequence[Cell], slo_ms: float
) -> tuple[Paths, dict[str, str]]:
    """Write the tree of a comparison into a folder; return its paths and the refused cells.

    A refused cell has its faults in one text, by name, and no file. Locks of an earlier run stay.
    Raises NotReadyError, and FaultsError where the environment's own files have faults.
    """
    own = replace(paths, tree=folder)
    with writing(folder):
        for name in TREE_FOLDERS:
            _copy(paths.tree / name, folder / name)
        specs = read_tree(paths.tree).environments
        locks = specs[subject.environment].locks
        # Those among the tree's own folders are copied with these.
        if locks.split("/")[0] not in TREE_FOLDERS and not (folder / locks).exists():
            (folder / locks).mkdir(parents=True)
            for lock in (paths.tree / locks).glob(f"*{LOCK_SUFFIX}"):
                shutil.copy(lock, folder / locks)
        environments = {
            path: path.read_text(encoding="utf-8")
            for path in (folder / "environments" / f"{name}.yaml" for name in specs)
        }
        for cell in cells:
            document = cell_document(subject, cell, slo_ms)
            text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
            _file(folder, subject, cell).write_text(text, encoding="utf-8")
    return own, _remove_refused(folder, subject, cells, environments)


def _copy(source: Path, target: Path) -> None:
    """Copy a folder over an earlier copy, in which locks stay."""
    if target.exists():
        for path in sorted(target.rglob("*"), reverse=True):
            if path.is_file() and not path.name.endswith(LOCK_SUFFIX):
                path.unlink()
    if source.exists():
        skipped = shutil.ignore_patterns(f"*{LOCK_SUFFIX}") if target.exists() else None
        shutil.copytree(source, target, dirs_exist_ok=True, ignore=skipped)


def _choose_cells(
    environments: Mapping[Path, str], subject: Subject, models: Sequence[str]
) -> None:
    """Write the environment files so that the subject's environment alone deploys the cells."""
    for path, text in environments.items():
        document = yaml.safe_load(text)
        chosen = document.get("models") or {}
        is_own, has_only = path.stem == subject.environment, "only" in chosen
        if models and is_own == has_only:
            key = "only" if is_own else "except"
            document["models"] = {**chosen, key: [*(chosen.get(key) or ()), *models]}
            text = yaml.safe_dump(document, sort_keys=False)
        path.write_text(text, encoding="utf-8")


def _file(folder: Path, subject: Subject, cell: Cell) -> Path:
    return folder / "models" / f"{cell_model(subject, cell)}.yaml"


def _remove_refused(
    folder: Path, subject: Subject, cells: Sequence[Cell], environments: Mapping[Path, str]
) -> dict[str, str]:
    """Remove the files of cells with faults, and return the faults; what is left is valid."""
    refused: dict[str, str] = {}
    files = {f"models/{cell_model(subject, cell)}.yaml": cell for cell in cells}
    while True:
        left = [cell_model(subject, cell) for cell in cells if cell.name not in refused]
        _choose_cells(environments, subject, left)
        faults = read_tree(folder).faults
        by_cell: dict[str, list[Fault]] = {}
        for fault in faults:
            if fault.file in files:
                by_cell.setdefault(files[fault.file].name, []).append(fault)
        if not by_cell:
            break
        for cell in cells:
            if cell.name in by_cell:
                texts = (f"{fault.what}: {fault.way_out}" for fault in by_cell[cell.name])
                refused[cell.name] = "; ".join(dict.fromkeys(texts))
                _file(folder, subject, cell).unlink(missing_ok=True)
    if faults:
        raise FaultsError(faults)
    return refused


def require_slo(subject: Subject, slo_ms: float | None) -> float:
    """Return the SLO, in milliseconds. Raises RoundhouseError where there is none."""
    chosen = subject.endpoint.latency_slo_ms if slo_ms is None else slo_ms
    if chosen is None:
        raise RoundhouseError(
            f"{subject.name}: has no latency_slo_ms, and candidates are ranked by it first; give "
            "--slo MILLISECONDS."
        )
    return chosen
