"""Each way a build can fail, in the words of CodeBuild and SageMaker, and the one sentence that a
person gets of it.

The machine's own expressions are evaluated by the local cloud's JSONata.
"""

import json
import subprocess

import pytest

from stacks.builds.machine import build_machine
from tests.local_cloud.conftest import PYTHON
from tests.synth.deployments import environment

pytestmark = pytest.mark.local_cloud
EVALUATE = """
import json, sys
import jsonata
expression, states = json.load(sys.stdin)
asked = jsonata.Jsonata(expression)
frame = asked.create_frame()
frame.bind("states", states)
json.dump(asked.evaluate(None, frame), sys.stdout)
"""
INPUT = {
    "engine": {"model": "m"},
    "attempt": 0,
    "seconds": 15,
    "waited": 15,
    "job": "j",
    "log": "l",
}
COMMAND = "COMMAND_EXECUTION_ERROR"
CAPACITY = (
    "CapacityError: Unable to provision requested ML compute capacity. Please retry using "
    "a different ML instance type."
)
IN_USE = (
    "The account-level service limit 'ml.g6.xlarge for training job usage' is 2 Instances, with "
    "current utilization of 2 "
    "Instances and a request delta of 1 Instances. (Service: SageMaker, Status Code: 400, "
    "Request ID: 1)"
)
NOTHING = IN_USE.replace("is 2 Instances", "is 0 Instances")


def states():
    definition = build_machine(environment("dev"), projects=["cpu", "gpu"], training_image="image")
    return definition["States"]["Waves"]["ItemProcessor"]["States"]["Engines"]["ItemProcessor"][
        "States"
    ]


def evaluated(expression, **bound):
    """`reason` and `retriable` of an Output."""
    given = json.dumps(
        [expression.removeprefix("{%").removesuffix("%}"), {"input": INPUT, **bound}]
    )
    ran = subprocess.run(
        [PYTHON, "-c", EVALUATE], input=given, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    return found["reason"], found["retriable"]


def build(status, message=None, phases=("SUBMITTED", "QUEUED", "PROVISIONING", "BUILD"), own=""):
    contexts = [{"StatusCode": COMMAND, "Message": message or ""}]
    return {
        "Id": "p:1",
        "BuildStatus": status,
        "Logs": {"GroupName": "g", "StreamName": "s"},
        "Phases": [
            {"PhaseType": phase, "Contexts": contexts if phase == phases[-1] else []}
            for phase in phases
        ],
        "ExportedEnvironmentVariables": [{"Name": "ROUNDHOUSE_REASON", "Value": own}],
    }


def of_build(*given, **more):
    return evaluated(states()["LookAtBuild"]["Output"], result={"Builds": [build(*given, **more)]})


def of_job(reason=None, status="Failed", secondary="Failed"):
    job = {"TrainingJobStatus": status, "SecondaryStatus": secondary}
    return evaluated(
        states()["LookAtTrainingJob"]["Output"],
        result=job if reason is None else {**job, "FailureReason": reason},
    )


def of_refusal(state, error, cause):
    return evaluated(
        states()[state]["Catch"][-1]["Output"], errorOutput={"Error": error, "Cause": cause}
    )


def test_the_builds_own_words_come_before_everything_a_service_says():
    error_text = "the worst cosine is 0.91, and the budget asks for 0.95."
    assert of_build(
        "FAILED", "Error while executing command: python. Reason: exit status 3", own=error_text
    ) == (error_text, False)
    assert of_job(f"AlgorithmError: {error_text}, exit code: 3") == (error_text, False)


def test_a_build_that_memory_killed_says_so_by_both_routes():
    reason, again = of_build(
        "FAILED", "Error while executing command: python -m engine_build. Reason: exit status 137"
    )
    assert (
        (reason, again)
        == of_job("AlgorithmError: , exit code: 137")
        == of_job("AlgorithmError: Exit Code: 137")
    )
    assert not again
    assert reason.startswith(
        "the build was killed (exit code 137), as when the machine has no memory left"
    )


def test_a_program_that_left_no_word_is_known_by_its_exit_code():
    actual = of_job("AlgorithmError: , exit code: 1")
    assert actual == ("the program left no word but exit code: 1", False)
    actual = of_job("AlgorithmError: Exit Code: 139")
    assert actual == ("the program left no word but Exit Code: 139", False)


def test_a_command_that_failed_without_a_reason_keeps_codebuilds_words_for_the_reader():
    error_text = "Error while executing command: python -m engine_build. Reason: exit status 2"
    assert of_build("FAILED", error_text) == (error_text, False)


def test_a_build_that_took_too_long_names_the_setting():
    reason, again = of_build("TIMED_OUT", "Build has timed out. ")
    assert (reason, again) == of_job(status="Stopped", secondary="MaxRuntimeExceeded")
    limit = (
        "the build took longer than the 240 minutes of builds.timeout_minutes; raise it in "
        "environments/dev.yaml"
    )
    assert (reason, again) == (limit, False)


def test_a_build_that_never_left_the_queue_says_so():
    reason, _ = of_build("TIMED_OUT", "", phases=("SUBMITTED", "QUEUED"))
    assert reason.startswith("the build never began: CodeBuild had no machine for it")


def test_an_image_that_cannot_be_pulled_names_the_command_that_pushes_it():
    error_text = (
        "BUILD_CONTAINER_UNABLE_TO_PULL_IMAGE: Unable to pull customer's container image. "
        "CannotPullContainerError: not found"
    )
    reason, _ = of_build("FAILED", error_text, phases=("SUBMITTED", "QUEUED", "PROVISIONING"))
    assert reason.startswith(
        f"{error_text}; `roundhouse deploy --env dev` builds and pushes images"
    )


def test_want_of_capacity_is_tried_again_and_says_how_often():
    reason, again = of_job(CAPACITY)
    assert again
    assert (
        reason
        == CAPACITY[:-1]
        + "; AWS had no such machine in 7 tries: run `roundhouse deploy --env dev` later, or name "
        + ("another instance type")
    )


def test_a_quota_in_use_is_tried_again_and_a_quota_of_nothing_is_not():
    reason, again = of_refusal(
        "StartTrainingJob", "SageMaker.ResourceLimitExceededException", IN_USE
    )
    assert (
        again and "Request ID" not in reason and "; the quota stayed in use for 7 tries" in reason
    )
    reason, again = of_refusal(
        "StartTrainingJob", "SageMaker.ResourceLimitExceededException", NOTHING
    )
    assert not again and reason.endswith(
        "; the account has no quota for this machine: ask for one in AWS Service Quotas"
    )
    cause = (
        "Cannot have more than 0 builds in queue for the account (Service: CodeBuild, Status "
        "Code: 400, Request ID: 1)"
    )
    reason, again = of_refusal("StartBuild", "CodeBuild.AccountLimitExceededException", cause)
    assert not again and reason.startswith(
        "Cannot have more than 0 builds in queue for the account; the account has no quota"
    )


def test_a_job_that_somebody_stopped_and_a_build_that_is_gone_say_so():
    actual = of_job(status="Stopped", secondary="Stopped")
    assert actual == ("the training job ended as Stopped (Stopped)", False)
    actual = evaluated(states()["LookAtBuild"]["Output"], result={"Builds": []})
    assert actual == ("the build ended as GONE", False)
