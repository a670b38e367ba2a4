"""A Triton model repository of a user's own: its models, and everything that is wrong with it."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from onboarding.fault import Fault, comma_list
from onboarding.manifest import MANIFEST_NAME, Manifest, TensorRecord
from onboarding.yaml_text import load_data

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


def repository_models(manifest: Manifest) -> tuple[str, ...]:
    """Return the models of a repository's archive."""
    paths = (path.split("/") for path in manifest.files)
    return tuple(sorted(path[0] for path in paths if path[1:] == ["config.pbtxt"]))


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


LARGEST_DEPTH = 40
_TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)
    |(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<number>[-+]?(?:inf\b|nan\b|[.0-9][A-Za-z0-9.]*(?:(?<=[eE])[-+][0-9]+)?))
    |(?P<mark>[{}<>\[\]:,;])""",
    re.VERBOSE,
)
_WHOLE_NUMBER = re.compile(r"-?(0|[1-9][0-9]*|0[xX][0-9a-fA-F]+)")
_CLOSING = {"{": "}", "<": ">"}
_KINDS = {"string": "text", "int": "number", "float": "number", "bool": "word"}
_BOOLEANS = ("true", "false", "True", "False", "t", "f")


class ConfigurationFault(ValueError):
    """A text is no model configuration; the message says why, `line` where."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line


@dataclass(frozen=True, kw_only=True)
class ConfigurationField:
    """One field: a scalar's text, or the fields of a message; a list is its field repeated."""

    name: str
    line: int
    kind: str
    """text, word, number or message."""
    value: str = ""
    fields: tuple[ConfigurationField, ...] = ()

    def all(self, name: str) -> tuple[ConfigurationField, ...]:
        """Return the fields of a message by name."""
        return tuple(field for field in self.fields if field.name == name)

    def one(self, name: str) -> ConfigurationField | None:
        """Return the last field of a name, which counts; None where there is none."""
        return next(reversed(self.all(name)), None)

    def text(self, name: str) -> str:
        """Return a scalar's text; empty where there is none."""
        field = self.one(name)
        return "" if field is None else field.value


def read_configuration(text: str) -> ConfigurationField:
    """Return a model configuration as one message. Raises ConfigurationFault."""
    reading = _Reading(tuple(_tokens(text)))
    return ConfigurationField(name="", line=1, kind="message", fields=reading.fields("", 0))


def field_faults(
    message: ConfigurationField, kind: str = "ModelConfig"
) -> Iterator[tuple[int, str, str]]:
    """Yield line, fault and what is allowed of fields that Triton's ModelConfig has not so."""
    known: Mapping[str, str] = _schema()["messages"][kind]
    for field in message.fields:
        wanted = known.get(field.name)
        if wanted is None:
            yield field.line, f"{kind} has no field {field.name}", ", ".join(known)
        elif wanted in _schema()["messages"]:
            if field.kind != "message":
                yield field.line, f"{field.name} is no message", f"{field.name} {{ … }}"
            yield from field_faults(field, wanted)
        elif not _is_of_kind(field, wanted):
            words = _schema()["enums"].get(wanted)
            allowed = wanted if words is None else ", ".join(words)
            yield field.line, f"{field.name} is {field.value or 'a message'}", allowed


def _is_of_kind(field: ConfigurationField, wanted: str) -> bool:
    words = _schema()["enums"].get(wanted)
    if words is not None:
        return field.value in words or field.value.isdigit()
    if wanted == "bool":
        return field.value in (*_BOOLEANS, "0", "1") and field.kind in ("word", "number")
    if field.kind != _KINDS[wanted]:
        return False
    return wanted != "int" or _WHOLE_NUMBER.fullmatch(field.value) is not None


@cache
def _schema() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    schema: Mapping[str, Mapping[str, Mapping[str, str]]] = load_data("model_configuration.yaml")
    return schema


_Token = tuple[str, str, int]
"""Kind, text, line."""


def _tokens(text: str) -> Iterator[_Token]:
    position, line = 0, 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ConfigurationFault(line, f"{text[position : position + 20].split()[0]!r} is none")
        if match.lastgroup != "space":
            yield str(match.lastgroup), match.group(), line
        line += match.group().count("\n")
        position = match.end()
    yield "end", "", line


class _Reading:
    """Tokens, read from the first to the last."""

    def __init__(self, tokens: tuple[_Token, ...]) -> None:
        self._tokens, self._next = tokens, 0

    def fields(self, closing: str, depth: int) -> tuple[ConfigurationField, ...]:
        """Return the fields up to a closing mark, which is read too; empty: to the end."""
        found: list[ConfigurationField] = []
        while not self._has(closing):
            kind, name, line = self._read()
            if kind != "word" or depth > LARGEST_DEPTH:
                raise ConfigurationFault(line, f"{name or 'the end'!r} stands where a field must")
            has_colon = self._has(":")
            if self._has("["):
                while not self._has("]"):
                    found.append(self._value(name, has_colon=has_colon, depth=depth))
                    self._has(",")
            else:
                found.append(self._value(name, has_colon=has_colon, depth=depth))
            if not self._has(","):
                self._has(";")
        return tuple(found)

    def _value(self, name: str, *, has_colon: bool, depth: int) -> ConfigurationField:
        kind, text, at = self._read()
        if text in _CLOSING:
            fields = self.fields(_CLOSING[text], depth + 1)
            return ConfigurationField(name=name, line=at, kind="message", fields=fields)
        if not has_colon or kind not in ("text", "word", "number"):
            raise ConfigurationFault(at, f"{text or 'the end'!r} stands where {name} has its value")
        value = ast.literal_eval(text) if kind == "text" else text
        while kind == "text" and self._tokens[self._next][0] == "text":
            value += ast.literal_eval(self._read()[1])
        return ConfigurationField(name=name, line=at, kind=kind, value=value)

    def _has(self, mark: str) -> bool:
        """Read a mark where it is the next token; empty is the end."""
        kind, text, _ = self._tokens[self._next]
        if text != mark or kind not in ("mark", "end"):
            return False
        self._next += kind == "mark"
        return True

    def _read(self) -> _Token:
        token = self._tokens[self._next]
        self._next += token[0] != "end"
        return token
