"""Pieces of the Amazon States Language: JSONata expressions, and Tasks that call an AWS API."""

from __future__ import annotations

import json
from typing import Any

from onboarding import arns
from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import aws_partition

State = dict[str, Any]

REFUSED_FOR_NOW = (
    "CodeBuild.CodeBuildException",
    "CodeBuild.SdkClientException",
    "Lambda.ServiceException",
    "Lambda.AWSLambdaException",
    "Lambda.SdkClientException",
    "Lambda.TooManyRequestsException",
    "SageMaker.SageMakerException",
    "SageMaker.SdkClientException",
    "Sns.SnsException",
    "Sns.ThrottledException",
    "Sns.SdkClientException",
)
"""Errors by which a call is throttled, or does not arrive.

An error that the service's API model does not name, as ThrottlingException is, comes under the name
of the service's own exception.
"""


def retry(attempts: int) -> list[State]:
    """Tries again, less and less often, at most a minute apart."""
    return [
        {
            "ErrorEquals": list(REFUSED_FOR_NOW),
            "IntervalSeconds": 2,
            "BackoffRate": 2,
            "MaxAttempts": attempts,
            "MaxDelaySeconds": 60,
            "JitterStrategy": "FULL",
        }
    ]


BRIEFLY = retry(3)
"""Some seconds.

What is refused for good comes under the same names, and who lacks capacity waits in a state of its
own.
"""
PATIENTLY = retry(20)
"""A quarter of an hour: a job goes on, whether or not it can be looked at."""


def jsonata(expression: str) -> str:
    """A field's value that is computed."""
    return f"{{% {expression} %}}"


def literal(value: str | int | list[int]) -> str:
    """A constant within an expression."""
    return json.dumps(value)


def with_fields(fields: dict[str, str], *, first: str = "") -> str:
    """The state's input with further fields, each an expression.

    `first` binds variables that they use.
    """
    added = ", ".join(f"{literal(name)}: {expression}" for name, expression in fields.items())
    merged = f"$merge([$states.input, {{ {added} }}])"
    return jsonata(f"( {first} {merged} )" if first else merged)


def choice(rules: dict[str, str], default: str) -> State:
    """Goes to the state of the first condition that holds."""
    choices = [
        {"Condition": jsonata(condition), "Next": state} for condition, state in rules.items()
    ]
    return {"Type": "Choice", "QueryLanguage": "JSONata", "Choices": choices, "Default": default}


def call(environment: EnvironmentSpec, action: str, arguments: State, **fields: Any) -> State:
    """A Task that calls an AWS API, such as codebuild:startBuild, with retries when throttled.

    All by the SDK integration, whose calls return at once: of an integration that waits, nobody
    sees how far the build is, and a training job that found no capacity looks like one that failed.
    """
    return {
        "Type": "Task",
        "QueryLanguage": "JSONata",
        "Resource": f"arn:{aws_partition(environment.region)}:states:::aws-sdk:{action}",
        "Arguments": arguments,
        "Retry": BRIEFLY,
        **fields,
    }


SUBJECT_CHARACTERS = 99


def publication(
    environment: EnvironmentSpec, *, event: str, subject: str, message: str, then: str
) -> State:
    """A Task that publishes an event and passes its input on, also when publishing fails.

    `subject` and `message` are expressions. Subscribers filter by the attributes `event` and
    `environment`.
    """
    arguments = {
        "TopicArn": arns.alarm_topic(environment),
        "Subject": jsonata(f"$substring({subject}, 0, {SUBJECT_CHARACTERS})"),
        "Message": jsonata(message),
        "MessageAttributes": {
            "event": {"DataType": "String", "StringValue": event},
            "environment": {"DataType": "String", "StringValue": environment.name},
        },
    }
    unchanged = jsonata("$states.input")
    caught = {"ErrorEquals": ["States.ALL"], "Output": unchanged, "Next": then}
    return call(environment, "sns:publish", arguments, Output=unchanged, Catch=[caught], Next=then)


def title(environment: EnvironmentSpec, text: str) -> str:
    """The expression of a subject; `said` is one too."""
    return f"{literal(f'Roundhouse {environment.name}: ')} & {text}"
