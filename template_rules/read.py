"""Reads the templates of a cloud assembly, with the assemblies of its stages."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from template_rules.intrinsics import Stack
from template_rules.templates import Template


@dataclass(kw_only=True)
class TemplateFiles:
    """The templates of a cloud assembly, and the faulty files with their faults."""

    templates: list[Template] = field(default_factory=list)
    faults: list[tuple[str, str]] = field(default_factory=list)


def read_templates(folder: Path) -> TemplateFiles:
    """Return the template of every stack that the manifests of a cloud assembly name.

    What earlier syntheses left in the folder is no stack of it. Raises `FileNotFoundError` when
    the folder is no cloud assembly.
    """
    if not (folder / "manifest.json").is_file():
        raise FileNotFoundError(f"{folder}: there is no cloud assembly; run `npx cdk synth`.")
    files = TemplateFiles()
    for path, stack in _stacks(folder):
        name = path.relative_to(folder).as_posix()
        document, fault = _document(path)
        if document is None:
            files.faults.append((name, fault))
            continue
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        files.templates.append(Template(name, document, stack=stack, text_sha256=digest))
    return files


def _stacks(folder: Path) -> Iterator[tuple[Path, Stack]]:
    """Yield every template and its stack, those of stages too."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    artifacts = manifest.get("artifacts", {})
    for artifact in artifacts.values():
        if artifact["type"] == "cdk:cloud-assembly":
            yield from _stacks(folder / artifact["properties"]["directoryName"])
    for key, artifact in artifacts.items():
        if artifact["type"] != "aws:cloudformation:stack":
            continue
        account, region = artifact["environment"].removeprefix("aws://").split("/")
        stack = Stack(
            name=artifact["properties"].get("stackName", key),
            account=None if account == "unknown-account" else account,
            region=None if region == "unknown-region" else region,
        )
        yield folder / artifact["properties"]["templateFile"], stack


def _document(path: Path) -> tuple[dict[str, Any] | None, str]:
    """Return a template with the lines of its parts, or None and the reason."""
    from cfnlint.decode import cfn_json

    try:
        document: Any = cfn_json.load(str(path))
    except (OSError, ValueError, RecursionError) as error:
        return None, f"the template cannot be read: {' '.join(str(error).split())[:160]}"
    if not isinstance(document, dict) or not isinstance(document.get("Resources"), dict):
        return None, "it is no CloudFormation template: it has no Resources"
    return document, ""
