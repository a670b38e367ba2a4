"""Reads the templates of a cloud assembly, with nested assemblies, or of any folder or file."""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from template_rules.intrinsics import Stack
from template_rules.templates import Template

SUFFIXES = (".json", ".yaml", ".yml", ".template")
ASSEMBLY_FILES = (
    "manifest.json",
    "tree.json",
    "cdk.out",
    "validation-report.json",
    "package.json",
    "package-lock.json",
)
ASSEMBLY_ENDS = (".assets.json", ".metadata.json")
TEMPLATE_ENDS = (".template.json", ".template.yaml", ".template.yml")
SKIPPED_FOLDERS = ("node_modules", "__pycache__")
LARGEST_BYTES = 20 * 2**20


@dataclass(kw_only=True)
class TemplateFiles:
    """The templates of a folder, faulty files with their faults, and other files with reasons."""

    templates: list[Template] = field(default_factory=list)
    faults: list[tuple[str, str]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)


def read_templates(folder: Path, *, region: str | None = None) -> TemplateFiles:
    """Return the templates of a file, or of a folder and the folders inside.

    `region` is for stacks whose manifest names none. Raises `FileNotFoundError`.
    """
    if not folder.exists():
        raise FileNotFoundError(
            f"{folder}: there is no such file or folder; name one with templates, such as cdk.out."
        )
    files = TemplateFiles()
    alone = folder.is_file()
    root = folder.parent if alone else folder
    stacks: dict[Path, tuple[Stack, frozenset[str]]] = {}
    unnamed: set[Path] = set()
    for path in [folder] if alone else _candidates(folder):
        if path.parent not in stacks:
            stacks[path.parent] = (Stack(), frozenset())
            stacks.update(_stacks(path.parent))
            unnamed |= _earlier_templates(path.parent)
        if path in unnamed and not alone:
            reason = "manifest.json does not name it: it is of an earlier synthesis"
            files.skipped.append((path.relative_to(root).as_posix(), reason))
            continue
        stack, depends_on = stacks.get(path, stacks[path.parent])
        stack = Stack(name=stack.name, account=stack.account, region=stack.region or region)
        name = path.relative_to(root).as_posix()
        meant = alone or name.endswith(TEMPLATE_ENDS)
        document, fault = _document(path)
        if document is not None:
            files.templates.append(
                Template(
                    name, document, stack=stack, depends_on=depends_on, text_sha256=_sha256(path)
                )
            )
        elif meant:
            files.faults.append((name, fault))
        else:
            files.skipped.append((name, fault))
    return files


def _candidates(folder: Path) -> Iterator[Path]:
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith((".", "asset.")) and name not in SKIPPED_FOLDERS
        )
        for name in sorted(names):
            belongs = name in ASSEMBLY_FILES or name.endswith(ASSEMBLY_ENDS)
            if name.endswith(SUFFIXES) and not belongs and not name.startswith("asset."):
                yield Path(here, name)


def _artifacts(folder: Path, kind: str) -> dict[str, Any]:
    """Return the artifacts of a type of a cloud assembly; none of any other folder."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        return {
            key: artifact
            for key, artifact in manifest["artifacts"].items()
            if artifact.get("type") == kind
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _earlier_templates(folder: Path) -> set[Path]:
    """Return the templates that earlier syntheses left in the folder of a cloud assembly.

    `cdk synth` removes none. A nested stack's template is named by the manifest of its assets.
    """
    named = {path.name for path in _stacks(folder)}
    if not named:
        return set()
    for artifact in _artifacts(folder, "cdk:asset-manifest").values():
        try:
            text = (folder / str(artifact["properties"]["file"])).read_text(encoding="utf-8")
            named.update(str(item["source"]["path"]) for item in json.loads(text)["files"].values())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return set()
    ends = (f"*{end}" for end in TEMPLATE_ENDS)
    return {path for end in ends for path in folder.glob(end) if path.name not in named}


def _stacks(folder: Path) -> dict[Path, tuple[Stack, frozenset[str]]]:
    """Return the stack of each template of a cloud assembly, and the stacks it depends on."""
    stacks = _artifacts(folder, "aws:cloudformation:stack")
    names = {key: _stack_name(key, artifact) for key, artifact in stacks.items()}
    found = {}
    for key, artifact in stacks.items():
        properties = artifact.get("properties") or {}
        parts = str(artifact.get("environment", "")).removeprefix("aws://").split("/")
        account, region = parts if len(parts) == 2 else ("unknown-account", "unknown-region")
        stack = Stack(
            name=names[key],
            account=None if account == "unknown-account" else account,
            region=None if region == "unknown-region" else region,
        )
        depends_on = frozenset(
            names[name] for name in artifact.get("dependencies", ()) if name in names
        )
        found[folder / str(properties.get("templateFile"))] = (stack, depends_on)
    return found


def _stack_name(key: str, artifact: Any) -> str:
    return str((artifact.get("properties") or {}).get("stackName", key))


def _document(path: Path) -> tuple[dict[str, Any] | None, str]:
    """Return a template with the lines of its parts, or None and the reason."""
    from cfnlint.decode.decode import decode

    try:
        if not path.is_file() or path.stat().st_size > LARGEST_BYTES:
            return None, f"it is no regular file of at most {LARGEST_BYTES} bytes"
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        return None, f"the file cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        return None, "it is no UTF-8 text"
    is_json = text.lstrip()[:1] == "{"
    document, matches = _json(path) if is_json else decode(str(path))
    if matches:
        return None, "; ".join(f"line {match.linenumber}: {match.message}" for match in matches)
    resources = document.get("Resources") if isinstance(document, dict) else None
    typed = isinstance(resources, dict) and any(
        isinstance(item, dict) and "Type" in item for item in resources.values()
    )
    if not typed:
        return None, "it is no CloudFormation template: it has no Resources with types"
    return document, ""


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _json(path: Path) -> tuple[Any, Any]:
    """Return a JSON template; cfn-lint's own decoder would try YAML first, which takes seconds."""
    from cfnlint.decode import cfn_json
    from cfnlint.decode.decode import decode

    try:
        return cfn_json.load(str(path)), []
    except (ValueError, RecursionError):
        document, matches = decode(str(path))
        return document, matches
