"""One template: its resources with resolved properties, what names what, and the stack it belongs
to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from template_rules.catalogue import name_property, property_schemas
from template_rules.intrinsics import Resolver, intrinsic
from template_rules.property_schema import Violation, violations
from template_rules.references import Reference, references
from template_rules.stack_facts import StackFacts
from template_rules.values import fields, items, labels, unknown

SAM = "AWS::Serverless-2016-10-31"
"""The transform of the Serverless Application Model, which answers its types."""
FRAMEWORK_VARIABLE = re.compile(r"\$\{(self:|opt:|file\()")
PACKAGED = {
    "AWS::Lambda::Function": "Code",
    "AWS::StepFunctions::StateMachine": "DefinitionS3Location",
}
"""Properties that may be a local path. Source: AWS CLI reference, `aws cloudformation package`."""


@dataclass(frozen=True, eq=False)
class Resource:
    """One resource: `properties` are resolved, `raw` is as it stands in the template."""

    logical_id: str
    type: str
    raw: Mapping[str, Any]
    properties: Mapping[str, Any]
    known: bool = True
    """False when a condition chooses between whole sets of properties."""

    @property
    def name(self) -> str:
        """The name that it has in AWS, or a text that stands for it."""
        named = name_property(self.type)
        if named is None:
            return unknown(self.logical_id)
        given = self.properties.get(named)
        return given if isinstance(given, str) else unknown(f"{self.logical_id}.{named}")


class Template:
    """A CloudFormation template and all that rules ask of it; nothing here changes it."""

    def __init__(
        self,
        file: str,
        document: Mapping[str, Any],
        *,
        stack: StackFacts | None = None,
        size_bytes: int = 0,
    ) -> None:
        self.file = file
        self.document = document
        self.stack = StackFacts() if stack is None else stack
        self.size_bytes = size_bytes
        self._resolver = Resolver(document, self.stack)

    @cached_property
    def resources(self) -> dict[str, Resource]:
        """Every resource that has a type, by logical id."""
        found = {}
        for logical_id, raw in fields(self.document.get("Resources")).items():
            if isinstance(raw, dict) and isinstance(raw.get("Type"), str):
                given = raw.get("Properties")
                properties = _packaged(raw["Type"], fields(self._resolver.resolved(given)))
                found[logical_id] = Resource(
                    logical_id, raw["Type"], raw, properties, known=intrinsic(given) is None
                )
        return found

    def of_type(self, *types: str) -> Iterator[Resource]:
        """Resources of these types whose properties are known, as they stand."""
        return (each for each in self.resources.values() if each.type in types and each.known)

    def resolved(self, value: Any) -> Any:
        """Any value of the document, resolved."""
        return self._resolver.resolved(value)

    @cached_property
    def transforms(self) -> tuple[str, ...]:
        """Macros and preprocessors that change the template before it is deployed, so that names
        may appear that are not here.
        """
        top = [
            str(each) if isinstance(each, str) else str(fields(each).get("Name"))
            for each in items(self.document.get("Transform"))
        ]
        resources = fields(self.document.get("Resources"))
        loops = "AWS::LanguageExtensions" in top and _loops(self.document)
        modules = [name for name in ("Modules", "Rain") if name in self.document]
        modules += ["Serverless Framework"] if _has_framework_variable(self.document) else []
        untyped = any(isinstance(fields(each).get("Type"), dict) for each in resources.values())
        sam = any(each.type.startswith("AWS::Serverless::") for each in self.resources.values())
        return (
            *(each for each in top if loops or each != "AWS::LanguageExtensions"),
            *((SAM,) if sam and SAM not in top else ()),
            *_embedded(self.document),
            *modules,
            *(("types of a preprocessor",) if untyped else ()),
            *(
                ("AWS::CloudFormation::Module",)
                if any(each.type.endswith("::MODULE") for each in self.resources.values())
                else ()
            ),
        )

    @property
    def macros(self) -> tuple[str, ...]:
        """Transforms that are not AWS's own, which may take any property to be theirs."""
        return tuple(each for each in self.transforms if not each.startswith("AWS::"))

    @cached_property
    def references(self) -> tuple[Reference, ...]:
        """Every place that names another part."""
        return tuple(references(self.document))

    @cached_property
    def dependencies(self) -> dict[str, set[str]]:
        """Logical ids that each resource waits for; its own stands in it when it names itself."""
        found: dict[str, set[str]] = {logical_id: set() for logical_id in self.resources}
        for reference in self.references:
            if (
                reference.resource in found
                and reference.target in found
                and reference.kind in ("Ref", "GetAtt", "DependsOn")
            ):
                found[reference.resource].add(reference.target)
        return found

    def waits_for(self, logical_id: str, other: str) -> bool:
        """True when a resource is made after another, by whatever chain."""
        seen: set[str] = set()
        ahead = [logical_id]
        while ahead:
            here = ahead.pop()
            for each in self.dependencies.get(here, ()):
                if each == other:
                    return True
                if each not in seen:
                    seen.add(each)
                    ahead.append(each)
        return False

    @cached_property
    def defaults(self) -> frozenset[str]:
        """Defaults of parameters as texts: a deployment may put another value in their place."""
        given = (
            fields(each).get("Default") for each in fields(self.document.get("Parameters")).values()
        )
        return frozenset(
            part.strip()
            for each in given
            if each is not None
            for part in (str(each), *str(each).split(","))
        )

    @cached_property
    def violations(self) -> dict[str, tuple[tuple[Resource, Violation], ...]]:
        """What AWS's own schemas refuse, by the keyword that refuses it."""
        found: dict[str, list[tuple[Resource, Violation]]] = {}
        for resource in self.resources.values():
            schema = property_schemas().get(resource.type)
            if schema is not None and resource.known and not self.macros:
                for violation in violations(schema, resource.properties):
                    found.setdefault(violation.keyword, []).append((resource, violation))
        return {keyword: tuple(each) for keyword, each in found.items()}

    def named(self, value: Any, *types: str) -> Resource | None:
        """The resource of these types that a name, an ARN or a reference stands for."""
        if not isinstance(value, str):
            return None
        meant = {label.split(".")[0] for label in labels(value)}
        tail = value.rsplit("/", 1)[-1].rsplit(":", 1)[-1]
        for resource in self._every(*types):
            if value == resource.name or (value.startswith("arn:") and tail == resource.name):
                return resource
            if resource.logical_id in meant and value in (
                unknown(label) for label in labels(value)
            ):
                return resource
        return None

    def names(self, *types: str) -> list[str]:
        """Names of every resource of these types; unknown ones are marked texts."""
        return [resource.name for resource in self._every(*types)]

    def _every(self, *types: str) -> Iterator[Resource]:
        return (each for each in self.resources.values() if each.type in types)


