"""The shipped workflows, played from a fork's pull request to prod and back."""

import pytest

from tests.rehearsal.__main__ import rehearse

pytestmark = pytest.mark.rehearsal

STEPS = 8


def test_change_reaches_prod_and_is_reverted_without_a_failed_request(tmp_path):
    document = rehearse(tmp_path, tmp_path / "report.json")
    assert len(document["steps"]) == STEPS
    assert document["requests_of_prod"]["failed"] == 0
    assert document["requests_of_prod"]["answered"] > STEPS
