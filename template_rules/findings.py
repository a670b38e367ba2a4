"""The templates of a cloud assembly, and what cfn-lint and our rules find in them."""

import hashlib
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from template_rules.intrinsics import Stack
from template_rules.rule import RULES, Rule
from template_rules.templates import Assembly, Finding, Template
from template_rules.values import at, items


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


UNREADABLE = "E9000"
REDUNDANT_ORDER = "W3005"
"""A DependsOn beside a reference, as the CDK's constructs of functions and state machines write."""
PROMOTED = {
    "W3037": "an action that IAM does not have allows nothing",
    "W1020": "a substitution that is not there",
}
"""Warnings of cfn-lint that refuse a deployment here, and why."""


def check(folder: Path, *, only: Collection[str] | None = None) -> tuple[Finding, ...]:
    """Return the findings of a cloud assembly, in order.

    `only` are the names of the files whose findings are wanted, None: all. Raises
    `FileNotFoundError` when the folder is no cloud assembly.
    """
    found = check_files(read_templates(folder), only=only)
    return tuple(item for item in found if only is None or Path(item.template).name in only)


def check_files(
    files: TemplateFiles, *, only: Collection[str] | None = None
) -> tuple[Finding, ...]:
    """Return the findings of templates that are read already; only those of `only` are linted."""
    found = {
        Finding(rule=UNREADABLE, template=name, message=f"{fault}; synthesise again")
        for name, fault in files.faults
    }
    for template in files.templates:
        if only is None or Path(template.file).name in only:
            found |= set(_linted(template))
    found |= set(own_findings(files.templates))
    return tuple(sorted(found, key=lambda item: (item.template, item.line or 0, str(item))))


def own_findings(templates: Sequence[Template]) -> Iterator[Finding]:
    """Yield what our rules find in templates that are deployed together.

    Left out is what cfn-lint metadata of its resource or template ignores.
    """
    assembly, by_file = Assembly(templates), {template.file: template for template in templates}
    for rule in own_rules():
        for problem in rule.problems(assembly):
            template = by_file[problem.template]
            holders = (template.resources[str(problem.resource)].raw, template.document)
            ignored = (
                at(item, "Metadata", "cfn-lint", "config", "ignore_checks") for item in holders
            )
            if not any(rule.id in items(given) for given in ignored):
                yield replace(problem, rule=rule.id)


def own_rules() -> Sequence[Rule]:
    """Return our rules."""
    from template_rules.rules import (  # noqa: F401 - they register
        alarms,
        builds,
        endpoints,
        identities,
        roles,
        stores,
    )

    return RULES


@cache
def cfn_lint_rules() -> Any:
    """Return cfn-lint's rules, which take a second to load, once."""
    from cfnlint.config import ConfigMixIn
    from cfnlint.runner import Runner

    return Runner(ConfigMixIn(regions=["us-east-1"])).rules


def _linted(template: Template) -> tuple[Finding, ...]:
    """Return what cfn-lint finds in one template; of a text that it has linted, what it found."""
    region = template.stack.region or "us-east-1"
    if template.text_sha256 is None:
        return tuple(_lint(template, region))
    key = (template.file, region, template.text_sha256)
    if key not in _LINTED:
        _LINTED[key] = tuple(_lint(template, region))
    return _LINTED[key]


_LINTED: dict[tuple[str, str, str], tuple[Finding, ...]] = {}
"""By file, region and text: a deployment synthesises most stacks twice, with the same text."""


def _lint(template: Template, region: str) -> Iterator[Finding]:
    from cfnlint.config import ConfigMixIn
    from cfnlint.runner.template.runner import run_template_by_data

    config = ConfigMixIn(regions=[region])
    document: Any = template.document
    for match in run_template_by_data(document, config, cfn_lint_rules()):
        if match.rule.id == REDUNDANT_ORDER:
            continue
        path = [str(key) for key in getattr(match, "path", None) or ()]
        in_resource = len(path) > 1 and path[0] == "Resources"
        rule = match.rule.id
        reason = f"; {PROMOTED[rule]}" if rule in PROMOTED else ""
        yield Finding(
            rule=rule,
            severity="error" if rule[0] == "E" or rule in PROMOTED else "warning",
            template=template.file,
            resource=path[1] if in_resource else None,
            path=".".join(path[2:] if in_resource else path).removeprefix("Properties."),
            message=f"{match.message}{reason}",
            line=match.linenumber,
        )
