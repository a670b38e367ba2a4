"""A new model of a tree: its source inspected, its file and its datasets written."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from onboarding.environment_spec import EnvironmentSpec
from onboarding.fault import Fault
from onboarding.memory import memory_findings
from onboarding.platform import InstanceType, instance_types, serving_platforms
from onboarding.tree import Tree, read_tree
from onboarding.yaml_text import load_yaml
from roundhouse.errors import RoundhouseError, UsageError
from roundhouse.inspection import source_files
from roundhouse.inspection.facts import SourceFacts, checkpoint_facts, network_facts, tasks
from roundhouse.inspection.model_file import commented, model_file_text, starter_datasets
from roundhouse.inspection.source_files import SourceFiles, hub_files
from roundhouse.paths import Paths
from roundhouse.processes import Processes, Run
from roundhouse.settings import inherited

NAME = re.compile(r"[a-z]([a-z0-9-]{0,39}[a-z0-9])?")
PACKAGE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(==[0-9][A-Za-z0-9.!+_-]*)?")
SOURCES = ("package", "huggingface", "checkpoint", "onnx")
SCHEMA = "schemas/model.schema.json"
GPU_TYPES = ("ml.g5.xlarge", "ml.g6.xlarge", "ml.g4dn.xlarge")
CPU_TYPES = ("ml.c7i.xlarge", "ml.c6i.xlarge", "ml.m5.xlarge")
"""First choices of a new endpoint; the first that the environment's region has."""
CPU_SLO_MS = 2000
OVERRIDE = "{{endpoint: {{instance_type: {type}, latency_slo_ms: {slo}, scaling: {{max: 1}}}}}}"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the user asks for; exactly one of the four sources."""

    name: str
    package: str | None = None
    huggingface: str | None = None
    checkpoint: str | None = None
    onnx: str | None = None
    path: str | None = None
    task: str | None = None
    pooling: str | None = None

    @property
    def title(self) -> str:
        """The source as the user wrote it."""
        given = [value for name in SOURCES if (value := getattr(self, name)) is not None]
        return given[0] if given else "nothing"


@dataclass(frozen=True, kw_only=True)
class NewModel:
    """What was found and written."""

    facts: SourceFacts
    files: tuple[Path, ...]
    to_add: Mapping[str, str] = field(default_factory=dict)
    """Lines that a person must add, by file."""
    faults: tuple[Fault, ...] = ()
    """What `check` finds in the model file, where nothing is to be added before."""


def write_new_model(
    paths: Paths,
    request: Request,
    *,
    run: Run | None = None,
    variables: Mapping[str, str] | None = None,
) -> NewModel:
    """Inspect a source and write a model file; what is there is kept. Raises RoundhouseError.

    `run` starts pip; `variables` name the hub and its token. None: this process's own.
    """
    require_sound(request)
    file = paths.tree / "models" / f"{request.name}.yaml"
    if file.exists():
        raise _is_there(file)
    tree = read_tree(paths.tree)
    files = open_source(
        paths,
        request,
        Processes() if run is None else run,
        inherited() if variables is None else variables,
    )
    facts = (
        checkpoint_facts(files, request.task)
        if files.network is None
        else network_facts(files, request.task, request.pooling)
    )
    return _write(paths, tree, request, files, facts)


def require_sound(request: Request) -> None:
    """Raise UsageError for a name, a task or sources that do not fit."""
    name = request.name
    if NAME.fullmatch(name) is None:
        allowed = "small letters, digits and '-' between them, a letter first, at most 41"
        raise UsageError(f"{name!r}: is no model name; allowed: {allowed}.")
    if load_yaml(name) != name:
        raise UsageError(f"{name!r}: YAML reads this word as something else; choose another name.")
    given = [source for source in SOURCES if getattr(request, source) is not None]
    if len(given) != 1:
        options = ", ".join(f"--{source}" for source in SOURCES)
        named = " and ".join(f"--{source}" for source in given) or "none"
        raise UsageError(f"{named} given: name exactly one source; allowed: {options}.")
    if request.task is not None and request.task not in tasks():
        raise UsageError(
            f"--task {request.task}: no engine is built for it; allowed: {', '.join(tasks())}."
        )
    if request.path is not None and request.package is None and request.huggingface is None:
        raise UsageError("--path: is for --package and --huggingface; name the folder itself.")
    if request.pooling is not None and request.onnx is None:
        raise UsageError("--pooling: is for --onnx; a checkpoint declares its own.")
    if request.package is not None and PACKAGE.fullmatch(request.package) is None:
        raise UsageError(f"--package {request.package}: write name, or name==1.2.3.")


def open_source(
    paths: Paths, request: Request, run: Run, variables: Mapping[str, str]
) -> SourceFiles:
    """Return the files of a request's source."""
    if request.package is not None:
        return source_files.package_files(request.package, request.path, paths.builder_python, run)
    if request.huggingface is not None:
        return hub_files(request.huggingface, request.path, variables)
    if request.checkpoint is not None:
        return source_files.folder_files(request.checkpoint, paths.tree)
    assert request.onnx is not None
    return source_files.network_files(request.onnx, paths.tree)


