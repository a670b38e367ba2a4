"""Each way a build can fail, in the words of CodeBuild and SageMaker, and the one sentence that a
person gets of it.

The machine's own expressions are evaluated by the local cloud's JSONata.
"""

import json
import subprocess

import pytest

from tests.local_cloud.conftest import PYTHON
from tests.synth.pipeline import definitions

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


def states():
    waves = definitions()["dev"]["States"]["Waves"]["ItemProcessor"]
    return waves["States"]["Engines"]["ItemProcessor"]["States"]


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


OWN = "the worst cosine is 0.91, and the budget asks for 0.95."
FAILED = "Error while executing command: python -m engine_build. Reason: exit status {}"
KILLED = "the build was killed (exit code 137), as when the machine has no memory left"
TOO_LONG = (
    "the build took longer than the 240 minutes of builds.timeout_minutes; raise it in "
    "environments/dev.yaml"
)
UNPULLED = (
    "BUILD_CONTAINER_UNABLE_TO_PULL_IMAGE: Unable to pull customer's container image. "
    "CannotPullContainerError: not found"
)
QUEUED = ("SUBMITTED", "QUEUED")


@pytest.mark.parametrize(
    ("given", "more", "reason"),
    [
        (("FAILED", FAILED.format(3)), {"own": OWN}, OWN),
        (("FAILED", FAILED.format(137)), {}, KILLED),
        (("FAILED", FAILED.format(2)), {}, FAILED.format(2)),
        (("TIMED_OUT", "Build has timed out. "), {}, TOO_LONG),
        (
            ("TIMED_OUT", ""),
            {"phases": QUEUED},
            "the build never began: CodeBuild had no machine for it",
        ),
        (
            ("FAILED", UNPULLED),
            {"phases": (*QUEUED, "PROVISIONING")},
            f"{UNPULLED}; `roundhouse deploy --env dev` builds and pushes images",
        ),
    ],
)
def test_a_failed_build_says_why_in_one_sentence(given, more, reason):
    found, again = of_build(*given, **more)
    assert found.startswith(reason) and not again


@pytest.mark.parametrize(
    ("job", "reason", "retriable"),
    [
        ((f"AlgorithmError: {OWN}, exit code: 3",), OWN, False),
        (("AlgorithmError: , exit code: 137",), KILLED, False),
        (("AlgorithmError: Exit Code: 137",), KILLED, False),
        (
            ("AlgorithmError: , exit code: 1",),
            "the program left no word but exit code: 1",
            False,
        ),
        (
            ("AlgorithmError: Exit Code: 139",),
            "the program left no word but Exit Code: 139",
            False,
        ),
        ((None, "Stopped", "MaxRuntimeExceeded"), TOO_LONG, False),
        ((None, "Stopped", "Stopped"), "the training job ended as Stopped (Stopped)", False),
        (
            (CAPACITY,),
            f"{CAPACITY[:-1]}; AWS had no such machine in 7 tries: run `roundhouse deploy --env "
            "dev` later, or name another instance type",
            True,
        ),
    ],
)
def test_a_failed_training_job_says_why_in_one_sentence(job, reason, retriable):
    found, again = of_job(*job)
    assert found.startswith(reason) and again is retriable
