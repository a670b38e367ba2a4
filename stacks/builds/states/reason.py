"""Why an engine was not built, in a sentence: what a service says, and what helps, which services
seldom say.
"""

from __future__ import annotations

from onboarding.environment_spec import EnvironmentSpec
from stacks.builds.states.language import literal

NO_QUOTA = r"is 0 Instances|more than 0 builds"
"""A quota of nothing: no wait helps."""
KILLED = r"exit (status|code):? 137"
"""What CodeBuild and SageMaker say of a program that a SIGKILL ended."""
KILLED_SENTENCE = (
    "the build was killed (exit code 137), as when the machine has no memory left; its log shows in which step, and smaller "
    "optimization profiles, or a larger instance type, need less or give more"
)


def explained(environment: EnvironmentSpec, said: str) -> str:
    """The expression of a sentence for what a service said, itself an expression."""
    closed = f'$replace($trim({said}), /[.]+$/, "")'
    hints = "".join(
        f"$contains({said}, /{pattern}/i) ? {closed} & {literal('; ' + hint)} : "
        for pattern, hint in hints_of(environment)
    )
    return f"($contains({said}, /{KILLED}/i) ? {literal(KILLED_SENTENCE)} : {hints}{said})"


def hints_of(environment: EnvironmentSpec) -> tuple[tuple[str, str], ...]:
    """What helps, by a pattern of what is said; the first that matches counts."""
    tries = environment.builds.capacity_retries + 1
    deploy = f"`roundhouse deploy --env {environment.name}`"
    return (
        (NO_QUOTA, "the account has no quota for this machine: ask for one in AWS Service Quotas"),
        (
            "LimitExceeded|account-level service limit|Cannot have more than",
            f"the quota stayed in use for {tries} tries: lower builds.at_once, ask for more in AWS Service Quotas, or run "
            f"{deploy} later",
        ),
        (
            "CapacityError|Insufficient ?(Instance)?Capacity",
            f"AWS had no such machine in {tries} tries: run {deploy} later, or name another instance type",
        ),
        (
            "CannotPullContainer|UNABLE_TO_PULL|Cannot find repository|Requested image .* not found",
            f"{deploy} builds and pushes images that are missing; the role and the network must let it be pulled",
        ),
    )


def overrun(environment: EnvironmentSpec) -> str:
    """What is said of a build that reached its time limit."""
    return (
        f"the build took longer than the {environment.builds.timeout_minutes} minutes of builds.timeout_minutes; raise it in "
        f"environments/{environment.name}.yaml"
    )
