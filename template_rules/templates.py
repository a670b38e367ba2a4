"""The templates of a cloud assembly and their resources, with resolved properties."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from template_rules.intrinsics import Resolver, Stack
from template_rules.values import at, display, fields

Severity = Literal["error", "warning"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One fault of a template; `message` holds the value, the allowed values and the way out."""

    rule: str = ""
    severity: Severity = "error"
    template: str
    resource: str | None = None
    path: str = ""
    message: str
    line: int | None = None

    def __str__(self) -> str:
        line = "" if self.line is None else f":{self.line}"
        return f"{self.template}{line}: {self.rule} {self.place}: {self.message}"

    @property
    def place(self) -> str:
        """Return the resource and the path in it."""
        return ".".join(part for part in (self.resource, self.path) if part) or "template"


class Template:
    """One CloudFormation template of an assembly."""

    def __init__(
        self,
        file: str,
        document: Mapping[str, Any],
        *,
        stack: Stack | None = None,
        text_sha256: str | None = None,
    ) -> None:
        self.file = file
        self.document = document
        self.text_sha256 = text_sha256
        self.stack = Stack() if stack is None else stack
        self.resolver = Resolver(document, self.stack)

    @cached_property
    def resources(self) -> "dict[str, Resource]":
        """Return the resources that have a type, by logical id."""
        return {
            logical_id: Resource(template=self, logical_id=logical_id, type=raw["Type"], raw=raw)
            for logical_id, raw in fields(self.document.get("Resources")).items()
            if isinstance(raw, dict) and isinstance(raw.get("Type"), str)
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class Resource:
    """One resource: `properties` are resolved, `raw` is as the template has it."""

    template: Template
    logical_id: str
    type: str
    raw: Mapping[str, Any]

    @cached_property
    def properties(self) -> dict[str, Any]:
        """Return the resolved properties."""
        return fields(self.template.resolver.resolve(self.raw.get("Properties")))

    @cached_property
    def name(self) -> str:
        """Return the name in AWS, or a marked text that stands for it."""
        return self.template.resolver.name(self.logical_id)

    @cached_property
    def arn(self) -> str | None:
        """Return the ARN, with marked parts; None for a type without one here."""
        return self.template.resolver.arn(self.logical_id)

    def at(self, path: str) -> Any:
        """Return the property at a dotted path; None when a key is missing or unknown."""
        return at(self.properties, *path.split("."))

    def problem(
        self,
        path: str,
        what: str,
        way_out: str = "name one of these",
        *,
        value: Any = None,
        allowed: str | Iterable[object] | None = None,
    ) -> "Finding":
        """Return a fault of this resource; `allowed` are the allowed values or say them."""
        if allowed is not None and not isinstance(allowed, str):
            allowed = ", ".join(map(str, allowed))
        given = "" if value is None else f": {display(value)}"
        choice = "" if allowed is None else f" (allowed: {allowed})"
        return Finding(
            template=self.template.file,
            resource=self.logical_id,
            path=path,
            message=display_whole(f"{what}{given}{choice}; {way_out}"),
        )


class Assembly:
    """All templates that are deployed together."""

    def __init__(self, templates: Sequence[Template]) -> None:
        self.templates = tuple(templates)

    @cached_property
    def _by_type(self) -> dict[str, list[Resource]]:
        found: dict[str, list[Resource]] = {}
        for template in self.templates:
            for resource in template.resources.values():
                found.setdefault(resource.type, []).append(resource)
        return found

    @cached_property
    def _by_identity(self) -> dict[tuple[str, str], Resource]:
        found: dict[tuple[str, str], Resource] = {}
        for resources in self._by_type.values():
            for resource in resources:
                for identity in (resource.name, resource.arn):
                    if identity is not None:
                        found.setdefault((resource.type, identity), resource)
        return found

    def of_type(self, *types: str) -> Iterator[Resource]:
        """Yield the resources of these types, in the order of the templates."""
        for resource_type in types:
            yield from self._by_type.get(resource_type, ())

    def find(self, value: Any, *types: str) -> Resource | None:
        """Return the resource of these types that a name, an ARN or a reference stands for."""
        if not isinstance(value, str):
            return None
        found = (self._by_identity.get((resource_type, value)) for resource_type in types)
        return next((resource for resource in found if resource is not None), None)

    def names(self, *types: str) -> list[str]:
        """Return the names of the resources of these types; unknown ones are marked."""
        return [resource.name for resource in self.of_type(*types)]


def display_whole(text: str) -> str:
    """Return a text of any length with its marked parts as `${...}`."""
    return re.sub("\0([^\0]*)\0", r"${\1}", text)
