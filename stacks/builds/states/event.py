"""What the build machine tells the environment's topic."""

from __future__ import annotations

from onboarding.environment_spec import EnvironmentSpec
from stacks.access import arns
from stacks.builds.states.language import State, call, jsonata, literal

SUBJECT_CHARACTERS = 99


def publication(
    environment: EnvironmentSpec, *, event: str, subject: str, message: str, then: str
) -> State:
    """Sends an event to the topic and goes on with the input as it was, even when the topic does
    not take it.

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


def title(environment: EnvironmentSpec, said: str) -> str:
    """The expression of a subject; `said` is one too."""
    return f"{literal(f'Roundhouse {environment.name}: ')} & {said}"
