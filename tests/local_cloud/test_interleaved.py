"""What two threads of the local cloud do to each other at the worst moment, brought about instead
of waited for.
"""

import json
import os
import subprocess

import pytest

from tests.local_cloud.account import ROOT
from tests.local_cloud.conftest import PYTHON

pytestmark = pytest.mark.local_cloud


@pytest.fixture(scope="module")
def outcomes():
    """What went wrong in each meeting, by its name; they run where MiniStack is."""
    command = (PYTHON, "-m", "tests.local_cloud.interleaved")
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "meeting",
    [
        "a_target_model_is_forgotten_as_soon_as_it_is_loaded",
        "an_endpoint_settles_while_its_scaling_is_followed",
        "an_endpoint_is_deleted_while_its_fleets_are_listed",
        "an_endpoint_is_deleted_while_its_queue_is_looked_at",
        "an_endpoint_is_deleted_while_it_is_described",
        "a_second_request_is_captured_before_the_first_has_called_for_delivery",
        "an_alarm_is_set_while_it_is_evaluated",
        "values_are_read_while_the_minute_that_drained_them_is_storing_them",
        "a_job_ends_while_it_is_stopped",
        "an_endpoint_begins_to_scale_before_its_stack_changes_it",
    ],
)
def test_both_are_served_where(outcomes, meeting):
    assert outcomes[meeting] is None, outcomes[meeting]


def test_every_meeting_has_its_test(outcomes):
    meetings = test_both_are_served_where.pytestmark[0].args[1]
    assert sorted(outcomes) == sorted(meetings)
