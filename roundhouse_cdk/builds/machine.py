"""The state machine that builds engines, in the Amazon States Language.

Waves, one after the other, of engines side by side. Its input is `{"source": "bucket/key",
"commit": "…", "waves": [[engine, …], …]}`, each engine with engineKey, model, computeCapability,
route and instanceType; with planFrom (`KEY` or `KEY:SHA256` of the engine whose plan it is packaged
of) and planRoute where nothing is to be compiled. A text generator's checkpoint is built as one of
them: engineKey is its checkpoint key, and `scheme` its number format. Engines that share a network
or a plan that nobody has made yet belong into different waves. Every engine is an execution of its
own, in a Map Run: one history would not hold the looks at forty long builds. Its output is
`{"built": [{engineKey, model}], "failed": [{engineKey, model, reason, log}]}`; with a failure it
ends FAILED, its cause naming each engine, once all others have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onboarding.environment_spec import EnvironmentSpec
from roundhouse_cdk.builds.engine_states import engine_states
from roundhouse_cdk.builds.language import State, choice, jsonata, publication, title

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


def build_machine(
    environment: EnvironmentSpec,
    *,
    projects: Sequence[str],
    training_image: str,
    quantizer_image: str | None = None,
) -> dict[str, Any]:
    """The definition.

    `projects` are the routes that have a CodeBuild project, `training_image` the image of training
    jobs, `quantizer_image` that of jobs that quantize (None: no text generators). `${JobRole}` in
    it stands for the ARN of the training jobs' role.
    """
    states = engine_states(
        environment,
        projects=projects,
        training_image=training_image,
        quantizer_image=quantizer_image,
    )
    return {
        "Comment": (
            f"Builds engines of {environment.name}: each that can be built, whatever becomes of the"
            " others"
        ),
        "StartAt": "Waves",
        "States": {
            "Waves": _waves(_engines(environment, states)),
            "Summarize": _summarize(),
            "TellSummary": publication(
                environment,
                event="builds-ended",
                subject=title(environment, COUNTS),
                message=SUMMARY,
                then="AllBuilt",
            ),
            "AllBuilt": choice(
                {"$count($states.input.failed) = 0": "Built"}, default="NotAllBuilt"
            ),
            "Built": {"Type": "Succeed"},
            "NotAllBuilt": {
                "Type": "Fail",
                "QueryLanguage": "JSONata",
                "Error": "Roundhouse.EnginesNotBuilt",
                "Cause": jsonata(f"$substring({FAILURES}, 0, {CAUSE_CHARACTERS})"),
            },
        },
    }


def _waves(engines: State) -> State:
    """One wave after the other: a later one finds the networks that an earlier one made."""
    return {
        "Type": "Map",
        "ItemsPath": "$.waves",
        "MaxConcurrency": 1,
        "ItemSelector": {
            "engines.$": "$$.Map.Item.Value",
            "source.$": "$.source",
            "commit.$": "$.commit",
        },
        "ItemProcessor": {
            "ProcessorConfig": {"Mode": "INLINE"},
            "StartAt": "Engines",
            "States": {"Engines": engines},
        },
        "ResultPath": "$.records",
        "Next": "Summarize",
    }


def _engines(environment: EnvironmentSpec, states: dict[str, Any]) -> State:
    """A Map whose failed or stopped child executions do not fail the others."""
    return {
        "Type": "Map",
        "Label": "Engine",
        "ItemsPath": "$.engines",
        "MaxConcurrency": environment.builds.at_once,
        "ToleratedFailurePercentage": 100,
        "ItemSelector": {
            "engine.$": "$$.Map.Item.Value",
            "source.$": "$.source",
            "commit.$": "$.commit",
            "execution.$": "$$.Execution.Id",
        },
        "ItemProcessor": {
            "ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"},
            **states,
        },
        "End": True,
    }


def _summarize() -> State:
    """What came of each engine; one whose execution left no record has failed too."""
    output = """(
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
    return {
        "Type": "Pass",
        "QueryLanguage": "JSONata",
        "Output": jsonata(output),
        "Next": "TellSummary",
    }


def missing_states(machine: dict[str, Any], name: str = "the state machine") -> list[str]:
    """Return a sentence for each step to a state that a machine, or a Map in it, does not have."""
    states: dict[str, State] = machine["States"]
    faults = [] if machine["StartAt"] in states else [f"{name} starts at {machine['StartAt']}"]
    for state, fields in states.items():
        branches = (*fields.get("Choices", ()), *fields.get("Catch", ()))
        named = [fields.get("Next"), fields.get("Default"), *(item["Next"] for item in branches)]
        faults += [f"{state} goes to {then}" for then in named if then and then not in states]
        faults += (
            missing_states(fields["ItemProcessor"], state) if "ItemProcessor" in fields else []
        )
    return faults
