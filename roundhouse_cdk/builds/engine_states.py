"""The states that build one engine, whatever its route.

They end with a record of what came of it, and never in failure. Their input is `{"engine",
"source", "commit", "execution"}`; their output `{"status": "built", engineKey, model, notReused}`
or `{"status": "failed", engineKey, model, reason, log}`.

An engine with `planFrom` is packaged of that engine's plan by `planRoute`. Where the builder
refuses the plan, or no machine answers for the build, it is compiled by its `route`, and
`notReused` has the reason; a fault of the tree would stop the compilation too, and is the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onboarding.environment_spec import EnvironmentSpec
from onboarding.plan_source import NO_PLAN, NOT_REUSED
from onboarding.text_generation.quantizer_route import QUANTIZER_JOB
from roundhouse_cdk.builds.codebuild_states import codebuild_states
from roundhouse_cdk.builds.job import wait
from roundhouse_cdk.builds.language import (
    State,
    choice,
    jsonata,
    literal,
    publication,
    title,
    with_fields,
)
from roundhouse_cdk.builds.signing import signing_states
from roundhouse_cdk.builds.training_states import training_states

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

HAS_PLAN = "$boolean($states.input.engine.planFrom)"
BEGIN = {
    "attempt": "0",
    "log": '"none, it never began"',
    "route": f"{HAS_PLAN} ? $states.input.engine.planRoute : $states.input.engine.route",
    "planFrom": f"{HAS_PLAN} ? $states.input.engine.planFrom : {literal(NO_PLAN)}",
    "notReused": '""',
    "final": "false",
}
COMPILE = {
    "route": "$states.input.engine.route",
    "planFrom": literal(NO_PLAN),
    "notReused": f"$substring($states.input.reason, 0, {REASON_CHARACTERS})",
    # What tells this job from the one that was refused.
    "attempt": "$states.input.attempt + 1",
    "log": '"none, it never began"',
}
PLAN_REFUSED = (
    f"$states.input.planFrom != {literal(NO_PLAN)} and ($not($states.input.final) or"
    f" $contains($states.input.reason, {literal(NOT_REUSED)}))"
)
"""A plan to reuse, and a reason that the compilation would not have."""


def engine_states(
    environment: EnvironmentSpec,
    *,
    projects: Sequence[str],
    training_image: str,
    quantizer_image: str | None = None,
) -> dict[str, Any]:
    """`StartAt` and `States`; `projects` are the routes that have a CodeBuild project.

    `quantizer_image` None: there are no text generators.
    """
    listed, has_checkpoints = f"[{', '.join(map(literal, projects))}]", quantizer_image is not None
    jobs = {"training-job": "StartTrainingJob"}
    if has_checkpoints:
        jobs[QUANTIZER_JOB] = "StartQuantizerJob"
    routes = {f"$states.input.route in {listed}": "StartBuild"}
    routes |= {f"$states.input.route = {literal(route)}": state for route, state in jobs.items()}
    allowed = literal(", ".join((*projects, *jobs)))
    no_route = (
        f'"environment {environment.name} has no route " & $string($states.input.route) & ";'
        f' allowed: " & {allowed}'
    )
    try_again = (
        f"$states.input.retriable and $states.input.attempt < {environment.builds.capacity_retries}"
    )
    return {
        "StartAt": "Begin",
        "States": {
            "Begin": _pass(with_fields(BEGIN), "ChooseRoute"),
            "ChooseRoute": choice(routes, default="NoRoute"),
            "NoRoute": _pass(with_fields({"reason": no_route}), "TellFailure"),
            **codebuild_states(environment, has_checkpoints=has_checkpoints),
            **training_states(environment, training_image, quantizer_image),
            **signing_states(environment, has_checkpoints=has_checkpoints),
            "NotBuilt": choice(
                {try_again: "TryAgain", PLAN_REFUSED: "Compile"}, default="TellFailure"
            ),
            "Compile": _pass(with_fields(COMPILE), "ChooseRoute"),
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
            "Built": _record({"notReused": "$states.input.notReused"}, status="built"),
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


def _record(fields: dict[str, str], *, status: str = "failed") -> State:
    record = {
        "status": status,
        "engineKey": jsonata("$states.input.engine.engineKey"),
        "model": jsonata("$states.input.engine.model"),
        **{name: jsonata(value) for name, value in fields.items()},
    }
    return {"Type": "Pass", "QueryLanguage": "JSONata", "Output": record, "End": True}
