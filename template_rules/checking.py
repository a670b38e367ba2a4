"""Every rule on every template."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from template_rules.acknowledgement import acknowledged
from template_rules.finding import Finding, Problem, order
from template_rules.rule import AnyRule, ChangeRule, Rule, RuleFacts, TogetherRule
from template_rules.rules import BROKEN, rules
from template_rules.template import Template


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


def checked(
    templates: Sequence[Template],
    previous: Mapping[str, Template] | None = None,
    by: Sequence[AnyRule] | None = None,
) -> Checked:
    """Everything that rules find in these templates, by all of them unless some are named.

    `previous` holds each file's previous version, where there is one. A rule that breaks is a
    finding, and hides no other.
    """
    found: dict[int, list[Finding]] = {id(template): [] for template in templates}
    for rule in rules() if by is None else by:
        if isinstance(rule, TogetherRule):
            for template, finding in _together(rule, templates):
                found[id(template)].append(finding)
            continue
        for template in templates:
            found[id(template)] += _alone(rule, template, (previous or {}).get(template.file))
    standing, let_stand = [], []
    for template in templates:
        stands, acknowledged_here = acknowledged(template, found[id(template)])
        standing += stands
        let_stand += acknowledged_here
    return Checked(
        findings=tuple(sorted(_once(standing), key=order)),
        acknowledged=tuple(sorted(_once(let_stand), key=order)),
    )


def _alone(
    rule: Rule | ChangeRule, template: Template, before: Template | None
) -> Iterator[Finding]:
    if isinstance(rule, ChangeRule) and before is None:
        return
    try:
        problems = (
            rule.check(template)
            if isinstance(rule, Rule)
            else rule.check(before or template, template)
        )
        for problem in problems:
            yield _finding(rule, template, problem)
    except Exception as error:
        yield _finding(BROKEN, template, _broken(rule, error))


def _together(
    rule: TogetherRule, templates: Sequence[Template]
) -> Iterator[tuple[Template, Finding]]:
    try:
        for template, problem in rule.check(templates):
            yield template, _finding(rule, template, problem)
    except Exception as error:
        yield templates[0], _finding(BROKEN, templates[0], _broken(rule, error))


def _broken(rule: RuleFacts, error: Exception) -> Problem:
    """A fault of ours, told with where it is: what other rules find must still be read."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    place = (
        ""
        if last is None
        else f" at {last.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{last.tb_lineno}"
    )
    return Problem(
        what=f"rule {rule.id} broke{place}, and says nothing of this template",
        value=f"{type(error).__name__}: {str(error)[:120]!a}",
        way_out="report it with the template; every other rule was run",
    )


def _finding(rule: RuleFacts, template: Template, problem: Problem) -> Finding:
    """A problem with its place; what a macro of one's own may still change is a warning at most."""
    severity = rule.severity if problem.severity is None else problem.severity
    return Finding(
        rule=rule.id,
        severity="warning" if template.macros and rule is not BROKEN else severity,
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
