"""The base class of our cfn-lint rules, and the decorators that make one of a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from cfnlint.rules import CloudFormationLintRule, RuleMatch
from cfnlint.template import Template as LintedTemplate

from template_rules.intrinsics import Stack
from template_rules.templates import Assembly, Problem, Resource, Template

Problems = Callable[[Assembly], Iterator[Problem]]
_assemblies: WeakKeyDictionary[Any, Assembly] = WeakKeyDictionary()


class TemplateRule(CloudFormationLintRule):
    """A cfn-lint rule on one template with resolved values, which is an assembly of one."""

    source_url: ClassVar[str] = "https://docs.aws.amazon.com/sagemaker/latest/APIReference/"
    tags: ClassVar[list[str]] = ["sagemaker"]
    problems: ClassVar[Problems]

    def match(self, cfn: LintedTemplate) -> list[RuleMatch]:
        """Return the faults as cfn-lint takes them."""
        if cfn not in _assemblies:
            region = cfn.regions[0] if len(cfn.regions) == 1 else None
            document = cfn.template if isinstance(cfn.template, dict) else {}
            template = Template(str(cfn.filename), document, stack=Stack(region=region))
            _assemblies[cfn] = Assembly([template])
        problems = type(self).problems(_assemblies[cfn])
        return [RuleMatch(problem.keys, problem.message) for problem in problems]


def template_rule(id: str, shortdesc: str) -> Callable[[Problems], type[TemplateRule]]:
    """Return a decorator that makes a rule of a function of a template; its docstring is shown."""

    def decorate(function: Problems) -> type[TemplateRule]:
        members = {
            "__doc__": function.__doc__,
            "__module__": function.__module__,
            "id": id,
            "shortdesc": shortdesc,
            "problems": staticmethod(function),
        }
        return type(function.__name__, (TemplateRule,), members)

    return decorate


def resource_rule(
    id: str, shortdesc: str, *types: str
) -> Callable[[Callable[[Resource], Iterator[Problem]]], type[TemplateRule]]:
    """Return a decorator that makes a rule of a function of a resource of one of these types."""

    def decorate(function: Callable[[Resource], Iterator[Problem]]) -> type[TemplateRule]:
        @wraps(function)
        def problems(assembly: Assembly) -> Iterator[Problem]:
            for resource in assembly.of_type(*types):
                yield from function(resource)

        return template_rule(id, shortdesc)(problems)

    return decorate
