"""`roundhouse recommend`: its options, and the requests that a dry run shows."""

import json

import pytest

from onboarding.lock import write_lock_entry
from onboarding.prices import price
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.cli.app import app
from roundhouse.errors import RoundhouseError, UsageError
from tests.unit.roundhouse.engines import copied_tree, entry_for

pytestmark = pytest.mark.unit


@pytest.fixture
def tree(tmp_path):
    """The shipped tree with every engine of `dev` in its lock."""
    root = copied_tree(tmp_path / "tree")
    for deployment in deployments(read_tree(root), "dev"):
        for target in deployment.targets:
            entry = entry_for(deployment, target)
            write_lock_entry(root / "models", target.model.name, entry)
    return root


def recommend(tree, *words):
    command = ["recommend", "sentence-embedder", "--env", "dev", "--root", str(tree), *words]
    app(command, standalone_mode=False)


def test_a_dry_run_shows_the_requests_and_the_most_they_cost(tree, capsys):
    recommend(tree, "--advanced", "--dry-run", "--format", "json", "--stop-at", "p95=70")
    shown = json.loads(capsys.readouterr().out)
    job = shown["create_inference_recommendations_job"]
    assert job["StoppingConditions"]["ModelLatencyThresholds"][0]["ValueInMilliseconds"] == 70
    assert job["InputConfig"]["ModelName"] == shown["create_model"]["ModelName"]
    # One type for 25 minutes of load and 10 of start-up.
    hourly = price("us-east-1", "hosting", "ml.g5.xlarge")
    assert shown["most_usd"] == pytest.approx(hourly * 35 / 60)
    recommend(tree, "--dry-run", "--instance-type", "ml.g5.xlarge, ml.g5.2xlarge")
    printed = capsys.readouterr().out
    assert "Nothing was asked of AWS. The job's instances cost at most" in printed
    assert '"SupportedInstanceTypes"' in printed


def test_refuses_options_of_the_other_kind_of_job(tree):
    with pytest.raises(UsageError, match="add --advanced"):
        recommend(tree, "--phase", "start=2,seconds=120", "--dry-run")


def test_refuses_a_model_that_is_not_built(tmp_path):
    with pytest.raises(RoundhouseError, match="is not in the lock"):
        recommend(copied_tree(tmp_path / "empty"), "--dry-run")
