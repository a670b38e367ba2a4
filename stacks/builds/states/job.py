"""What the states of every kind of job share: looks that grow rarer, and the question whether a
failure may pass.
"""

from __future__ import annotations

from collections.abc import Sequence

from onboarding.environment_spec import EnvironmentSpec
from stacks.builds.states.language import State, choice, literal, with_fields
from stacks.builds.states.reason import NO_QUOTA, explained

LOOKED_AT_AFTER = 50
"""A job is looked at again after a fiftieth of the time it has taken: at most 2 % late, and a day's
build is a few hundred looks,
far from the 25,000 events that a history holds."""
PASSING = (
    r"CapacityError|Insufficient ?(Instance)?Capacity|LimitExceeded|Cannot have more than|Throttl|Rate exceeded|TooManyRequests"
    r"|ServiceUnavailable|Internal[ _]?(Server|Service)?[ _]?(Error|Failure)"
)
"""Want of capacity, a quota that others use up, a service's own fault: what another try may find
gone.
"""
EXECUTION_TAG = '$substring($hash($states.input.execution, "SHA-256"), 0, 8)'
"""What tells the jobs of one execution from another's."""


def wait(then: str) -> State:
    """Waits for the input's `seconds`."""
    return {"Type": "Wait", "SecondsPath": "$.seconds", "Next": then}


def first_wait(environment: EnvironmentSpec) -> dict[str, str]:
    """Fields of a job that has just been started: how long to wait before the first look, and how
    long all waits have taken.
    """
    return {
        "seconds": literal(environment.builds.poll_seconds),
        "waited": literal(environment.builds.poll_seconds),
    }


def next_wait(environment: EnvironmentSpec) -> dict[str, str]:
    """The same fields after a look: the longer a job has taken, the longer it is left alone."""
    seconds = f"$max([{environment.builds.poll_seconds}, $floor($states.input.waited / {LOOKED_AT_AFTER})])"
    return {"seconds": seconds, "waited": f"$states.input.waited + {seconds}"}


def ended(*, going: Sequence[str], succeeded: str, wait_in: str) -> State:
    """Goes on by a job's status."""
    among = f"$states.input.status in [{', '.join(map(literal, going))}]"
    return choice(
        {among: wait_in, f"$states.input.status = {literal(succeeded)}": "Built"},
        default="NotBuilt",
    )


def refusal(environment: EnvironmentSpec, *, lasts: bool = False) -> State:
    """A Catch that keeps why an API refused, and whether that may pass; `lasts`: another start is
    no help, whatever it says.
    """
    error = "$error := $states.errorOutput;"
    said = r'$said := $error.Cause ? $replace($error.Cause, / \(Service: .*/, "") : $error.Error;'
    retriable = "false" if lasts else may_pass('($error.Error & ": " & $error.Cause)')
    output = with_fields(
        {"reason": explained(environment, "$said"), "retriable": retriable}, first=f"{error} {said}"
    )
    return {"ErrorEquals": ["States.ALL"], "Output": output, "Next": "NotBuilt"}


def may_pass(reason: str) -> str:
    """The expression of whether a reason, itself an expression, may be gone at another try."""
    return f"$contains({reason}, /{PASSING}/i) and $not($contains({reason}, /{NO_QUOTA}/))"
