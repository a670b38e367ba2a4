"""The build machine's definition: whole, without a dead end, and exact in what it tries again."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from onboarding.environment_spec import BuildsSpec
from onboarding.names import training_job_prefix
from onboarding.platform import instance_types
from roundhouse_cdk.build_expressions import (
    FIRST_CAPACITY_WAIT,
    LONGEST_CAPACITY_WAIT_SECONDS,
    LOOKED_AT_AFTER,
    NO_QUOTA,
    PASSING,
)
from roundhouse_cdk.build_states import REFUSED_FOR_NOW, training_job
from tests.synth.deployments import environment
from tests.synth.pipeline import (
    GOLDEN,
    IMAGE,
    KEY,
    NETWORK,
    definitions,
    golden_text,
    whole,
)

pytestmark = pytest.mark.unit
EVENTS_A_LOOK = 9
"""Wait and Choice entered and left; the Task entered, scheduled, started, succeeded and left."""
HISTORY = 25_000
ENDS = ("Succeed", "Fail")

Machine = dict[str, Any]


def machines(machine: Machine) -> Iterator[Machine]:
    """A state machine and those within its Map states."""
    yield machine
    for state in machine["States"].values():
        if "ItemProcessor" in state:
            yield from machines(state["ItemProcessor"])


def nexts(state: dict[str, Any]) -> list[str]:
    """Every state that may come after one."""
    named = [state.get("Next"), state.get("Default")]
    chosen = [entry["Next"] for entry in (*state.get("Choices", ()), *state.get("Catch", ()))]
    return [name for name in (*named, *chosen) if name is not None]


def tasks(machine: Machine) -> dict[str, dict[str, Any]]:
    """Every state that calls an API."""
    found = [item for element in machines(machine) for item in element["States"].items()]
    return {name: state for name, state in found if state["Type"] == "Task"}


@pytest.fixture(params=list(definitions()))
def machine(request) -> Machine:
    return definitions()[request.param]


def test_definition_is_the_golden_one():
    assert golden_text() == GOLDEN.read_text(encoding="utf-8"), (
        "if that is meant: python -m tests.synth.pipeline"
    )


def test_every_next_state_exists_and_every_state_is_reached(machine):
    for part in machines(machine):
        reached, frontier = set(), [part["StartAt"]]
        while frontier:
            name = frontier.pop()
            assert name in part["States"], name
            if name not in reached:
                reached.add(name)
                frontier.extend(nexts(part["States"][name]))
        assert reached == set(part["States"])


def test_every_path_ends(machine):
    for part in machines(machine):
        states = part["States"]
        ending = {
            name for name, state in states.items() if state["Type"] in ENDS or state.get("End")
        }
        assert ending
        while True:
            more = {
                name
                for name, state in states.items()
                if name not in ending and set(nexts(state)) & ending
            }
            if not more:
                break
            ending |= more
        assert ending == set(states)


def test_every_call_is_tried_again_when_throttled_and_caught_whatever_is_wrong(machine):
    of_checkpoints = {"SignEngine", "SignCheckpoint", "StartQuantizerJob"}
    assert (set(tasks(machine)) - of_checkpoints) | {"Sign"} == {
        "StartBuild",
        "LookAtBuild",
        "StartTrainingJob",
        "LookAtTrainingJob",
        "Sign",
        "TellFailure",
        "TellSummary",
    }
    for name, state in tasks(machine).items():
        again, *more = state["Retry"]
        assert bool(more) == (name == "SignCheckpoint")
        assert set(again["ErrorEquals"]) == set(REFUSED_FOR_NOW)
        assert again["MaxAttempts"] == (20 if name.startswith("LookAt") else 3)
        assert again["BackoffRate"] > 1 and again["JitterStrategy"] == "FULL"
        assert state["Catch"][-1]["ErrorEquals"] == ["States.ALL"]
        # Waiting integrations would hide a build's progress, and MiniStack drops their suffix.
        api = r"arn:aws:states:::(aws-sdk:[a-z]+:[A-Za-z]+|lambda:invoke)"
        assert re.fullmatch(api, state["Resource"])


PASSES = (
    (
        "CapacityError: Unable to provision requested ML compute capacity. Please retry using a"
        " different ML instance type."
    ),
    (
        "SageMaker.ResourceLimitExceededException: The account-level service limit"
        " 'ml.g6.xlarge for training job usage' is 2 Instances, with current utilization of 2"
        " Instances and a request delta of 1 Instances."
    ),
    (
        "CodeBuild.AccountLimitExceededException: Cannot have more than 1 builds in queue for"
        " the account"
    ),
    (
        "SageMaker.SageMakerException: Rate exceeded (Service: SageMaker, Status Code: 400,"
        " Request ID: 1)"
    ),
    "CodeBuild.CodeBuildException: ThrottlingException",
    "We have insufficient capacity of this type; please try again",
    "InsufficientInstanceCapacity",
    "InternalServerError: We encountered an internal error. Please try again.",
    "INTERNAL_SERVICE_ERROR: CodeBuild is experiencing an issue",
)
PASSES_NEVER = (
    (
        "SageMaker.ResourceLimitExceededException: The account-level service limit"
        " 'ml.p5.48xlarge for training job usage' is 0 Instances, with current utilization of 0"
        " Instances and a request delta of 1 Instances."
    ),
    (
        "CodeBuild.AccountLimitExceededException: Cannot have more than 0 builds in queue for"
        " the account"
    ),
    "the engine is for compute capability 8.6, and this machine has 7.5",
    "CodeBuild.ResourceNotFoundException: Project cannot be found",
    "accuracy budget missed: mean cosine 0.91",
    (
        "SageMaker.SageMakerException: 1 validation error detected: Value 'ml.g5.tiny' at"
        " 'resourceConfig.instanceType'"
    ),
)


@pytest.mark.parametrize(
    ("reason", "passes"),
    [*((reason, True) for reason in PASSES), *((reason, False) for reason in PASSES_NEVER)],
)
def test_want_of_capacity_may_pass_and_nothing_else_does(reason, passes):
    may_pass = re.search(PASSING, reason, re.IGNORECASE) and not re.search(NO_QUOTA, reason)
    assert bool(may_pass) is passes


def test_the_longest_build_fits_into_a_history_with_tries_to_spare():
    longest = 60 * (2160 + 480)
    waited, looks = 0, 0
    while waited < longest:
        waited += max(1, waited // LOOKED_AT_AFTER)
        looks += 1
    assert looks * EVENTS_A_LOOK < HISTORY / 4


def test_capacity_is_waited_for_longer_and_longer_for_an_hour():
    builds = BuildsSpec()
    waits = [
        min(FIRST_CAPACITY_WAIT * builds.poll_seconds * 2**at, LONGEST_CAPACITY_WAIT_SECONDS)
        for at in range(6)
    ]
    assert (waits[0], builds.capacity_retries) == (60, 6)
    assert math.isclose(sum(waits), 3600, rel_tol=0.1)
    again = engine_states(definitions()["dev"])["TryAgain"]
    assert f"{waits}[$states.input.attempt]" in again["Output"]
    not_built = engine_states(definitions()["dev"])["NotBuilt"]
    assert "$states.input.attempt < 6" in json.dumps(not_built)


def engine_states(machine: Machine) -> dict[str, dict[str, Any]]:
    states: dict[str, dict[str, Any]] = list(machines(machine))[-1]["States"]
    return states


def test_every_call_is_one_that_its_service_knows(machine):
    """Against the APIs' own models: operations, names of arguments, and those that are required."""
    for name, state in tasks(machine).items():
        *_, service, action = state["Resource"].split(":")
        model = botocore.session.get_session().get_service_model(service)
        operation = model.operation_model(action[0].upper() + action[1:])
        known = {member[0].upper() + member[1:] for member in operation.input_shape.members}
        required = {
            member[0].upper() + member[1:] for member in operation.input_shape.required_members
        }
        assert required <= state["Arguments"].keys() <= known, name


