"""Resolves Ref, Fn::Sub and the other intrinsic functions; what stays open is a marked text."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from template_rules.resource_names import arn, name_property, ref_is_arn
from template_rules.values import fields, is_known, number, unknown

NO_VALUE = object()
"""The result of `Ref: AWS::NoValue`: the property is absent."""
PLACEHOLDER = re.compile(r"\$\{([^!}][^}]*)\}")
LITERAL = re.compile(r"\$\{!([^}]*)\}")
DYNAMIC = re.compile(r"\{\{resolve:[^}]*\}\}")
FUNCTION = re.compile(r"[A-Za-z]\w*::")
DEEPEST = 60


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Name, account and region of a template's stack; None is unknown."""

    name: str | None = None
    account: str | None = None
    region: str | None = None


def intrinsic(value: Any) -> str | None:
    """Return the name of the intrinsic function that a value is; None for plain data."""
    if isinstance(value, dict) and len(value) == 1:
        (key,) = value
        if isinstance(key, str) and (key in ("Ref", "Condition") or FUNCTION.match(key)):
            return key
    return None


class Resolver:
    """Resolves the values of one template."""

    def __init__(
        self,
        document: Mapping[str, Any],
        stack: Stack,
        imported: Callable[[str], Any] = lambda name: None,
    ) -> None:
        self._document = document
        self._resources = fields(document.get("Resources"))
        self._stack = stack
        self._imported = imported
        self._functions: dict[str, Callable[[Any, int], Any]] = {
            "Ref": self._ref,
            "Fn::GetAtt": self._get_att,
            "Fn::Sub": self._sub,
            "Fn::Join": self._join,
            "Fn::Select": self._select,
            "Fn::Split": self._split,
            "Fn::FindInMap": self._find_in_map,
            "Fn::If": self._if,
            "Fn::ToJsonString": lambda value, depth: json.dumps(self.resolve(value, depth)),
            "Fn::ImportValue": lambda value, depth: self._imported(str(self.resolve(value, depth))),
        }

    def resolve(self, value: Any, depth: int = 0) -> Any:
        """Return a value with every intrinsic function resolved or marked as unknown."""
        if isinstance(value, str):
            return _without_dynamic_references(value)
        if isinstance(value, list):
            resolved = (self.resolve(item, depth + 1) for item in value)
            return [item for item in resolved if item is not NO_VALUE]
        if not isinstance(value, dict):
            return value
        if depth > DEEPEST:
            return unknown("too deep")
        name = intrinsic(value)
        if name is None or name == "Condition":
            pairs = ((key, self.resolve(item, depth + 1)) for key, item in value.items())
            return {key: item for key, item in pairs if item is not NO_VALUE}
        function = self._functions.get(name)
        result = None if function is None else function(value[name], depth + 1)
        label = json.dumps({name: value[name]}, sort_keys=True, default=str)
        return unknown(label) if result is None else _without_dynamic_references(result)

    def name(self, logical_id: str, depth: int = 0) -> str:
        """Return the name of a resource in AWS, or the marked text that stands for it."""
        resource = fields(self._resources.get(logical_id))
        named = name_property(str(resource.get("Type")))
        given = None if named is None else fields(resource.get("Properties")).get(named)
        resolved = None if given is None else self.resolve(given, depth + 1)
        return resolved if isinstance(resolved, str) else unknown(self._label(logical_id))

    def arn(self, logical_id: str, depth: int = 0) -> str | None:
        """Return the ARN of a resource, with marked parts; None for types without one here."""
        resource_type = str(fields(self._resources.get(logical_id)).get("Type"))
        return arn(
            resource_type,
            self.name(logical_id, depth),
            region=self._pseudo("AWS::Region"),
            account=self._pseudo("AWS::AccountId"),
            partition=self._pseudo("AWS::Partition"),
        )

    def _label(self, text: str) -> str:
        return text if self._stack.name is None else f"{self._stack.name}/{text}"

    def _ref(self, name: Any, depth: int) -> Any:
        if not isinstance(name, str):
            return None
        if name == "AWS::NoValue":
            return NO_VALUE
        if name.startswith("AWS::"):
            return self._pseudo(name)
        if name in self._resources:
            resource_type = str(fields(self._resources[name]).get("Type"))
            found = self.arn(name, depth) if ref_is_arn(resource_type) else None
            return self.name(name, depth) if found is None else found
        return self._default(name)

    def _pseudo(self, name: str) -> str:
        region = self._stack.region
        partitions = {"cn": "aws-cn", "us-gov": "aws-us-gov"}
        starts = (part for start, part in partitions.items() if str(region).startswith(start))
        known = {
            "AWS::Region": region,
            "AWS::AccountId": self._stack.account,
            "AWS::StackName": self._stack.name,
            "AWS::Partition": None if region is None else next(starts, "aws"),
        }
        value = known.get(name)
        return unknown(name) if value is None else value

    def _default(self, name: str) -> Any:
        parameter = fields(fields(self._document.get("Parameters")).get(name))
        default, kind = parameter.get("Default"), str(parameter.get("Type"))
        if default is None or default == "" or kind.startswith("AWS::SSM::"):
            return unknown(self._label(name))
        if kind == "CommaDelimitedList" or kind.startswith("List<"):
            return [part.strip() for part in str(default).split(",")]
        if kind == "Number":
            return number(default) if isinstance(default, str) else default
        return str(default)

    def _get_att(self, argument: Any, depth: int) -> Any:
        parts = argument.split(".", 1) if isinstance(argument, str) else argument
        if not isinstance(parts, list) or len(parts) != 2 or not all(map(_is_text, parts)):
            return None
        logical_id, attribute = parts
        if logical_id in self._resources:
            named = name_property(str(fields(self._resources[logical_id]).get("Type")))
            if attribute in (named, "Name", "QueueName", "TopicName", "RepositoryName"):
                return self.name(logical_id, depth)
            found = self.arn(logical_id, depth)
            if attribute in ("Arn", "TopicArn", "EndpointArn") and found is not None:
                return found
        return unknown(self._label(f"{logical_id}.{attribute}"))

    def _sub(self, argument: Any, depth: int) -> Any:
        template, given = argument, {}
        if isinstance(argument, list) and len(argument) == 2:
            template, given = argument[0], fields(argument[1])
        if not isinstance(template, str):
            return None

        def substitute(match: re.Match[str]) -> str:
            name = match.group(1).strip()
            reference = {"Fn::GetAtt": name.split(".", 1)} if "." in name else {"Ref": name}
            text = as_text(self.resolve(given.get(name, reference), depth))
            return unknown(name) if text is None else text

        return LITERAL.sub(r"${\1}", PLACEHOLDER.sub(substitute, template))

    def _join(self, argument: Any, depth: int) -> Any:
        if not isinstance(argument, list) or len(argument) != 2 or not _is_text(argument[0]):
            return None
        parts = self.resolve(argument[1], depth)
        if not isinstance(parts, list):
            return None
        texts = [as_text(part) for part in parts]
        return None if None in texts else argument[0].join(map(str, texts))

    def _select(self, argument: Any, depth: int) -> Any:
        if not isinstance(argument, list) or len(argument) != 2:
            return None
        index, values = number(self.resolve(argument[0], depth)), self.resolve(argument[1], depth)
        if index is None or not isinstance(values, list) or not 0 <= int(index) < len(values):
            return None
        return values[int(index)]

    def _split(self, argument: Any, depth: int) -> Any:
        if not isinstance(argument, list) or len(argument) != 2 or not argument[0]:
            return None
        value = self.resolve(argument[1], depth)
        known = _is_text(argument[0]) and isinstance(value, str) and is_known(value)
        return value.split(argument[0]) if known else None

    def _find_in_map(self, argument: Any, depth: int) -> Any:
        if not isinstance(argument, list) or len(argument) < 3:
            return None
        value: Any = fields(self._document.get("Mappings"))
        for key in argument[:3]:
            value = fields(value).get(str(self.resolve(key, depth)))
        return value

    def _if(self, argument: Any, depth: int) -> Any:
        """Known only when both branches are the same: the deployment chooses."""
        if not isinstance(argument, list) or len(argument) != 3:
            return None
        first, second = (self.resolve(branch, depth) for branch in argument[1:])
        return first if first == second else None


def as_text(value: Any) -> str | None:
    """Return a scalar as CloudFormation writes it into a text; None for a list or an object."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, str | int | float) else None


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _without_dynamic_references(value: Any) -> Any:
    """Return a text with `{{resolve:...}}` marked as unknown; anything else unchanged."""
    if not isinstance(value, str) or "{{resolve:" not in value:
        return value
    return DYNAMIC.sub(lambda match: unknown(match.group(0)), value)
