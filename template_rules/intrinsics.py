"""Resolves Ref, Fn::Sub and their kind as far as the template alone can; the rest becomes a marked
text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from template_rules.catalogue import name_property
from template_rules.stack_facts import StackFacts
from template_rules.values import fields, is_known, number, unknown

NO_VALUE = object()
"""What `Ref: AWS::NoValue` comes to: the property is not there."""
PLACEHOLDER = re.compile(r"\$\{([^!}][^}]*)\}")
LITERAL = re.compile(r"\$\{!([^}]*)\}")
DYNAMIC = re.compile(r"\{\{resolve:[^}]*\}\}")
FUNCTION = re.compile(r"[A-Za-z]\w*::")
"""`Fn::Sub`, and what preprocessors add, such as `Rain::Embed`; no property has such a name."""
DEEPEST = 60


def intrinsic(value: Any) -> str | None:
    """The name of the intrinsic function that a value is; None for plain data.

    A macro may have siblings, and change them.
    """
    if isinstance(value, dict) and "Fn::Transform" in value:
        return "Fn::Transform"
    if isinstance(value, dict) and len(value) == 1:
        (key,) = value
        if isinstance(key, str) and (key in ("Ref", "Condition") or FUNCTION.match(key)):
            return key
    return None


class Resolver:
    """Resolves the values of one template."""

    def __init__(self, document: Mapping[str, Any], stack: StackFacts) -> None:
        self._parameters = fields(document.get("Parameters"))
        self._resources = fields(document.get("Resources"))
        self._mappings = fields(document.get("Mappings"))
        self._stack = stack

    def resolved(self, value: Any, depth: int = 0) -> Any:
        """The value, with every intrinsic resolved or marked."""
        if isinstance(value, str):
            return _without_dynamic(value)
        if isinstance(value, list):
            found = (self.resolved(each, depth + 1) for each in value)
            return [each for each in found if each is not NO_VALUE]
        if not isinstance(value, dict):
            return value
        name = intrinsic(value)
        if depth > DEEPEST:
            return unknown("too deep")
        if name is None or name == "Condition":
            pairs = ((key, self.resolved(each, depth + 1)) for key, each in value.items())
            return {key: each for key, each in pairs if each is not NO_VALUE}
        return self._call(name, value[name], depth + 1)

    def _call(self, name: str, argument: Any, depth: int) -> Any:
        if name == "Ref":
            return (
                self._ref(argument, depth)
                if isinstance(argument, str)
                else unknown(_label(argument))
            )
        functions = {
            "Fn::GetAtt": self._get_att,
            "Fn::Sub": self._sub,
            "Fn::Join": self._join,
            "Fn::Select": self._select,
            "Fn::Split": self._split,
            "Fn::FindInMap": self._find_in_map,
            "Fn::If": self._if,
            "Fn::ToJsonString": self._to_json_string,
        }
        function = functions.get(name)
        found = None if function is None else function(argument, depth)
        return unknown(_label({name: argument})) if found is None else _without_dynamic(found)

    def _ref(self, name: str, depth: int) -> Any:
        if name == "AWS::NoValue":
            return NO_VALUE
        if name.startswith("AWS::"):
            return self._pseudo(name)
        if name in self._resources:
            resource_type = str(fields(self._resources[name]).get("Type"))
            return self._own_name(name, resource_type, depth)
        return self._default(name)

    def _pseudo(self, name: str) -> str:
        region = self._stack.region
        partitions = {"cn": "aws-cn", "us-gov": "aws-us-gov"}
        partition = (
            None
            if region is None
            else next((p for start, p in partitions.items() if region.startswith(start)), "aws")
        )
        known = {
            "AWS::Region": region,
            "AWS::AccountId": self._stack.account,
            "AWS::StackName": self._stack.name,
            "AWS::Partition": partition,
        }
        value = known.get(name)
        return unknown(name) if value is None else value

    def _default(self, name: str) -> Any:
        parameter = fields(self._parameters.get(name))
        default, kind = parameter.get("Default"), str(parameter.get("Type"))
        if default is None or default == "" or kind.startswith("AWS::SSM::"):
            return unknown(name)
        if kind == "CommaDelimitedList" or kind.startswith("List<"):
            return [part.strip() for part in str(default).split(",")]
        if kind == "Number":
            return number(default) if isinstance(default, str) else default
        return str(default)

    def _own_name(self, logical_id: str, resource_type: str, depth: int) -> Any:
        named = name_property(resource_type)
        if named is None or resource_type in _REF_IS_AN_ARN:
            return unknown(logical_id)
        return self._property(logical_id, named, depth)

    def _property(self, logical_id: str, name: str, depth: int) -> Any:
        """A resource's property as text; what AWS will call it where the template does not."""
        properties = fields(fields(self._resources[logical_id]).get("Properties"))
        given = self.resolved(properties[name], depth + 1) if name in properties else NO_VALUE
        return given if isinstance(given, str) else unknown(f"{logical_id}.{name}")

    def _get_att(self, argument: Any, depth: int) -> Any:
        parts = argument.split(".", 1) if isinstance(argument, str) else argument
        if (
            not isinstance(parts, list)
            or len(parts) != 2
            or not all(isinstance(part, str) for part in parts)
        ):
            return None
        logical_id, attribute = parts
        if logical_id in self._resources:
            named = name_property(str(fields(self._resources[logical_id]).get("Type")))
            if named is not None and attribute in (
                named,
                "Name",
                "QueueName",
                "TopicName",
                "RepositoryName",
            ):
                return self._property(logical_id, named, depth)
        return unknown(f"{logical_id}.{attribute}")

    def _sub(self, argument: Any, depth: int) -> Any:
        template, given = (
            (argument[0], fields(argument[1]))
            if isinstance(argument, list) and len(argument) == 2
            else (argument, {})
        )
        if not isinstance(template, str):
            return None

        def put(match: re.Match[str]) -> str:
            name = match.group(1).strip()
            found = as_text(
                self.resolved(given[name] if name in given else _reference(name), depth)
            )
            return unknown(name) if found is None else found

        return LITERAL.sub(r"${\1}", PLACEHOLDER.sub(put, template))

    def _join(self, argument: Any, depth: int) -> Any:
        if not isinstance(argument, list) or len(argument) != 2 or not isinstance(argument[0], str):
            return None
        parts = self.resolved(argument[1], depth)
        if not isinstance(parts, list):
            return None
        texts = [as_text(part) for part in parts]
        return (
            argument[0].join(each for each in texts if each is not None)
            if None not in texts
            else None
        )

    def _select(self, argument: Any, depth: int) -> Any:
        if not isinstance(argument, list) or len(argument) != 2:
            return None
        index, values = (self.resolved(each, depth) for each in argument)
        place = number(index)
        known = place is not None and isinstance(values, list) and 0 <= int(place) < len(values)
        return values[int(place)] if known and place is not None else None

    def _split(self, argument: Any, depth: int) -> Any:
        if not isinstance(argument, list) or len(argument) != 2:
            return None
        separator, value = argument[0], self.resolved(argument[1], depth)
        return (
            value.split(separator)
            if isinstance(separator, str)
            and separator
            and isinstance(value, str)
            and is_known(value)
            else None
        )

    def _find_in_map(self, argument: Any, depth: int) -> Any:
        if not isinstance(argument, list) or len(argument) < 3:
            return None
        keys = [self.resolved(each, depth) for each in argument[:3]]
        value: Any = self._mappings
        for key in keys:
            value = fields(value).get(key if isinstance(key, str) else str(key))
        return value

    def _if(self, argument: Any, depth: int) -> Any:
        """Known only when both branches come to the same: which one is taken, the deployment says."""
        if not isinstance(argument, list) or len(argument) != 3:
            return None
        first, second = (self.resolved(each, depth) for each in argument[1:])
        return first if first == second else None

    def _to_json_string(self, argument: Any, depth: int) -> Any:
        return json.dumps(self.resolved(argument, depth), default=str)


_REF_IS_AN_ARN = {
    "AWS::SageMaker::Endpoint",
    "AWS::SageMaker::EndpointConfig",
    "AWS::SageMaker::Model",
    "AWS::SageMaker::InferenceComponent",
    "AWS::StepFunctions::StateMachine",
    "AWS::SNS::Topic",
    "AWS::SQS::Queue",
    "AWS::IAM::ManagedPolicy",
}


def _without_dynamic(value: Any) -> Any:
    """A text without `{{resolve:...}}`, which a deployment puts in; anything else as it is."""
    if not isinstance(value, str) or "{{resolve:" not in value:
        return value
    return DYNAMIC.sub(lambda match: unknown(match.group(0)), value)


def _reference(name: str) -> dict[str, Any]:
    return {"Fn::GetAtt": name.split(".", 1)} if "." in name else {"Ref": name}


def as_text(value: Any) -> str | None:
    """A scalar as CloudFormation writes it into a text; None for a list or an object."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, str | int | float) else None


def _label(argument: Any) -> str:
    return json.dumps(argument, sort_keys=True, default=str)
