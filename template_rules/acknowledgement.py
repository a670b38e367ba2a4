"""What somebody looked at and let stand, in a resource's or the template's metadata.

`Metadata: {Roundhouse: {acknowledge: [{rule: RH235, reason: ...}]}}`; a `path` narrows it to one
place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from onboarding.nearest import did_you_mean
from template_rules.finding import Finding, Severity
from template_rules.hosting import roundhouse_metadata
from template_rules.rule import RuleFacts
from template_rules.rules import ACKNOWLEDGEMENT, OF_THE_RUN, STALE, all_rules
from template_rules.template import Template
from template_rules.values import fields, items

WAY = "write {rule: RH..., reason: why}; a path below the resource narrows it further"


@dataclass(frozen=True, eq=False)
class Acknowledgement:
    """One of them: `path` is None for every place of the resource."""

    resource: str | None
    place: str
    rule: str
    reason: str
    path: str | None

    def meets(self, finding: Finding) -> bool:
        """True for a finding that it lets stand."""
        here = (
            self.path is None
            or finding.path == self.path
            or finding.path.startswith((f"{self.path}.", f"{self.path}["))
        )
        return (self.resource, self.rule) == (finding.resource, finding.rule) and here


def acknowledged(
    template: Template, findings: list[Finding]
) -> tuple[list[Finding], list[Finding]]:
    """(findings that stand, findings that are acknowledged); ill-formed and stale acknowledgements
    are findings themselves.
    """
    given, standing = [], []
    for holder, resource, place in _holders(template):
        for index, entry in enumerate(items(fields(holder).get("acknowledge"))):
            read = _read(entry, resource, f"{place}[{index}]")
            if isinstance(read, Acknowledgement):
                given.append(read)
            else:
                standing.append(
                    _fault(template, ACKNOWLEDGEMENT, resource, f"{place}[{index}]", *read)
                )
    let_stand = []
    used: set[int] = set()
    for finding in findings:
        match = next((index for index, each in enumerate(given) if each.meets(finding)), None)
        if match is None:
            standing.append(finding)
        else:
            used.add(match)
            let_stand.append(replace(finding, reason=given[match].reason))
    for index, each in enumerate(given):
        if index not in used:
            what = "nothing is found that it acknowledges"
            standing.append(
                _fault(template, STALE, each.resource, each.place, what, each.rule, "take it out")
            )
    return standing, let_stand


def _holders(template: Template) -> Iterator[tuple[dict[str, Any], str | None, str]]:
    place = "Metadata.Roundhouse.acknowledge"
    yield roundhouse_metadata(template.document), None, place
    for resource in template.resources.values():
        yield roundhouse_metadata(resource.raw), resource.logical_id, place


def _read(
    entry: Any, resource: str | None, place: str
) -> Acknowledgement | tuple[str, str | None, str]:
    """The acknowledgement, or (what is wrong, the value, the way out)."""
    given = fields(entry)
    rule, reason, path = given.get("rule"), given.get("reason"), given.get("path")
    known = {each.id for each in all_rules()}
    unknown = sorted(set(given) - {"rule", "reason", "path"})
    if not isinstance(rule, str) or rule not in known:
        return (
            "the acknowledgement names no rule",
            None if rule is None else str(rule),
            did_you_mean(str(rule), known, WAY),
        )
    if rule in {each.id for each in OF_THE_RUN}:
        return "the rule cannot be acknowledged", rule, "mend what it found"
    if not isinstance(reason, str) or len(reason.split()) < 2:
        return "the acknowledgement gives no reason", None if reason is None else str(reason), WAY
    if unknown or not isinstance(path, str | None):
        return "the acknowledgement has another key", ", ".join(unknown) or "path", WAY
    return Acknowledgement(resource, place, rule, reason, path)


def _fault(
    template: Template,
    rule: RuleFacts,
    resource: str | None,
    place: str,
    what: str,
    value: str | None,
    way_out: str,
) -> Finding:
    severity: Severity = rule.severity
    return Finding(
        rule=rule.id,
        severity=severity,
        file=template.file,
        resource=resource,
        path=place,
        what=what,
        value=value,
        allowed=None,
        way_out=way_out,
    )
