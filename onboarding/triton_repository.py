"""A Triton model repository of a user's own: its models, and everything that is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from onboarding.fault import Fault
from onboarding.manifest import MANIFEST_NAME, TensorRecord
from onboarding.model_configuration import (
    ConfigurationFault,
    ConfigurationField,
    field_faults,
    read_configuration,
)
from onboarding.nearest import comma_list

CONFIGURATION = "config.pbtxt"
LARGEST_CONFIGURATION_BYTES = 1 << 18
LARGEST_REPOSITORY_BYTES = 10 << 30
"""Of an archive that a builder unpacks, packs and keeps beside the packed one."""
ENSEMBLE, PYTHON, TENSORRT = "ensemble", "python", "tensorrt"
PLATFORMS = {
    "ensemble": ENSEMBLE,
    "onnxruntime_onnx": "onnxruntime",
    "pytorch_libtorch": "pytorch",
    "tensorrt_plan": TENSORRT,
}
"""The backend of each older `platform`."""
MODEL_FILES = {
    "onnxruntime": "model.onnx",
    "openvino": "model.xml",
    "python": "model.py",
    "pytorch": "model.pt",
    "tensorrt": "model.plan",
}
"""What a backend loads of a version, where `default_model_filename` names nothing else."""
VERSION = re.compile(r"[1-9][0-9]*", re.ASCII)
OTHER_FOLDERS = frozenset(("configs", "initial_state", "warmup"))
"""Folders of a model that Triton reads, and that are no versions."""


@dataclass(frozen=True, kw_only=True)
class RepositoryModel:
    """One model: its folder, its configuration, and the backend that runs it."""

    name: str
    file: str
    """Its configuration, as faults name it."""
    configuration: ConfigurationField

    @property
    def backend(self) -> str:
        """The backend's name, whichever field gives it; empty where none does."""
        platform = self.configuration.text("platform")
        return self.configuration.text("backend") or PLATFORMS.get(platform, platform)

    @property
    def max_batch_size(self) -> int:
        """Rows of the largest batch; 0 where the first axis is no batch."""
        return int(self.configuration.text("max_batch_size") or "0", 0)

    def tensors(self, field: str) -> tuple[TensorRecord, ...]:
        """Return what clients send (`input`) or get (`output`)."""
        batch = (-1,) if self.max_batch_size else ()
        return tuple(
            TensorRecord(
                name=tensor.text("name"),
                datatype=tensor.text("data_type").removeprefix("TYPE_").replace("STRING", "BYTES"),
                shape=(*batch, *(int(item.value, 0) for item in tensor.all("dims"))),
            )
            for tensor in self.configuration.all(field)
        )

    def line(self, *fields: str) -> int:
        """Return the line of the first of some fields that is there, else the first."""
        found = (self.configuration.one(name) for name in fields)
        return next((field.line for field in found if field is not None), 1)


@dataclass(frozen=True, kw_only=True)
class Repository:
    """The models that can be read, and the faults of all."""

    models: Mapping[str, RepositoryModel]
    plans: tuple[str, ...]
    """Files of TensorRT plans, as faults name them."""
    faults: tuple[Fault, ...]

    def backend_faults(self, platform: str, backends: tuple[str, ...]) -> Iterator[Fault]:
        """Yield models whose backend the image of a serving platform has not."""
        for model in self.models.values():
            if model.backend and model.backend not in (*backends, ENSEMBLE):
                what = f"platform {platform} has no backend {model.backend}"
                way_out = "give the model one of them, or the environment another platform"
                line, allowed = model.line("backend", "platform"), (*backends, ENSEMBLE)
                yield _fault(model.file, what, way_out, line, comma_list(allowed))


def read_repository(folder: Path, shown: str, answers: str) -> Repository:
    """Return a repository whose model `answers` clients ask; faults name files below `shown`."""
    entries = tuple(_entry_faults(folder, shown))
    if entries:
        return Repository(models={}, plans=(), faults=entries)
    faults: list[Fault] = []
    models: dict[str, RepositoryModel] = {}
    plans: list[str] = []
    folders = {path.name: path for path in sorted(folder.iterdir()) if path.name[0] != "."}
    for path in folders.values():
        model = _read_model(path, f"{shown}/{path.name}/{CONFIGURATION}", faults)
        faults += _version_faults(path, f"{shown}/{path.name}", model)
        if model is not None:
            models[path.name] = model
            faults += (*_model_faults(model), *_step_faults(model, folders))
            if model.backend == TENSORRT:
                files = sorted(path.glob("[0-9]*/*"))
                plans += [f"{shown}/{file.relative_to(folder).as_posix()}" for file in files]
    if answers not in folders:
        what = f"no model of the repository is called {answers}, as the model file is"
        way_out = "give the model that clients ask the name of the model file"
        faults.append(_fault(shown, what, way_out, allowed=comma_list(folders) or "none"))
    return Repository(models=models, plans=tuple(plans), faults=tuple(faults))


def _fault(
    file: str, what: str, way_out: str, line: int | None = None, allowed: str | None = None
) -> Fault:
    return Fault(file=file, line=line, what=what, allowed=allowed, way_out=way_out)


