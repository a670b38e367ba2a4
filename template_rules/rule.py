"""The base class of our cfn-lint rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from cfnlint.rules import CloudFormationLintRule, RuleMatch
from cfnlint.template import Template as LintedTemplate

from template_rules.intrinsics import Stack
from template_rules.templates import Assembly, Problem, Template

_assemblies: WeakKeyDictionary[Any, Assembly] = WeakKeyDictionary()


class TemplateRule(CloudFormationLintRule):
    """A cfn-lint rule on one template with resolved values."""

    source_url = "https://docs.aws.amazon.com/sagemaker/latest/APIReference/"
    tags: ClassVar[list[str]] = ["sagemaker"]

    def problems(self, assembly: Assembly) -> Iterator[Problem]:
        """Yield the faults of a template, which is an assembly of one."""
        raise NotImplementedError

    def match(self, cfn: LintedTemplate) -> list[RuleMatch]:
        """Return the faults as cfn-lint takes them."""
        if cfn not in _assemblies:
            region = cfn.regions[0] if len(cfn.regions) == 1 else None
            document = cfn.template if isinstance(cfn.template, dict) else {}
            template = Template(str(cfn.filename), document, stack=Stack(region=region))
            _assemblies[cfn] = Assembly([template])
        found = self.problems(_assemblies[cfn])
        return [RuleMatch(problem.keys, problem.message) for problem in found]
