"""The YAML files of an onboarding root, by kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from onboarding.fault import Fault
from onboarding.source_yaml import read_document
from onboarding.validation import Checked, checked
from onboarding.values import Value

SpecT = TypeVar("SpecT", bound=Value)

LOCK_SUFFIX = ".lock.yaml"


def read_folder(
    root: Path, folder: str, spec_type: type[SpecT], *, optional: bool = False
) -> tuple[dict[str, Checked[SpecT]], list[Fault]]:
    """Every spec file of a folder, by file name without `.yaml`, and what is wrong with the files
    as YAML.
    """
    specs: dict[str, Checked[SpecT]] = {}
    if not (root / folder).is_dir():
        missing = Fault(
            file=folder,
            what="the folder is not there",
            way_out="add it, or name the onboarding root with --root",
        )
        return specs, [] if optional else [missing]
    faults: list[Fault] = []
    for path in _yaml_files(root / folder):
        file = f"{folder}/{path.name}"
        if not path.name.isprintable():
            shown = f"{folder}/{ascii(path.name)[1:-1]}"
            faults.append(
                Fault(
                    file=shown,
                    what="is a file name with characters that are no text",
                    way_out="rename it",
                )
            )
            continue
        if path.suffix == ".yml":
            faults.append(
                Fault(
                    file=file,
                    what="ends in .yml and would be left out",
                    way_out=f"rename it to {path.stem}.yaml",
                )
            )
            continue
        document, syntax_faults = read_document(path, file)
        faults.extend(syntax_faults)
        if document is not None:
            specs[path.stem] = checked(spec_type, document)
    return specs, faults


def _yaml_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        is_hidden_or_lock = path.name.startswith(".") or path.name.endswith(LOCK_SUFFIX)
        if path.suffix in (".yaml", ".yml") and not is_hidden_or_lock:
            yield path
