"""The states that build one engine, whatever its route.

They end with a record of what came of it, and never in failure. Their input is `{"engine",
"source", "commit", "execution"}`; their output `{"status": "built", engineKey, model}` or
`{"status": "failed", engineKey, model, reason, log}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onboarding.environment_spec import EnvironmentSpec
from stacks.builds.codebuild_states import codebuild_states
from stacks.builds.job import wait
from stacks.builds.language import State, choice, jsonata, literal, publication, title, with_fields
from stacks.builds.signing import signing_states
from stacks.builds.training_states import training_states

FIRST_CAPACITY_WAIT = 4
"""Looks' lengths before a job that found no capacity is started again: a minute, two, four, …."""
LONGEST_CAPACITY_WAIT_SECONDS = 1800
REASON_CHARACTERS = 400
"""Of a reason that is recorded: all records of an execution must fit into its output."""
LOG_CHARACTERS = 400
NOT_BUILT = (
    '$states.input.engine.model & ", engine " & $states.input.engine.engineKey & ", was not'
    ' built: " & $states.input.reason & "\\nLog: " & $states.input.log & "\\nLocks and'
    ' endpoints are as they were."'
)


def engine_states(
    environment: EnvironmentSpec, *, projects: Sequence[str], training_image: str
) -> dict[str, Any]:
    """`StartAt` and `States`; `projects` are the routes that have a CodeBuild project."""
    listed = f"[{', '.join(map(literal, projects))}]"
    routes = {
        f"$states.input.engine.route in {listed}": "StartBuild",
        '$states.input.engine.route = "training-job"': "StartTrainingJob",
    }
    allowed = literal(", ".join((*projects, "training-job")))
    no_route = (
        f'"environment {environment.name} has no route " & $string($states.input.engine.route) & ";'
        f' allowed: " & {allowed}'
    )
    try_again = (
        f"$states.input.retriable and $states.input.attempt < {environment.builds.capacity_retries}"
    )
    return {
        "StartAt": "Begin",
        "States": {
            "Begin": _pass(
                with_fields({"attempt": "0", "log": '"none, it never began"'}), "ChooseRoute"
            ),
            "ChooseRoute": choice(routes, default="NoRoute"),
            "NoRoute": _pass(with_fields({"reason": no_route}), "TellFailure"),
            **codebuild_states(environment),
            **training_states(environment, training_image),
            **signing_states(environment),
            "NotBuilt": choice({try_again: "TryAgain"}, default="TellFailure"),
            "TryAgain": _pass(_again(environment), "WaitForCapacity"),
            "WaitForCapacity": wait("ChooseRoute"),
            "TellFailure": publication(
                environment,
                event="engine-not-built",
                subject=title(environment, '$states.input.engine.model & " was not built"'),
                message=NOT_BUILT,
                then="Failed",
            ),
            "Failed": _record(
                {
                    "reason": _short("$states.input.reason", REASON_CHARACTERS),
                    "log": _short("$states.input.log", LOG_CHARACTERS),
                }
            ),
            "Built": _record({}),
        },
    }


def _pass(output: str, then: str) -> State:
    return {"Type": "Pass", "QueryLanguage": "JSONata", "Output": output, "Next": then}


def _again(environment: EnvironmentSpec) -> str:
    """Return the input of another try; its seconds are whole numbers, as a Wait state needs."""
    first = FIRST_CAPACITY_WAIT * environment.builds.poll_seconds
    waits = [
        min(first * 2**attempt, LONGEST_CAPACITY_WAIT_SECONDS)
        for attempt in range(max(1, environment.builds.capacity_retries))
    ]
    seconds = f"{literal(waits)}[$states.input.attempt]"
    return with_fields({"seconds": seconds, "attempt": "$states.input.attempt + 1"})


def _short(text: str, characters: int) -> str:
    return f"$substring({text}, 0, {characters})"


def _record(fields: dict[str, str]) -> State:
    record = {
        "status": "failed" if fields else "built",
        "engineKey": jsonata("$states.input.engine.engineKey"),
        "model": jsonata("$states.input.engine.model"),
        **{name: jsonata(value) for name, value in fields.items()},
    }
    return {"Type": "Pass", "QueryLanguage": "JSONata", "Output": record, "End": True}
