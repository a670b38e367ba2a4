"""Findings of all templates of a folder: by cfn-lint, and by our rules."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from template_rules.read import TemplateFiles, read_templates
from template_rules.rule import RULES, Rule
from template_rules.templates import Assembly, Problem, Severity, Template
from template_rules.values import at, items

UNREADABLE = "E9000"
REDUNDANT_ORDER = "W3005"
"""A DependsOn beside a reference, as the CDK's constructs of functions and state machines write."""
PROMOTED = {
    "W3037": "an action that IAM does not have allows nothing",
    "W1020": "a substitution that is not there",
}
"""Warnings of cfn-lint that refuse a deployment here, and why."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One fault of a template; `message` holds the value, the allowed values and the way out."""

    rule: str
    severity: Severity
    template: str
    resource: str | None
    path: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        line = "" if self.line is None else f":{self.line}"
        return f"{self.template}{line}: {self.rule} {self.place}: {self.message}"

    @property
    def place(self) -> str:
        """Return the resource and the path in it."""
        return ".".join(part for part in (self.resource, self.path) if part) or "template"


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
        Finding(
            rule=UNREADABLE,
            severity="error",
            template=name,
            resource=None,
            path="",
            message=f"{fault}; synthesise again",
        )
        for name, fault in files.faults
    }
    for template in files.templates:
        if only is None or Path(template.file).name in only:
            found |= set(_linted(template))
    found |= set(own_findings(files.templates))
    return tuple(sorted(found, key=lambda item: (item.template, item.line or 0, str(item))))


def own_findings(templates: Sequence[Template]) -> Iterator[Finding]:
    """Yield what our rules find in templates that are deployed together."""
    assembly = Assembly(templates)
    for rule in own_rules():
        for problem in rule.problems(assembly):
            yield from _unless_suppressed(rule.id, problem)


def own_rules() -> Sequence[Rule]:
    """Return our rules."""
    from template_rules.rules import (  # noqa: F401 - they register
        alarms,
        builds,
        endpoints,
        identities,
        names,
        roles,
        stores,
    )

    return RULES


@cache
def _cfn_lint_rules() -> Any:
    """Return cfn-lint's rules, loaded once."""
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
    for match in run_template_by_data(document, config, _cfn_lint_rules()):
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


def _unless_suppressed(rule: str, problem: Problem) -> Iterator[Finding]:
    """Yield a finding, unless cfn-lint metadata of its resource or template ignores the rule."""
    resource = problem.resource
    holders = (resource.raw, resource.template.document)
    ignored = [at(holder, "Metadata", "cfn-lint", "config", "ignore_checks") for holder in holders]
    if any(rule in items(given) for given in ignored):
        return
    yield Finding(
        rule=rule,
        severity="error",
        template=resource.template.file,
        resource=resource.logical_id,
        path=problem.path,
        message=problem.message,
        line=_line(resource.template.document, problem.keys),
    )


def _line(document: Any, keys: list[str | int]) -> int | None:
    """Return the line of the innermost key that the template has; None without positions."""
    line = None
    for key in keys:
        if isinstance(document, dict):
            own = next((name for name in document if name == key), None)
            mark = getattr(own, "start_mark", None)
            document = document.get(key)
        elif isinstance(document, list) and isinstance(key, int) and key < len(document):
            mark = getattr(document[key], "start_mark", None)
        else:
            break
        line = mark.line + 1 if mark is not None else line
    return line
