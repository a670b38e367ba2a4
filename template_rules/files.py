"""Templates of a folder, a file or a cloud assembly, with what cannot be read named."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from template_rules.finding import Finding
from template_rules.rule import RuleFacts
from template_rules.rules import KEY_TWICE, UNREADABLE
from template_rules.short_form import TextFault, document, is_template
from template_rules.stack_facts import StackFacts
from template_rules.template import Template

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
SKIPPED_FOLDERS = ("node_modules", "__pycache__")
LARGEST_BYTES = 20 * 2**20
TEMPLATE_WORDS = ("AWSTemplateFormatVersion", "Resources")


@dataclass(kw_only=True)
class TemplateFiles:
    """What a place holds: templates, findings about files, and files that are something else, each
    with the reason.
    """

    templates: list[Template] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)


def template_files(place: Path, *, region: str | None = None) -> TemplateFiles:
    """Every template of a file, or of a folder and the folders inside; `region` is for stacks that
    do not say theirs.

    Raises `FileNotFoundError` when there is no such place.
    """
    if not place.exists():
        raise FileNotFoundError(
            f"{place}: there is no such file or folder; name one that holds templates, such as cdk.out."
        )
    found = TemplateFiles()
    alone = place.is_file()
    root = place.parent if alone else place
    stacks: dict[Path, StackFacts] = {}
    for path in [place] if alone else _candidates(place):
        if path.parent not in stacks:
            stacks.update(_stacks(path.parent))
            stacks.setdefault(path.parent, StackFacts())
        facts = stacks.get(path, StackFacts())
        facts = StackFacts(name=facts.name, account=facts.account, region=facts.region or region)
        _read(found, path, path.relative_to(root).as_posix(), facts, alone=alone)
    return found


def _candidates(folder: Path) -> Iterator[Path]:
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(
            each
            for each in folders
            if not each.startswith((".", "asset.")) and each not in SKIPPED_FOLDERS
        )
        for name in sorted(files):
            belongs = (
                name in ASSEMBLY_FILES or name.endswith(ASSEMBLY_ENDS) or name.startswith("asset.")
            )
            if name.endswith(SUFFIXES) and not belongs:
                yield Path(here, name)


def _stacks(folder: Path) -> dict[Path, StackFacts]:
    """Name, account and region of each template of a cloud assembly, by its path."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        artifacts = manifest["artifacts"].values()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    found = {}
    for artifact in artifacts:
        properties = artifact.get("properties") or {}
        if artifact.get("type") == "aws:cloudformation:stack" and "templateFile" in properties:
            parts = str(artifact.get("environment", "")).removeprefix("aws://").split("/")
            account, region = parts if len(parts) == 2 else ("unknown-account", "unknown-region")
            found[folder / properties["templateFile"]] = StackFacts(
                name=properties.get("stackName"),
                account=None if account == "unknown-account" else account,
                region=None if region == "unknown-region" else region,
            )
    return found


def _read(found: TemplateFiles, path: Path, name: str, stack: StackFacts, *, alone: bool) -> None:
    meant = alone or name.endswith((".template.json", ".template.yaml", ".template.yml"))
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise TextFault("it is no regular file")
        size = status.st_size
        if size > LARGEST_BYTES:
            raise TextFault(f"it has {size} bytes, more than any template may")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        found.findings.append(
            _finding(UNREADABLE, name, f"the file cannot be read: {error.strerror}")
        )
        return
    except (UnicodeDecodeError, TextFault) as fault:
        why = "it is no UTF-8 text" if isinstance(fault, UnicodeDecodeError) else str(fault)
        _leave(found, name, why, meant=meant)
        return
    try:
        content: Any = document(text, is_json=path.suffix == ".json" or text.lstrip()[:1] == "{")
    except TextFault as fault:
        looks = meant or any(word in text for word in TEMPLATE_WORDS)
        if fault.key_twice and looks:
            found.findings.append(_finding(KEY_TWICE, name, str(fault)))
        else:
            _leave(found, name, str(fault), meant=looks)
        return
    if is_template(content):
        found.templates.append(Template(name, content, stack=stack, size_bytes=size))
    else:
        _leave(
            found,
            name,
            "it is no CloudFormation template: it has no Resources with types",
            meant=meant,
        )


def _leave(found: TemplateFiles, name: str, why: str, *, meant: bool) -> None:
    """A file that is meant to be a template is a fault; another is left out, and named."""
    if meant:
        found.findings.append(_finding(UNREADABLE, name, why))
    else:
        found.skipped.append((name, why))


def _finding(rule: RuleFacts, name: str, what: str) -> Finding:
    way_out = "mend it, or leave it out of the folder"
    return Finding(
        rule=rule.id,
        severity=rule.severity,
        file=name,
        resource=None,
        path="",
        what=what,
        value=None,
        allowed=None,
        way_out=way_out,
    )