def _write(
    paths: Paths, tree: Tree, request: Request, files: SourceFiles, facts: SourceFacts
) -> NewModel:
    datasets, missing = starter_datasets(request.name, facts, paths.tree)
    endpoint, overrides = _endpoint(paths.tree, tree, facts)
    schema = os.path.relpath(paths.code / SCHEMA, paths.tree / "models")
    text = model_file_text(
        request.name, files.pins, facts, datasets, endpoint=endpoint, schema=schema
    )
    file = paths.tree / "models" / f"{request.name}.yaml"
    written = [file]
    _write_file(file, text.encode())
    for name, content in missing.items():
        _write_file(paths.tree / name, content)
        written.append(paths.tree / name)
    after = read_tree(paths.tree)
    faults = () if overrides else (*after.faults, *memory_findings(after).faults)
    return NewModel(
        facts=facts,
        files=tuple(written),
        to_add={
            f"environments/{name}.yaml": f"models: {{{request.name}: {override}}}"
            for name, override in overrides.items()
        },
        faults=tuple(fault for fault in faults if fault.file == f"models/{request.name}.yaml"),
    )


def _endpoint(root: Path, tree: Tree, facts: SourceFacts) -> tuple[str, Mapping[str, str]]:
    """Return the model's section `endpoint`, and the overrides by environment.

    A shared endpoint of the tree fits every environment already; arrays share none with texts.
    """
    shared = sorted(path.stem for path in (root / "endpoints").glob("*.yaml"))
    if shared and facts.task != "tensors":
        own = "{instance_type: ml.g5.xlarge, latency_slo_ms: 50, scaling: {min: 1, max: 2}}"
        what = f"endpoints/{shared[0]}.yaml, shared; or one of its own:"
        return f"{commented(f'endpoint: {shared[0]}', what)}\n# endpoint: {own}\n", {}
    chosen, overrides = choose_types(tree)
    what = "a CPU: ONNX Runtime answers"
    if chosen.is_gpu:
        what = f"its GPU, {chosen.gpu}, is what the engine is compiled for"
    lines = (
        commented("endpoint:", "of its own; or the name of a file in endpoints/"),
        commented(f"  instance_type: {chosen.name}", what),
        f"  latency_slo_ms: {50 if chosen.is_gpu else CPU_SLO_MS}",
        "  scaling: {min: 1, max: 2}\n",
    )
    return "\n".join(lines), overrides


def _write_file(file: Path, content: bytes) -> None:
    """Write a file that is not there. Raises RoundhouseError."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("xb") as handle:
            handle.write(content)
    except FileExistsError as error:
        raise _is_there(file) from error
    except OSError as error:
        raise RoundhouseError(
            f"{file}: cannot be written ({error.strerror}); free it or make it writable."
        ) from error


def _is_there(file: Path) -> RoundhouseError:
    return RoundhouseError(
        f"{file}: is there already and is kept; choose another name, or edit it."
    )


def first_choice(environment: EnvironmentSpec) -> InstanceType | None:
    """Return the type of a first endpoint there; None where no choice of ours is hosted."""
    platform = serving_platforms().get(environment.platform)
    names = CPU_TYPES if platform is None or platform.tensorrt is None else GPU_TYPES
    known = (instance_types()[name] for name in names if name in instance_types())
    return next((row for row in known if not row.is_missing_in(environment.region)), None)


def choose_types(tree: Tree) -> tuple[InstanceType, Mapping[str, str]]:
    """Return the type that the model file names, and overrides as YAML by environment."""
    choices = {name: first_choice(spec) for name, spec in sorted(tree.environments.items())}
    known = [row for row in choices.values() if row is not None]
    gpus = [row for row in known if row.is_gpu]
    chosen = (gpus or known or [instance_types()[GPU_TYPES[0]]])[0]
    overrides = {
        name: OVERRIDE.format(type=row.name, slo=50 if row.is_gpu else CPU_SLO_MS)
        for name, row in choices.items()
        if row is not None and row != chosen
    }
    return chosen, overrides
