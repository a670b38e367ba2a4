"""A rule: a function that yields the problems of a cloud assembly, with an id and a sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from template_rules.templates import Assembly, Finding, Resource

Problems = Callable[[Assembly], Iterator[Finding]]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule with its id, and what a sound assembly keeps or a faulty one has."""

    id: str
    shortdesc: str
    problems: Problems


RULES: list[Rule] = []
"""Every rule of the modules that were imported."""


def rule(id: str, shortdesc: str) -> Callable[[Problems], Rule]:
    """Return a decorator that makes a rule of a function of an assembly, and adds it to RULES."""

    def decorate(problems: Problems) -> Rule:
        RULES.append(Rule(id=id, shortdesc=shortdesc, problems=problems))
        return RULES[-1]

    return decorate


def resource_rule(
    id: str, shortdesc: str, *types: str
) -> Callable[[Callable[[Resource], Iterator[Finding]]], Rule]:
    """Return a decorator that makes a rule of a function of a resource of one of these types."""

    def decorate(function: Callable[[Resource], Iterator[Finding]]) -> Rule:
        def problems(assembly: Assembly) -> Iterator[Finding]:
            for resource in assembly.of_type(*types):
                yield from function(resource)

        return rule(id, shortdesc)(problems)

    return decorate
