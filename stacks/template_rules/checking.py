"""Every rule on every template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stacks.template_rules.acknowledgement import acknowledged
from stacks.template_rules.finding import Finding, Problem, order
from stacks.template_rules.rule import ChangeRule, Rule, RuleFacts, TogetherRule
from stacks.template_rules.rules import rules
from stacks.template_rules.template import Template


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What was found, in order: what stands, and what somebody let stand."""

    findings: tuple[Finding, ...]
    acknowledged: tuple[Finding, ...]

    @property
    def errors(self) -> int:
        """How many errors stand."""
        return sum(finding.severity == "error" for finding in self.findings)

    @property
    def warnings(self) -> int:
        """How many warnings stand."""
        return len(self.findings) - self.errors


def checked(templates: Sequence[Template], previous: Mapping[str, Template] | None = None) -> Checked:
    """Everything that the rules find in these templates; `previous` holds each file's previous version, where there is one."""
    found: dict[int, list[Finding]] = {id(template): [] for template in templates}
    for rule in rules():
        if isinstance(rule, TogetherRule):
            for template, problem in rule.check(templates):
                found[id(template)].append(_finding(rule, template, problem))
            continue
        for template in templates:
            for problem in _problems(rule, template, (previous or {}).get(template.file)):
                found[id(template)].append(_finding(rule, template, problem))
    standing, let_stand = [], []
    for template in templates:
        stands, acknowledged_here = acknowledged(template, found[id(template)])
        standing += stands
        let_stand += acknowledged_here
    return Checked(findings=tuple(sorted(_once(standing), key=order)), acknowledged=tuple(sorted(_once(let_stand), key=order)))


def _problems(rule: Rule | ChangeRule, template: Template, before: Template | None) -> Sequence[Problem]:
    if isinstance(rule, ChangeRule):
        return [] if before is None else list(rule.check(before, template))
    return list(rule.check(template))


def _finding(rule: RuleFacts, template: Template, problem: Problem) -> Finding:
    return Finding(
        rule=rule.id,
        severity=rule.severity if problem.severity is None else problem.severity,
        file=template.file,
        resource=problem.resource,
        path=problem.path,
        what=problem.what,
        value=problem.value,
        allowed=problem.allowed,
        way_out=problem.way_out,
    )


def _once(findings: Sequence[Finding]) -> list[Finding]:
    return list(dict.fromkeys(findings))