def test_training_job_is_one_that_sagemaker_knows():
    """Against the API's own model: names, types, lists of values.

    Expressions are strings, whatever they come to.
    """
    job = training_job(whole(), IMAGE) | {"RoleArn": "arn:aws:iam::111122223333:role/job"}
    job["ResourceConfig"] = {**job["ResourceConfig"], "InstanceType": "ml.g6.xlarge"}
    model = botocore.session.get_session().get_service_model("sagemaker")
    report = ParamValidator().validate(job, model.operation_model("CreateTrainingJob").input_shape)
    assert not report.has_errors(), report.generate_report()
    assert job["VpcConfig"] == {
        "Subnets": list(NETWORK.subnet_ids),
        "SecurityGroupIds": list(NETWORK.security_group_ids),
    }
    assert job["OutputDataConfig"]["KmsKeyId"] == KEY
    assert job["StoppingCondition"] == {"MaxRuntimeInSeconds": 240 * 60}
    assert job["ResourceConfig"]["VolumeSizeInGB"] == 100


def test_training_job_names_no_volume_key_because_every_gpu_type_has_disks_of_its_own():
    assert "VolumeKmsKeyId" not in json.dumps(training_job(whole(), IMAGE))
    assert all(instance.local_nvme for instance in instance_types().values() if instance.is_gpu)


def test_training_jobs_take_every_gpu_type_that_endpoints_may_have():
    model = botocore.session.get_session().get_service_model("sagemaker")
    known = set(model.shape_for("TrainingInstanceType").enum)
    assert {name for name, instance in instance_types().items() if instance.is_gpu} <= known
    processing = set(model.shape_for("ProcessingInstanceType").enum)
    assert not {"ml.p4d.24xlarge", "ml.p5en.48xlarge", "ml.p6-b200.48xlarge"} & processing


def test_training_job_names_fit_and_no_environment_has_anothers_prefix():
    longest = environment("dev").model_copy(update={"name": "a" * 16})
    assert len(training_job_prefix(longest)) + 20 + len("-01234567-99") <= 63
    names = [
        environment("dev").model_copy(update={"name": name})
        for name in ("dev", "dev-2", "dev-0123")
    ]
    first, *others = map(training_job_prefix, names)
    assert not any(other.startswith(first) for other in others)


def test_training_job_gets_the_hyperparameters_that_its_program_takes():
    from engine_build.training_job import OPTIONAL, REQUIRED, VARIABLES

    known = {*REQUIRED, *OPTIONAL, *VARIABLES}
    assert set(training_job(whole(), IMAGE)["HyperParameters"]) == known - {"checkpoint_key"}
    of_checkpoint = known - {"compute_capability"}
    job = training_job(whole(), IMAGE, is_checkpoint=True)
    assert set(job["HyperParameters"]) == of_checkpoint
