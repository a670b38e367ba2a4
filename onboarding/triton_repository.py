"""A Triton model repository of a user's own: its models, and everything that is wrong with it."""

from __future__ import annotations

import os
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
        return int(self.configuration.text("max_batch_size") or 0)

    def tensors(self, field: str) -> tuple[TensorRecord, ...]:
        """Return what clients send (`input`) or get (`output`)."""
        batch = (-1,) if self.max_batch_size else ()
        return tuple(
            TensorRecord(
                name=tensor.text("name"),
                datatype=tensor.text("data_type").removeprefix("TYPE_").replace("STRING", "BYTES"),
                shape=(*batch, *(int(item.value) for item in tensor.all("dims"))),
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
                yield Fault(
                    file=model.file,
                    line=model.line("backend", "platform"),
                    what=f"platform {platform} has no backend {model.backend}",
                    allowed=comma_list((*backends, ENSEMBLE)),
                    way_out="give the model one of them, or the environment another platform",
                )


def read_repository(folder: Path, shown: str, answers: str) -> Repository:
    """Return a repository whose model `answers` clients ask; faults name files below `shown`."""
    faults = [*_entry_faults(folder, shown)]
    if faults:
        return Repository(models={}, plans=(), faults=tuple(faults))
    models: dict[str, RepositoryModel] = {}
    plans: list[str] = []
    folders = {path.name: path for path in sorted(folder.iterdir()) if path.name[0] != "."}
    for path in folders.values():
        model = _read_model(path, f"{shown}/{path.name}/{CONFIGURATION}", faults)
        faults += _version_faults(path, f"{shown}/{path.name}", model)
        if model is not None:
            models[path.name] = model
            faults += _model_faults(model)
    for model in models.values():
        faults += _step_faults(model, folders)
        if model.backend == TENSORRT:
            files = sorted((folder / model.name).glob("[0-9]*/*"))
            plans += [f"{shown}/{file.relative_to(folder).as_posix()}" for file in files]
    if answers not in folders:
        faults.append(
            Fault(
                file=shown,
                what=f"no model of the repository is called {answers}, as the model file is",
                allowed=comma_list(folders) or "none",
                way_out="give the model that clients ask the name of the model file",
            )
        )
    return Repository(models=models, plans=tuple(plans), faults=tuple(faults))


def _entry_faults(folder: Path, shown: str) -> Iterator[Fault]:
    """Yield links, other entries that are no files, reserved names, and too many bytes."""
    size = 0
    for parent, folders, files in os.walk(folder):
        for path in sorted(Path(parent, name) for name in (*folders, *files)):
            name = f"{shown}/{path.relative_to(folder).as_posix()}"
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                yield Fault(
                    file=name,
                    what="is a link, a device or a pipe",
                    allowed="files and folders",
                    way_out="put the file itself there",
                )
            elif path.name == "__pycache__":
                yield Fault(
                    file=name,
                    what="is a cache of Python's, which servers refuse in an archive",
                    way_out="delete it",
                )
            elif path.is_file():
                size += path.stat().st_size
                if path.parent == folder and not path.name.startswith("."):
                    yield Fault(
                        file=name,
                        what="is a file beside the models, where the archive has its own, such as "
                        f"{MANIFEST_NAME}",
                        allowed="a folder for each model",
                        way_out="move it into the folder of a model, or out of the repository",
                    )
    if size > LARGEST_REPOSITORY_BYTES:
        yield Fault(
            file=shown,
            what=f"the repository has {size} bytes",
            allowed=f"at most {LARGEST_REPOSITORY_BYTES}",
            way_out="split it into several endpoints",
        )


def _read_model(path: Path, file: str, faults: list[Fault]) -> RepositoryModel | None:
    """Return a model; None where its configuration cannot be read. Adds its faults."""
    configuration = path / CONFIGURATION
    problem = None
    if not configuration.is_file():
        problem = "is missing, and Triton completes no configuration here"
    elif configuration.stat().st_size > LARGEST_CONFIGURATION_BYTES:
        problem = f"is larger than {LARGEST_CONFIGURATION_BYTES >> 10} KiB"
    if problem is not None:
        faults.append(Fault(file=file, what=problem, way_out="write the model's configuration"))
        return None
    try:
        fields = read_configuration(configuration.read_text("utf-8"))
    except ConfigurationFault as fault:
        problem, line = f"is no protobuf text: {fault}", fault.line
    except (UnicodeDecodeError, SyntaxError, ValueError) as error:
        problem, line = f"is no text that can be read: {error}", 1
    if problem is not None:
        faults.append(Fault(file=file, line=line, what=problem, way_out="correct the line"))
        return None
    unknown = [
        Fault(file=file, line=line, what=what, allowed=allowed, way_out="correct the field")
        for line, what, allowed in field_faults(fields)
    ]
    faults += unknown
    model = RepositoryModel(name=path.name, file=file, configuration=fields)
    return None if unknown else model


def _model_faults(model: RepositoryModel) -> Iterator[Fault]:
    """Yield another name than the folder's, no backend, and tensors that are not complete."""
    name = model.configuration.text("name")
    if name not in ("", model.name):
        yield Fault(
            file=model.file,
            line=model.line("name"),
            what="the model's name is not its folder's",
            value=name,
            allowed=model.name,
            way_out="leave `name` out, or rename the folder",
        )
    if not model.backend:
        yield Fault(
            file=model.file,
            line=1,
            what="names neither a backend nor a platform",
            way_out='add `backend: "python"`, or another one',
        )
    for field in ("input", "output"):
        tensors = model.configuration.all(field)
        if not tensors:
            yield Fault(
                file=model.file,
                line=1,
                what=f"has no {field}, and Triton completes no configuration here",
                way_out=f"add `{field} [ {{ name: … data_type: … dims: … }} ]`",
            )
        for tensor in tensors:
            missing = [key for key in ("name", "data_type", "dims") if tensor.one(key) is None]
            if missing:
                yield Fault(
                    file=model.file,
                    line=tensor.line,
                    what=f"an {field} has no {' and no '.join(missing)}",
                    way_out="add it",
                )


def _version_faults(path: Path, shown: str, model: RepositoryModel | None) -> Iterator[Fault]:
    """Yield folders that are no versions, and versions without the file that a backend loads."""
    folders = sorted(item for item in path.iterdir() if item.is_dir())
    versions = [item for item in folders if item.name.isascii() and item.name.isdigit()]
    versions = [item for item in versions if not item.name.startswith("0")]
    for item in folders:
        if item not in versions and item.name not in OTHER_FOLDERS:
            yield Fault(
                file=f"{shown}/{item.name}",
                what="is no version of the model: its name is no number from 1 on",
                allowed=f"1, 2, …, or {', '.join(sorted(OTHER_FOLDERS))}",
                way_out="rename the folder, or move its files into a version",
            )
    if not versions:
        yield Fault(
            file=shown,
            what="has no version",
            way_out=f"add {shown}/1 with the model's file; git keeps no folder without one",
        )
    backend = "" if model is None else model.backend
    own = "" if model is None else model.configuration.text("default_model_filename")
    needed = own or MODEL_FILES.get(backend)
    for item in versions if backend != ENSEMBLE else ():
        if needed and not (item / needed).exists():
            yield Fault(
                file=f"{shown}/{item.name}",
                what=f"holds no {needed}, which backend {backend} loads",
                way_out="add it, or name another file in `default_model_filename`",
            )


def _step_faults(model: RepositoryModel, folders: Collection[str]) -> Iterator[Fault]:
    """Yield steps of an ensemble that name no model of the repository."""
    scheduling = model.configuration.one("ensemble_scheduling")
    steps = () if scheduling is None else scheduling.all("step")
    if model.backend == ENSEMBLE and not steps:
        yield Fault(
            file=model.file,
            line=model.line("platform", "backend"),
            what="an ensemble has no steps",
            way_out="add `ensemble_scheduling`",
        )
    for step in steps:
        name = step.text("model_name")
        if name not in folders:
            field = step.one("model_name")
            yield Fault(
                file=model.file,
                line=step.line if field is None else field.line,
                what="a step of the ensemble names no model of the repository",
                value=name or "nothing",
                allowed=comma_list(folders),
                way_out="add the model's folder, or correct the name",
            )
