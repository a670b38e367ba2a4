"""JSONata expressions of the state machine that builds engines.

What a job is given, what is read of its reply, and why an engine was not built, in a sentence: what
a service says, and what helps, which services seldom say.
"""

from __future__ import annotations

import json

from onboarding.environment_spec import EnvironmentSpec
from onboarding.plan_source import NO_PLAN, NOT_REUSED


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


def refusal(
    environment: EnvironmentSpec, *, lasts: bool = False, log: str = "$states.input.log"
) -> str:
    """The output of a Catch: why an API refused, whether that may pass, and where the log lies.

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
    fields = {"reason": explained(environment, "$said"), "retriable": retriable, "log": log}
    return with_fields(fields, first=first)


def may_pass(reason: str) -> str:
    """The expression of whether a reason, itself an expression, may be gone at another try."""
    return f"$contains({reason}, /{PASSING}/i) and $not($contains({reason}, /{NO_QUOTA}/))"


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


def another_try(environment: EnvironmentSpec) -> str:
    """Return the input of another try; its seconds are whole numbers, as a Wait state needs."""
    first = FIRST_CAPACITY_WAIT * environment.builds.poll_seconds
    waits = [
        min(first * 2**attempt, LONGEST_CAPACITY_WAIT_SECONDS)
        for attempt in range(max(1, environment.builds.capacity_retries))
    ]
    seconds = f"{literal(waits)}[$states.input.attempt]"
    return with_fields({"seconds": seconds, "attempt": "$states.input.attempt + 1"})


QUEUED = (
    "the build never began: CodeBuild had no machine for it while it waited in its queue; deploy"
    " again later, or ask for a higher quota in AWS Service Quotas"
)
"""What is said of a build that reached the time limit of CodeBuild's queue."""


def build_progress(environment: EnvironmentSpec) -> str:
    """Status, reason and log.

    The buildspec exports the build's own reason; CodeBuild's messages only name a command.
    """
    first = f"""
  $build := $states.result.Builds[0];
  $own := $build.ExportedEnvironmentVariables[Name = "ROUNDHOUSE_REASON"].Value;
  $messages := [$build.Phases.Contexts.Message[$ != ""]];
  $status := $exists($build) ? $build.BuildStatus : "GONE";
  $began := "BUILD" in $build.Phases.PhaseType;
  $told := $count($messages) > 0 ? $messages[0] : "the build ended as " & $status;
  $late := $began ? {literal(overrun(environment))} : {literal(QUEUED)};
  $reason := $boolean($own) ? $own
    : $status = "TIMED_OUT" ? $late : {explained(environment, "$told")};
  $place := $build.Logs.DeepLink ? $build.Logs.DeepLink
    : $build.Logs.GroupName & " " & $build.Logs.StreamName;
"""
    fields = {
        "status": "$status",
        "reason": "$reason",
        "final": '$boolean($own) or $status = "STOPPED"',
        "retriable": f'$not($began) and ($status = "FAULT" or {may_pass("$told")})',
        "log": "$place",
        **next_wait(environment),
    }
    return with_fields(fields, first=first)


EXIT_CODE = r"/,? ?exit code: \d+$/i"
"""What SageMaker puts behind the failure file's words, or writes in their place."""


def training_progress(environment: EnvironmentSpec) -> str:
    """Status and reason; what the build itself said comes after `AlgorithmError:`.

    No other machine would change that. A program that left no words, as one that was killed, leaves
    its exit code alone.
    """
    ended_as = (
        '"the training job ended as " & $job.TrainingJobStatus & " (" & $job.SecondaryStatus & ")"'
    )
    first = rf"""
  $job := $states.result;
  $given := $boolean($job.FailureReason) ? $job.FailureReason : {ended_as};
  $own := $contains($given, /^AlgorithmError/)
    ? $trim($replace($replace($given, /^AlgorithmError:/, ""), {EXIT_CODE}, "")) : "";
  $wordless := $replace($given, /^AlgorithmError:[ ,]*/, "the program left no word but ");
  $said := $job.SecondaryStatus = "MaxRuntimeExceeded"
    ? {literal(overrun(environment))} : {explained(environment, "$wordless")};
"""
    fields = {
        "status": "$job.TrainingJobStatus",
        "reason": '$own != "" ? $own : $said',
        "retriable": f"$not($contains($given, /^AlgorithmError/)) and {may_pass('$given')}",
        **next_wait(environment),
    }
    return with_fields(fields, first=first)


CAUSE_CHARACTERS = 30_000
"""The cause of a Fail state may have 32,768."""
COUNTS = '$count($states.input.built) & " engines built, " & $count($states.input.failed) & " not"'
FAILURES = (
    '$join([$states.input.failed.(model & ", engine " & engineKey & ": " & reason & " Log: " &'
    ' log)], "\\n")'
)
SUMMARY = (
    '"Built:\\n" & $join([$states.input.built.(model & ", engine " & engineKey)], "\\n")'
    f' & "\\n\\nNot built:\\n" & {FAILURES} & "\\n\\n" & $states.context.Execution.Id'
)


SUMMARIZE = jsonata(
    """(
  $flat := function($lists) { $reduce($lists, function($all, $some) { $append($all, $some) }, []) };
  $records := $flat($states.input.records);
  $told := function($each) {
    { "engineKey": $each.engineKey, "model": $each.model, "reason": $each.reason, "log": $each.log }
  };
  {
    "built": [$records[status = "built"].{ "engineKey": engineKey, "model": model }],
    "failed": [
      $map($records[status = "failed"], $told),
      $map($flat($states.input.waves)[$not(engineKey in $records.engineKey)], function($each) {
        $told($merge([$each, {
          "reason": "its execution ended without a word", "log": $states.context.Execution.Id
        }]))
      })
    ]
  }
)"""
)
"""What came of each engine; one whose execution left no record has failed too."""