def _entry_faults(folder: Path, shown: str) -> Iterator[Fault]:
    """Yield links, other entries that are no files, reserved names, and too many bytes."""
    size = 0
    for path in sorted(folder.rglob("*")):
        name = f"{shown}/{path.relative_to(folder).as_posix()}"
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            yield _fault(name, "is a link, a device or a pipe", "put the file itself there")
        elif path.name == "__pycache__":
            yield _fault(name, "is a cache of Python's, which servers refuse", "delete it")
        elif path.is_file():
            size += path.stat().st_size
            if path.parent == folder and not path.name.startswith("."):
                what = f"is a file beside the models, where the archive has {MANIFEST_NAME}"
                yield _fault(name, what, "move it into a model's folder, or elsewhere")
    if size > LARGEST_REPOSITORY_BYTES:
        what, most = f"the repository has {size} bytes", f"at most {LARGEST_REPOSITORY_BYTES}"
        yield _fault(shown, what, "split it into several endpoints", allowed=most)


def _read_model(path: Path, file: str, faults: list[Fault]) -> RepositoryModel | None:
    """Return a model; None where its configuration cannot be read. Adds its faults."""
    configuration = path / CONFIGURATION
    try:
        if configuration.stat().st_size > LARGEST_CONFIGURATION_BYTES:
            raise ConfigurationFault(1, f"it is larger than {LARGEST_CONFIGURATION_BYTES} bytes")
        fields = read_configuration(configuration.read_text("utf-8"))
    except FileNotFoundError:
        what = "is missing, and Triton completes no configuration here"
        faults.append(_fault(file, what, "write the model's configuration"))
        return None
    except (OSError, SyntaxError, ValueError) as error:
        line = error.line if isinstance(error, ConfigurationFault) else 1
        faults.append(_fault(file, f"is no protobuf text: {error}", "correct it", line))
        return None
    unknown = [
        _fault(file, what, "correct the field", line, allowed)
        for line, what, allowed in field_faults(fields)
    ]
    faults += unknown
    return None if unknown else RepositoryModel(name=path.name, file=file, configuration=fields)


def _model_faults(model: RepositoryModel) -> Iterator[Fault]:
    """Yield another name than the folder's, no backend, and tensors that are not complete."""
    name = model.configuration.text("name")
    if name not in ("", model.name):
        what = f"the model's name {name} is not its folder's"
        yield _fault(model.file, what, "leave `name` out", model.line("name"), model.name)
    if not model.backend:
        what = "names neither a backend nor a platform"
        yield _fault(model.file, what, 'add `backend: "python"`, or another one', 1)
    for field in ("input", "output"):
        tensors = model.configuration.all(field)
        if not tensors:
            what = f"has no {field}, and Triton completes no configuration here"
            yield _fault(model.file, what, f"add {field} {{ name: … data_type: … dims: … }}", 1)
        for tensor in tensors:
            missing = [key for key in ("name", "data_type", "dims") if tensor.one(key) is None]
            if missing:
                what = f"an {field} has no {' and no '.join(missing)}"
                yield _fault(model.file, what, "add it", tensor.line)


def _version_faults(path: Path, shown: str, model: RepositoryModel | None) -> Iterator[Fault]:
    """Yield folders that are no versions, and versions without the file that a backend loads."""
    folders = sorted(item for item in path.iterdir() if item.is_dir())
    versions = [item for item in folders if VERSION.fullmatch(item.name)]
    for item in folders:
        if item not in versions and item.name not in OTHER_FOLDERS:
            what = "is no version of the model: its name is no number from 1 on"
            allowed = f"1, 2, …, or {', '.join(sorted(OTHER_FOLDERS))}"
            yield _fault(f"{shown}/{item.name}", what, "rename the folder", allowed=allowed)
    if not versions:
        way_out = f"add {shown}/1 with the model's file; git keeps no folder without one"
        yield _fault(shown, "has no version", way_out)
    if model is None or model.backend == ENSEMBLE:
        return
    own = model.configuration.text("default_model_filename")
    needed = own or MODEL_FILES.get(model.backend)
    for item in versions:
        if needed and not (item / needed).exists():
            what = f"holds no {needed}, which backend {model.backend} loads"
            way_out = "add it, or name another file in `default_model_filename`"
            yield _fault(f"{shown}/{item.name}", what, way_out)


def _step_faults(model: RepositoryModel, folders: Collection[str]) -> Iterator[Fault]:
    """Yield steps of an ensemble that name no model of the repository."""
    scheduling = model.configuration.one("ensemble_scheduling")
    steps = () if scheduling is None else scheduling.all("step")
    if model.backend == ENSEMBLE and not steps:
        line = model.line("platform", "backend")
        yield _fault(model.file, "an ensemble has no steps", "add `ensemble_scheduling`", line)
    for step in steps:
        name, field = step.text("model_name"), step.one("model_name")
        if name not in folders:
            what = f"a step of the ensemble names no model of the repository: {name or 'nothing'}"
            line = step.line if field is None else field.line
            way_out = "add the model's folder, or correct the name"
            yield _fault(model.file, what, way_out, line, comma_list(folders))
