"""Reads the table of cases: for every rule, changes to a sound template that it refuses, and near
ones that it accepts.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from template_rules.checking import checked
from template_rules.finding import Finding
from template_rules.short_form import document
from template_rules.stack_facts import StackFacts
from template_rules.template import Template

HERE = Path(__file__).parent
OF_A_RESOURCE = (
    "Type",
    "DependsOn",
    "Metadata",
    "DeletionPolicy",
    "UpdateReplacePolicy",
    "Condition",
    "Properties",
)
STACK = {"name": "a", "account": "111122223333", "region": "us-east-1"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One change of a base, and whether the rule refuses it."""

    rule: str
    number: int
    refuses: bool
    base: str
    change: dict[str, Any]
    previous: dict[str, Any] | None
    together: bool

    def __str__(self) -> str:
        return f"{self.rule}-{'refuses' if self.refuses else 'accepts'}-{self.number}"

    def findings(self) -> list[Finding]:
        """What the rule says of the changed template."""
        now = template(self.base, self.change)
        before, others = {}, []
        if self.previous is not None:
            before = {
                now.file: template(self.base, {**self.previous, **self.change.get("$.before", {})})
            }
        if self.together:
            now = template(self.base, {"$.stack": STACK, **self.change})
            others = [
                template(self.base, {"$.stack": {**STACK, "name": "b"}}, file="other.template.json")
            ]
        found = checked([*others, now], before).findings
        return [each for each in found if each.rule == self.rule]


@cache
def bases() -> dict[str, Any]:
    """Every sound template, by name."""
    return document((HERE / "bases.yaml").read_text(encoding="utf-8"), is_json=False)


def all_cases() -> Iterator[Case]:
    """Every case of every table."""
    for path in sorted((HERE / "cases").glob("*.yaml")):
        for title, table in document(path.read_text(encoding="utf-8"), is_json=False).items():
            for key in ("refuses", "accepts"):
                for number, change in enumerate(table[key]):
                    yield Case(
                        rule=title.split()[0],
                        number=number,
                        refuses=key == "refuses",
                        base=table["base"],
                        change=expanded(change),
                        previous=table.get("previous"),
                        together=table.get("together", False),
                    )


def template(base: str, change: dict[str, Any], file: str = "case.template.json") -> Template:
    """A base with a change: `Resource.Property.0.Path: value`, `$.Section: value`; null takes it
    out.
    """
    content = copy.deepcopy(bases()[base])
    stack, size_bytes = StackFacts(), 0
    for path, value in change.items():
        parts = path.split(".")
        if path == "$.stack":
            stack = StackFacts(**value)
        elif path == "$.size_bytes":
            size_bytes = value
        elif path == "$.rename":
            for old, new in value.items():
                content["Resources"][new] = content["Resources"].pop(old)
        elif path == "$.Resources":
            content["Resources"] = value
        elif parts[0] == "$" and path != "$.before":
            put(content, parts[1:], copy.deepcopy(value))
        elif parts[0] != "$":
            inner = [] if len(parts) == 1 or parts[1] in OF_A_RESOURCE else ["Properties"]
            put(content["Resources"], [parts[0], *inner, *parts[1:]], copy.deepcopy(value))
    return Template(file, content, stack=stack, size_bytes=size_bytes)


def put(holder: Any, path: list[str], value: Any) -> None:
    """Puts a value at a path; a mapping that is there and one that is given become one only at the
    top of a section.
    """
    for part in path[:-1]:
        if isinstance(holder, dict) and part not in holder:
            holder[part] = {}
        holder = holder[int(part)] if isinstance(holder, list) else holder[part]
    last = path[-1]
    if isinstance(holder, list):
        index = int(last)
        if value is None:
            del holder[index]
        elif index == len(holder):
            holder.append(value)
        else:
            holder[index] = value
    elif value is None:
        holder.pop(last, None)
    else:
        holder[last] = value


def expanded(value: Any) -> Any:
    """`!Many` as so many keys, `!Repeat` as so many items, `!Long` as so many characters."""
    if isinstance(value, list):
        return [expanded(each) for each in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"Fn::Many"}:
        return {
            f"key{number}": value["Fn::Many"]["of"] for number in range(value["Fn::Many"]["count"])
        }
    if set(value) == {"Fn::Repeat"}:
        return [value["Fn::Repeat"]["of"]] * value["Fn::Repeat"]["count"]
    if set(value) == {"Fn::Long"}:
        return "x" * int(value["Fn::Long"])
    return {key: expanded(each) for key, each in value.items()}