def _packaged(resource_type: str, properties: dict[str, Any]) -> dict[str, Any]:
    """Properties with what `aws cloudformation package` has still to upload, a local path, as
    unknown.
    """
    name = PACKAGED.get(resource_type)
    if name is None or not isinstance(properties.get(name), str):
        return properties
    return {**properties, name: unknown(properties[name])}


def _embedded(document: Mapping[str, Any]) -> Iterator[str]:
    """Macros that stand in a section or in a resource, by `Fn::Transform`, and so may bring
    sections, resources and names.
    """
    sections = [fields(each) for each in document.values()]
    for holder in (
        document,
        *sections,
        *(fields(each) for section in sections for each in section.values()),
    ):
        for macro in items(holder.get("Fn::Transform")):
            yield str(fields(macro).get("Name", "a macro"))


def _has_framework_variable(value: Any) -> bool:
    """True when a text holds a variable of the Serverless Framework, which reads the file before
    CloudFormation does.
    """
    if isinstance(value, str):
        return FRAMEWORK_VARIABLE.search(value) is not None
    held = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(map(_has_framework_variable, held))


def _loops(value: Any) -> bool:
    """True when a `Fn::ForEach` stands anywhere, so that names may come of it."""
    if isinstance(value, list):
        return any(map(_loops, value))
    return isinstance(value, dict) and any(
        str(key).startswith("Fn::ForEach") or _loops(each) for key, each in value.items()
    )
