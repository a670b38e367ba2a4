"""The files of an onboarding root, read once, and every fault that rules find in them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from onboarding.dataset import Datasets
from onboarding.document import read_document
from onboarding.environment_spec import EnvironmentSpec
from onboarding.environment_view import (
    EnvironmentView,
    SpecFiles,
    environment_view,
    own_endpoint,
    split_models,
)
from onboarding.fault import Fault, sorted_faults
from onboarding.lock import LOCK_SUFFIX, LockError, ModelLock, lock_path, read_lock
from onboarding.model_spec import (
    EnsembleSpec,
    JoinSpec,
    ModelSpec,
    RepositorySpec,
    SharedEndpointSpec,
)
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
from onboarding.text_generation.spec import TASK, TextGenerationSpec
from onboarding.validation import Checked, validate
from onboarding.values import Value

SpecT = TypeVar("SpecT", bound=Value)

KINDS: dict[str, type[Value]] = {
    "models": ModelSpec,
    "endpoints": SharedEndpointSpec,
    "environments": EnvironmentSpec,
}


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
    generators: Mapping[str, TextGenerationSpec] = field(default_factory=dict)
    """Models whose task is text-generation; `models` has the others."""


def held_entries(
    tree: Tree,
    own: EnvironmentSpec,
    model: str,
    kind: type[ModelLock],
    keys: Collection[str] | None = None,
) -> tuple[dict[str, tuple[Any, str | None]], list[Fault]]:
    """Return the entries of a model's locks by key, the environment's own before those it receives.

    Beside an entry stands the environment that holds it, None for its own; then the faults: locks
    that cannot be read, and keys of two entries of another digest. Of `keys` alone, where given.
    """
    entries: dict[str, tuple[Any, str | None]] = {}
    faults: list[Fault] = []
    noun, digest_noun = kind.entry_type.noun, kind.entry_type.digest_noun
    copied = "files" if digest_noun.startswith("files") else "archive"
    sources = [own]
    while sources[-1].promotes_from is not None:
        sources.append(tree.environments[sources[-1].promotes_from])
    for environment in sources:
        name = environment.name
        file = lock_path(Path(environment.locks), model).as_posix()
        try:
            found = read_lock(tree.root / environment.locks, model, kind).entries
        except LockError as error:
            faults.append(Fault(file=file, what=error.what, way_out=error.way_out))
            continue
        for key, entry in found.items():
            if keys is not None and key not in keys:
                continue
            held, holder = entries.setdefault(key, (entry, None if environment is own else name))
            if held.digest != entry.digest:
                other = holder or own.name
                fault = Fault(
                    file=file,
                    what=f"{noun} {key} has {digest_noun} {entry.digest[:12]}…, and the lock of "
                    f"{other} says {held.digest[:12]}…, so {name} and {other} claim one key",
                    way_out="take the entry out of the lock of the one that is to receive it; "
                    f"`roundhouse promote --from {name} --to {other}` copies the other's {copied}",
                )
                faults.append(fault)
    return entries, faults


def read_tree(root: Path) -> Tree:
    """Read models/, endpoints/, environments/ and the datasets they name.

    Never raises on what they hold: see `faults`.
    """
    faults, unread = list[Fault](), set[str]()
    models, generators = split_models(_read_folder(root, "models", ModelSpec, faults, unread))
    endpoints = _read_folder(root, "endpoints", SharedEndpointSpec, faults, unread)
    environments = _read_folder(root, "environments", EnvironmentSpec, faults, unread)
    files = SpecFiles(
        models=models, endpoints=endpoints, generators=generators, unread=frozenset(unread)
    )
    views = {name: environment_view(files, file) for name, file in environments.items()}
    datasets = Datasets(root)
    faults += file_faults(files, environments, datasets)
    for view in views.values():
        faults += view.faults
        overridden = (file for file in view.files if all(file is not own for own in files.files))
        faults += spec_faults(overridden, datasets)
    faults += _by_environment(views, datasets)
    return Tree(
        root=root,
        models=_specs(models),
        endpoints=_specs(endpoints),
        environments=_specs(environments),
        dataset_digests=datasets.digests(),
        faults=sorted_faults(faults),
        views=views,
        generators=_specs(generators),
    )


def _by_environment(views: Mapping[str, EnvironmentView], datasets: Datasets) -> Iterator[Fault]:
    """Return each fault once, naming its environments unless all have it."""
    found: dict[Fault, list[str]] = {}
    for name, view in views.items():
        for fault in dict.fromkeys(environment_faults(view, datasets)):
            found.setdefault(fault, []).append(name)
    for fault, names in found.items():
        if fault.file.startswith("environments/") or len(names) == len(views):
            yield fault
        else:
            where = "environment" if len(names) == 1 else "environments"
            yield fault.model_copy(update={"what": f"in {where} {', '.join(names)}, {fault.what}"})


def _specs(files: Mapping[str, Checked[SpecT]]) -> dict[str, SpecT]:
    return {name: file.spec for name, file in files.items()}


def _read_folder(
    root: Path, folder: str, spec_type: type[SpecT], faults: list[Fault], unread: set[str]
) -> dict[str, Checked[SpecT]]:
    """Return the valid files of a folder, by file name without `.yaml`.

    Adds the faults of form of the others, and their names, as `models/name`.
    """
    specs: dict[str, Checked[SpecT]] = {}
    if (root / folder).is_dir():
        for path in _yaml_files(root / folder):
            name_fault = _file_name_fault(path, folder)
            if name_fault is not None:
                faults.append(name_fault)
                continue
            checked, wrong = _read_file(path, folder, spec_type)
            faults += wrong
            if checked is None:
                unread.add(f"{folder}/{path.stem}")
            else:
                specs[path.stem] = checked
    elif folder != "endpoints":
        missing = "add it, or name the onboarding root with --root"
        faults.append(Fault(file=folder, what="the folder is not there", way_out=missing))
    return specs


def _read_file(
    path: Path, folder: str, spec_type: type[SpecT]
) -> tuple[Checked[SpecT] | None, tuple[Fault, ...]]:
    """Return a file with its spec, or None and the faults of its form."""
    file = f"{folder}/{path.name}"
    document, faults = read_document(path, file)
    if document is None:
        return None, faults
    kind = _other_kind(document.data, folder)
    if kind is not None:
        other = Fault(
            file=file,
            line=1,
            what=f"is a file of {kind}/, by its keys, and lies in {folder}/",
            value=path.name,
            allowed=f"files of {folder}/, as schemas/ describes them",
            way_out=f"move it to {kind}/",
        )
        return None, (*faults, other)
    checked, wrong = validate(spec_type, document)
    # A value that YAML cannot read is wrong in every way.
    lines = {fault.line for fault in faults}
    elsewhere = (fault for fault in wrong if fault.line not in lines)
    return (None if faults else checked), (*faults, *elsewhere)


def _file_name_fault(path: Path, folder: str) -> Fault | None:
    if not path.name.isprintable():
        return Fault(
            file=f"{folder}/{ascii(path.name)[1:-1]}",
            what="is a file name with characters that are no text",
            way_out="rename it",
        )
    if path.suffix == ".yml":
        return Fault(
            file=f"{folder}/{path.name}",
            what="ends in .yml and would be left out",
            way_out=f"rename it to {path.stem}.yaml",
        )
    return None


def _other_kind(data: Mapping[str, Any], folder: str) -> str | None:
    """Return the folder that a file belongs to by its keys, or None when that is its own folder.

    It has at least two keys that only the other kind knows, and none that only this kind knows.
    """
    if folder == "models" and data.get("task") == TASK:
        return None
    own = KINDS[folder].model_fields.keys()
    for other, spec_type in KINDS.items():
        theirs = spec_type.model_fields.keys()
        if len(data.keys() & (theirs - own)) >= 2 and not data.keys() & (own - theirs):
            return other
    return None


def _yaml_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        is_hidden_or_lock = path.name.startswith(".") or path.name.endswith(LOCK_SUFFIX)
        if path.suffix in (".yaml", ".yml") and not is_hidden_or_lock:
            yield path


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
