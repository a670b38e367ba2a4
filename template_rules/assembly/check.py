"""An assembly check: a rule that needs every template of a cloud assembly."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from template_rules.templates import Assembly, Problem

Problems = Callable[[Assembly], Iterator[Problem]]


@dataclass(frozen=True, kw_only=True)
class AssemblyCheck:
    """A check with an id and one sentence that a sound assembly keeps."""

    id: str
    shortdesc: str
    problems: Problems


CHECKS: list[AssemblyCheck] = []
"""Every check of the modules that were imported."""


def assembly_check(id: str, shortdesc: str) -> Callable[[Problems], AssemblyCheck]:
    """Return a decorator that makes a check of a function, and adds it to CHECKS."""

    def decorate(problems: Problems) -> AssemblyCheck:
        CHECKS.append(AssemblyCheck(id=id, shortdesc=shortdesc, problems=problems))
        return CHECKS[-1]

    return decorate
