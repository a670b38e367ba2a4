"""A rule: an id, one sentence that a sound template keeps, and the pure function that finds where
it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from template_rules.finding import Problem, Severity
from template_rules.template import Template

Check = Callable[[Template], Iterable[Problem]]
ChangeCheck = Callable[[Template, Template], Iterable[Problem]]
TogetherCheck = Callable[[Sequence[Template]], Iterable[tuple[Template, Problem]]]


@dataclass(frozen=True, kw_only=True)
class RuleFacts:
    """What every rule has: its sentence says what holds, not what is broken."""

    id: str
    sentence: str
    severity: Severity


@dataclass(frozen=True, kw_only=True)
class Rule(RuleFacts):
    """A rule of one template."""

    check: Check


@dataclass(frozen=True, kw_only=True)
class ChangeRule(RuleFacts):
    """A rule of a template and its next version: called with the previous one first."""

    check: ChangeCheck


@dataclass(frozen=True, kw_only=True)
class TogetherRule(RuleFacts):
    """A rule of all templates of one run."""

    check: TogetherCheck


AnyRule = Rule | ChangeRule | TogetherRule


def rule(id: str, sentence: str, severity: Severity = "error") -> Callable[[Check], Rule]:
    """Makes a rule of a function of one template."""
    return lambda check: Rule(id=id, sentence=sentence, severity=severity, check=check)


def change_rule(
    id: str, sentence: str, severity: Severity = "error"
) -> Callable[[ChangeCheck], ChangeRule]:
    """Makes a rule of a function of the previous template and its next version."""
    return lambda check: ChangeRule(id=id, sentence=sentence, severity=severity, check=check)


def together_rule(
    id: str, sentence: str, severity: Severity = "error"
) -> Callable[[TogetherCheck], TogetherRule]:
    """Makes a rule of a function of all templates of one run."""
    return lambda check: TogetherRule(id=id, sentence=sentence, severity=severity, check=check)
