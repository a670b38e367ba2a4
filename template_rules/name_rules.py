"""Rules of names that a service keeps for itself or reads in its own way: functions, parameters,
key aliases.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from template_rules.finding import Problem
from template_rules.rule import rule
from template_rules.template import Template
from template_rules.values import at, fields, is_known, text

RESERVED = (
    *(
        "_HANDLER",
        "_X_AMZN_TRACE_ID",
        "AWS_DEFAULT_REGION",
        "AWS_REGION",
        "AWS_EXECUTION_ENV",
        "AWS_LAMBDA_FUNCTION_NAME",
    ),
    *(
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE",
        "AWS_LAMBDA_FUNCTION_VERSION",
        "AWS_LAMBDA_INITIALIZATION_TYPE",
    ),
    *(
        "AWS_LAMBDA_LOG_GROUP_NAME",
        "AWS_LAMBDA_LOG_STREAM_NAME",
        "AWS_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
    ),
    *(
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_LAMBDA_RUNTIME_API",
        "LAMBDA_TASK_ROOT",
        "LAMBDA_RUNTIME_DIR",
    ),
)
"""Source: Lambda developer guide, "Defined runtime environment variables"."""


@rule("RH279", "a function's inline code has its handler, and its variables are not Lambda's own")
def handler_missing(template: Template) -> Iterator[Problem]:
    for function in template.of_type("AWS::Lambda::Function"):
        for name in fields(at(function.properties, "Environment", "Variables")):
            if name in RESERVED:
                path, what = (
                    f"Environment.Variables.{name}",
                    "Lambda sets the variable itself, and refuses another's",
                )
                yield Problem(
                    resource=function.logical_id,
                    path=path,
                    what=what,
                    value=name,
                    way_out="rename it",
                )
        code, handler = (
            text(at(function.properties, "Code", "ZipFile")),
            text(function.properties.get("Handler")),
        )
        if code is None or handler is None:
            continue
        module, _, called = handler.partition(".")
        if module != "index" or not called:
            what = "inline code is the module index"
            yield Problem(
                resource=function.logical_id,
                path="Handler",
                what=what,
                value=handler,
                allowed="index.<function>",
                way_out="write it so",
            )
        elif str(function.properties.get("Runtime")).startswith("python") and called not in (
            names := _python_names(code, called)
        ):
            what, allowed = (
                "the inline code defines no such function",
                ", ".join(sorted(names)) or None,
            )
            yield Problem(
                resource=function.logical_id,
                path="Handler",
                what=what,
                value=handler,
                allowed=allowed,
                way_out="name one of its own",
            )


@rule("RH290", "a parameter's name is a path from / on, or has no /, and is not one of AWS's own")
def ill_named_parameter(template: Template) -> Iterator[Problem]:
    for parameter in template.of_type("AWS::SSM::Parameter"):
        name = parameter.properties.get("Name")
        if not isinstance(name, str) or not is_known(name[:12]):
            continue
        if "/" in name and not name.startswith("/"):
            what, way_out = "a name with / is a path, and begins with /", f"write /{name}"
            yield Problem(
                resource=parameter.logical_id,
                path="Name",
                what=what,
                value=text(name),
                way_out=way_out,
            )
        elif re.match(r"/?(aws|ssm)", name, re.IGNORECASE):
            what = "names that begin with aws or ssm are AWS's own"
            yield Problem(
                resource=parameter.logical_id,
                path="Name",
                what=what,
                value=text(name),
                way_out="rename it",
            )


@rule("RH291", "a key's alias is none of AWS's own")
def alias_of_aws(template: Template) -> Iterator[Problem]:
    for alias in template.of_type("AWS::KMS::Alias"):
        name = text(alias.properties.get("AliasName"))
        if name is not None and name.lower().startswith("alias/aws/"):
            what = "aliases that begin with alias/aws/ are AWS's own"
            yield Problem(
                resource=alias.logical_id,
                path="AliasName",
                what=what,
                value=name,
                way_out="rename it",
            )


def _python_names(code: str, called: str) -> set[str]:
    """What a module defines at its top; the name itself where the code is not plain enough to say."""
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {called}
    names: set[str] = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {
                each.id
                for target in node.targets
                for each in ast.walk(target)
                if isinstance(each, ast.Name)
            }
        elif not isinstance(node, ast.Expr):
            names |= {alias.asname or alias.name for alias in getattr(node, "names", ())} | (
                set() if isinstance(node, ast.Import | ast.ImportFrom) else {called}
            )
    return names | ({called} if "*" in names else set())
