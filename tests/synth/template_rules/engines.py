"""Three engines on one template: ours, cfn-lint and cloudformation-validate."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

from cfnlint.api import ManualArgs
from cfnlint.api import lint as cfn_lint
from cloudformation_validate import CompositeEngine, Severity, TemplateContent

from template_rules.checking import checked
from template_rules.template import Template

Document = dict[str, Any]
Said = dict[str, str]
"""What an engine says, each with the id of the rule that says it."""


def ours(document: Document) -> Said:
    """Our rules' findings."""
    return {
        str(each): each.rule
        for each in checked([Template("base.template.json", document)]).findings
    }


def by_cfn_lint(document: Document) -> Said:
    """cfn-lint's errors and warnings."""
    return says_cfn_lint(json.dumps(document))


def by_validate(document: Document) -> Said:
    """What cloudformation-validate reports above information."""
    return says_validate(json.dumps(document))


def says_cfn_lint(text: str) -> Said:
    """cfn-lint's errors and warnings on a template's text."""
    matches = cfn_lint(text, config=ManualArgs(regions=["us-east-1"]))
    return {f"{each.rule.id} {each.message} {each.path}": each.rule.id for each in matches}


def says_validate(text: str) -> Said:
    """What cloudformation-validate reports above information on a template's text."""
    report = _engine().validate_template(TemplateContent(text, "base.template.json"))
    told = [
        each for each in report.diagnostics if each.severity not in (Severity.INFO, Severity.DEBUG)
    ]
    return {f"{each.rule_id} {each.message} {each.entity}": each.rule_id for each in told}


ENGINES: dict[str, Callable[[Document], Said]] = {
    "our rules": ours,
    "cfn-lint": by_cfn_lint,
    "cloudformation-validate": by_validate,
}


@cache
def _engine() -> CompositeEngine:
    """Its rules are compiled once."""
    return CompositeEngine()
