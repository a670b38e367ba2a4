"""What an environment or an endpoint deployed before is written again, and nothing is built."""

from __future__ import annotations

import pytest

from onboarding.fault import FaultsError
from onboarding.promotion import read_promotion, write_promotion
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.errors import RoundhouseError, UsageError
from roundhouse.gitops.rollback import earlier_promotion
from roundhouse.processes import Processes
from tests.unit.roundhouse.gitops.repository import BUDGET, git
from tests.unit.roundhouse.gitops.rungs import keys

pytestmark = pytest.mark.unit


@pytest.fixture
def twice(rungs):
    """Two promotions, of which the second changed both models."""
    rungs.promote_and_change()
    rungs.promote()
    rungs.repository.commit("second promotion")
    return rungs


def roll_back(paths, *options, **named_options):
    """Write the earlier promotion, as `roundhouse rollback` does without --pr."""
    promotion = earlier_promotion(paths, *options, **named_options)
    write_promotion(paths.tree, promotion)
    return promotion


def promotions(rungs):
    """The promotions that git has, the first one first."""
    commits = git(rungs.root, "log", "--reverse", "--format=%H", "--", "promotions").split()
    texts = [git(rungs.root, "show", f"{commit}:promotions/prod.lock.yaml") for commit in commits]
    return [text.split("commit: ")[1][:40] for text in texts]


def test_rollback_writes_the_promotion_before_or_that_of_a_commit(rungs):
    rungs.promote()
    first = rungs.repository.commit("promotion")
    rungs.repository.models.change("model-001", BUDGET)
    rungs.build("model-001")
    second = rungs.promote().promotion
    rungs.repository.commit("second promotion")
    before = roll_back(rungs.paths, "prod", Processes())
    assert before == read_promotion(rungs.root, "prod") and before.commit != second.commit
    assert git(rungs.root, "diff", "--name-only", first, "--", "promotions") == ""
    rungs.repository.commit("rollback")
    again = roll_back(rungs.paths, "prod", Processes(), second.commit[:7])
    assert again == second


def test_refuses_a_rollback_without_an_earlier_promotion(rungs):
    with pytest.raises(RoundhouseError, match="prod has no promotion"):
        roll_back(rungs.paths, "prod", Processes())
    rungs.promote()
    rungs.repository.commit("promotion")
    with pytest.raises(RoundhouseError, match="git has no earlier promotion of prod here"):
        roll_back(rungs.paths, "prod", Processes())
    with pytest.raises(RoundhouseError, match="git has no promotion of commit abcdef0 of prod"):
        roll_back(rungs.paths, "prod", Processes(), "abcdef0")


@pytest.mark.parametrize("environment", ["prd", ""])
def test_refuses_a_rollback_of_an_unknown_environment(rungs, environment):
    with pytest.raises(FaultsError, match="environment"):
        roll_back(rungs.paths, environment, Processes())


def test_endpoint_is_rolled_back_alone(twice):
    first, second = promotions(twice)
    old, new = keys(deployments_at(twice, first)), keys(twice.prod())
    rolled = roll_back(twice.paths, "prod", Processes(), endpoint="model-001")
    assert rolled == read_promotion(twice.root, "prod")
    assert (rolled.commit, rolled.models) == (second, {"model-001": first})
    assert keys(twice.prod()) == [old[0], new[1]]
    assert rolled.engines == {"model-001": old[0], "model-002": new[1]}
    assert set(rolled.evidence) == {"model-001", "model-002"}


def test_endpoint_goes_back_to_a_commit_and_forth_again(twice):
    first, second = promotions(twice)
    new = keys(twice.prod())
    roll_back(twice.paths, None, Processes(), first[:8], "model-001")
    twice.repository.commit("rollback")
    again = roll_back(twice.paths, None, Processes(), second[:8], "model-001")
    assert again.models == {} and keys(twice.prod()) == new


def test_environment_rolls_back_what_an_endpoint_s_rollback_changed(twice):
    new = keys(twice.prod())
    roll_back(twice.paths, "prod", Processes(), endpoint="model-002")
    twice.repository.commit("rollback")
    assert roll_back(twice.paths, "prod", Processes()).models == {}
    assert keys(twice.prod()) == new


def test_refuses_an_endpoint_that_is_not_there_or_was_never_another(twice):
    with pytest.raises(RoundhouseError, match="model-1: no such endpoint in environment prod; "):
        roll_back(twice.paths, "prod", Processes(), endpoint="model-1")
    with pytest.raises(RoundhouseError, match="promotion of commit abc of endpoint model-001 in"):
        roll_back(twice.paths, "prod", Processes(), "abc", "model-001")


def test_refuses_an_endpoint_whose_dataset_another_one_reads(twice):
    (file,) = (twice.root / "models/data").glob("*calibration*")
    file.write_text(file.read_text() + "one more sentence\n")
    twice.build()
    twice.promote()
    twice.repository.commit("third promotion")
    before = read_promotion(twice.root, "prod")
    with pytest.raises(RoundhouseError, match=r"Endpoint model-002 .* changed; roll the whole"):
        roll_back(twice.paths, "prod", Processes(), endpoint="model-001")
    assert read_promotion(twice.root, "prod") == before


def test_refuses_a_rollback_without_an_environment_unless_one_alone_has_a_promotion(rungs):
    with pytest.raises(UsageError, match="--env is missing, and no environment has a promotion"):
        roll_back(rungs.paths, None, Processes(), endpoint="model-001")


def deployments_at(rungs, commit):
    """What dev's files of a commit deploy."""
    folder = rungs.root.parent / "at"
    git(rungs.root, "worktree", "add", "-q", "--detach", str(folder), commit)
    return deployments(read_tree(folder), "dev")
