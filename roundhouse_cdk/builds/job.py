"""Why an engine was not built, in a sentence.

What a service says, and what helps, which services seldom say.
"""

from __future__ import annotations

from collections.abc import Sequence

from onboarding.environment_spec import EnvironmentSpec
from roundhouse_cdk.builds.language import State, choice, literal, with_fields

NO_QUOTA = r"is 0 Instances|more than 0 builds"
"""A quota of nothing: no wait helps."""
KILLED = r"exit (status|code):? 137"
"""What CodeBuild and SageMaker say of a program that a SIGKILL ended."""
KILLED_SENTENCE = (
    "the build was killed (exit code 137), as when the machine has no memory left; its log shows in"
    " which step, and smaller optimization profiles, or a larger instance type, need less or give"
    " more"
)


def explained(environment: EnvironmentSpec, reply: str) -> str:
    """The expression of a sentence for what a service said, itself an expression."""
    closed = f'$replace($trim({reply}), /[.]+$/, "")'
    hints = "".join(
        f"$contains({reply}, /{pattern}/i) ? {closed} & {literal('; ' + hint)} : "
        for pattern, hint in hints_of(environment)
    )
    return f"($contains({reply}, /{KILLED}/i) ? {literal(KILLED_SENTENCE)} : {hints}{reply})"


def hints_of(environment: EnvironmentSpec) -> tuple[tuple[str, str], ...]:
    """What helps, by a pattern of what is said; the first that matches counts."""
    tries = environment.builds.capacity_retries + 1
    deploy = f"`roundhouse deploy --env {environment.name}`"
    return (
        (NO_QUOTA, "the account has no quota for this machine: ask for one in AWS Service Quotas"),
        (
            "LimitExceeded|account-level service limit|Cannot have more than",
            f"the quota stayed in use for {tries} tries: lower builds.at_once, ask for more in"
            f" AWS Service Quotas, or run {deploy} later",
        ),
        (
            "CapacityError|Insufficient ?(Instance)?Capacity",
            f"AWS had no such machine in {tries} tries: run {deploy} later, or name another"
            " instance type",
        ),
        (
            "CannotPullContainer|UNABLE_TO_PULL|Cannot find repository"
            "|Requested image .* not found",
            f"{deploy} builds and pushes images that are missing; the role and the network must"
            " let it be pulled",
        ),
    )


def overrun(environment: EnvironmentSpec) -> str:
    """What is said of a build that reached its time limit."""
    return (
        f"the build took longer than the {environment.builds.timeout_minutes} minutes of"
        f" builds.timeout_minutes; raise it in environments/{environment.name}.yaml"
    )


LOOKED_AT_AFTER = 50
"""A job is looked at again after a fiftieth of the time it has taken.

At most 2 % late, and a day's build is a few hundred looks, far from the 25,000 events that a
history holds.
"""
PASSING = (
    r"CapacityError|Insufficient ?(Instance)?Capacity|LimitExceeded|Cannot have more"
    r" than|Throttl|Rate exceeded|TooManyRequests"
    r"|ServiceUnavailable|Internal[ _]?(Server|Service)?[ _]?(Error|Failure)"
)
"""Want of capacity, a quota that others use up, a service's own fault.

What another try may find gone.
"""
EXECUTION_TAG = '$substring($hash($states.input.execution, "SHA-256"), 0, 8)'
"""What tells the jobs of one execution from another's."""
IS_CHECKPOINT = "$boolean($states.input.engine.scheme)"
"""A text generator's checkpoint instead of an engine."""
CANDIDATE = f'{EXECUTION_TAG} & "-" & $states.input.attempt'
"""What tells what one try built from what another did."""


def wait(then: str) -> State:
    """Waits for the input's `seconds`."""
    return {"Type": "Wait", "SecondsPath": "$.seconds", "Next": then}


def first_wait(environment: EnvironmentSpec) -> dict[str, str]:
    """Fields of a job that has just been started.

    How long to wait before the first look, and how long all waits have taken.
    """
    return {
        "seconds": literal(environment.builds.poll_seconds),
        "waited": literal(environment.builds.poll_seconds),
    }


def next_wait(environment: EnvironmentSpec) -> dict[str, str]:
    """The same fields after a look: the longer a job has taken, the longer it is left alone."""
    seconds = (
        f"$max([{environment.builds.poll_seconds}, $floor($states.input.waited /"
        f" {LOOKED_AT_AFTER})])"
    )
    return {"seconds": seconds, "waited": f"$states.input.waited + {seconds}"}


def ended_state(*, going: Sequence[str], succeeded: str, wait_in: str) -> State:
    """Goes on by a job's status."""
    among = f"$states.input.status in [{', '.join(map(literal, going))}]"
    return choice(
        {among: wait_in, f"$states.input.status = {literal(succeeded)}": "Sign"},
        default="NotBuilt",
    )


def refusal(
    environment: EnvironmentSpec, *, lasts: bool = False, log: str = "$states.input.log"
) -> State:
    """A Catch that keeps why an API refused, whether that may pass, and where the log lies.

    `lasts`: another start is no help, whatever it says.
    """
    # What a function raised comes as JSON.
    first = r"""
  $error := $states.errorOutput;
  $cause := $contains($error.Cause, /^\{"errorMessage"/) ? $parse($error.Cause).errorMessage
    : $error.Cause;
  $said := $cause ? $replace($cause, / \(Service: .*/, "") : $error.Error;
"""
    retriable = "false" if lasts else may_pass('($error.Error & ": " & $error.Cause)')
    output = with_fields(
        {"reason": explained(environment, "$said"), "retriable": retriable, "log": log},
        first=first,
    )
    return {"ErrorEquals": ["States.ALL"], "Output": output, "Next": "NotBuilt"}


def may_pass(reason: str) -> str:
    """The expression of whether a reason, itself an expression, may be gone at another try."""
    return f"$contains({reason}, /{PASSING}/i) and $not($contains({reason}, /{NO_QUOTA}/))"
