"""The YAML files of an onboarding root, by kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from onboarding.environment_spec import EnvironmentSpec
from onboarding.fault import Fault
from onboarding.model_spec import ModelSpec, SharedEndpointSpec
from onboarding.source_yaml import read_document
from onboarding.validation import Checked, validate
from onboarding.values import Value

SpecT = TypeVar("SpecT", bound=Value)

LOCK_SUFFIX = ".lock.yaml"
KINDS: dict[str, type[Value]] = {
    "models": ModelSpec,
    "endpoints": SharedEndpointSpec,
    "environments": EnvironmentSpec,
}


@dataclass(frozen=True, kw_only=True)
class Folder(Generic[SpecT]):
    """The spec files of one folder, by file name without `.yaml`, and what is wrong with the files.

    `unread` names the files that are there and hold no document of this kind.
    """

    specs: dict[str, Checked[SpecT]]
    faults: tuple[Fault, ...]
    unread: tuple[str, ...] = ()


def read_folder(
    root: Path, folder: str, spec_type: type[SpecT], *, optional: bool = False
) -> Folder[SpecT]:
    """Read every spec file of a folder."""
    if not (root / folder).is_dir():
        missing = Fault(
            file=folder,
            what="the folder is not there",
            way_out="add it, or name the onboarding root with --root",
        )
        return Folder(specs={}, faults=() if optional else (missing,))
    specs: dict[str, Checked[SpecT]] = {}
    faults: list[Fault] = []
    unread: list[str] = []
    for path in _yaml_files(root / folder):
        file = f"{folder}/{path.name}"
        name_fault = _file_name_fault(path, folder)
        if name_fault is not None:
            faults.append(name_fault)
            continue
        document, file_faults = read_document(path, file)
        faults.extend(file_faults)
        kind = None if document is None else _other_kind(document.data, folder)
        if kind is not None:
            faults.append(
                Fault(
                    file=file,
                    line=1,
                    what=f"is a file of {kind}/, by its keys, and lies in {folder}/",
                    value=path.name,
                    allowed=f"files of {folder}/, as schemas/ describes them",
                    way_out=f"move it to {kind}/",
                )
            )
        if document is None or kind is not None:
            unread.append(f"{folder}/{path.stem}")
        else:
            specs[path.stem] = validate(spec_type, document)
    return Folder(specs=specs, faults=tuple(faults), unread=tuple(unread))


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
