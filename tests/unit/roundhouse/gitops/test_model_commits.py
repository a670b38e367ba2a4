"""Some models move to a new commit, or back to an earlier one; an endpoint is of one commit."""

from __future__ import annotations

import pytest

from onboarding.fault import FaultsError
from onboarding.promotion import read_promotion, write_promotion
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.errors import DeployFailedError, RoundhouseError
from roundhouse.gitops.rollback import earlier_promotion
from roundhouse.processes import Processes
from tests.unit.roundhouse.gitops.repository import BUDGET, git
from tests.unit.roundhouse.gitops.rungs import BUCKETS, keys


@pytest.fixture
def new_commit(rungs):
    """Both models changed after a promotion of both."""
    rungs.promote_and_change()
    return rungs


def test_one_model_moves_and_the_other_stays(new_commit):
    old, new = keys(new_commit.prod()), keys(deployments(read_tree(new_commit.root), "dev"))
    base, commit = (
        read_promotion(new_commit.root, "prod").commit,
        git(new_commit.root, "rev-parse", "HEAD"),
    )
    promoted = new_commit.promote("model-001")
    assert (promoted.promotion.commit, promoted.promotion.models) == (base, {"model-001": commit})
    assert keys(new_commit.prod()) == [new[0], old[1]]
    assert promoted.promotion.engines == {"model-001": new[0], "model-002": old[1]}
    assert sorted(promoted.promotion.archives) == sorted([new[0], old[1]])
    assert not [key for key in new_commit.s3.buckets[BUCKETS["prod"]] if new[1] in key]


def test_gates_of_other_models_are_not_checked(new_commit):
    new_commit.alarms.ringing.append("dev-model-002-server-errors")
    new_commit.promote("model-001")
    with pytest.raises(DeployFailedError, match="model-002: an alarm rang"):
        new_commit.promote("model-002")


def test_refuses_to_split_an_endpoint(rungs):
    rungs.repository.edit("models/model-002.yaml", {"endpoint": None})
    rungs.repository.edit("models/model-002.yaml", {"endpoint": {"joins": "model-001"}})
    rungs.build()
    rungs.promote()
    rungs.repository.commit("promotion")
    for model in ("model-001", "model-002"):
        rungs.repository.edit(f"models/{model}.yaml", BUDGET)
    rungs.build()
    before = rungs.prod()
    with pytest.raises(RoundhouseError) as refused:
        rungs.promote("model-001")
    assert str(refused.value) == (
        "Endpoint model-001 would be neither what it is now nor what it is at that commit, because "
        "files that model-001 shares with others changed; add --model model-002, or leave --model "
        "out."
    )
    assert rungs.prod() == before
    rungs.promote("model-001", "model-002")
    assert keys(rungs.prod()) == keys(deployments(read_tree(rungs.root), "dev")) != keys(before)


def test_refuses_a_dataset_that_another_model_reads_too(new_commit):
    data = new_commit.root / "models/data"
    (file,) = data.glob("*calibration*")
    file.write_text(file.read_text() + "one more sentence\n")
    new_commit.build()
    with pytest.raises(RoundhouseError, match="Endpoint model-002 would be neither"):
        new_commit.promote("model-001")


def test_refuses_a_model_before_the_first_promotion_and_an_unknown_one(rungs):
    with pytest.raises(RoundhouseError, match="prod has no promotion, so it deploys the files"):
        rungs.promote("model-001")
    rungs.promote()
    rungs.repository.commit("promotion")
    with pytest.raises(RoundhouseError, match=r"--model model-1: no such model .* did you mean"):
        rungs.promote("model-1")


def test_refuses_a_promotion_of_a_commit_that_is_not_merged(rungs):
    rungs.promote()
    rungs.repository.commit("promotion")
    merged = git(rungs.root, "rev-parse", "HEAD~1")
    git(rungs.root, "checkout", "-q", "-b", "change")
    mine = rungs.repository.commit("mine")
    file = rungs.root / "promotions/prod.lock.yaml"
    file.write_text(file.read_text().replace(merged, mine))
    with pytest.raises(RoundhouseError, match=f"commit {mine[:12]} is not on main, so nobody has"):
        rungs.prod()


@pytest.fixture
def twice(rungs):
    """Two promotions, of which the second changed both models."""
    rungs.promote_and_change()
    rungs.promote()
    rungs.repository.commit("second promotion")
    return rungs


def roll_back(paths, *options, **named_options):
    """Write the earlier promotion, as `roundhouse rollback` does."""
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


def test_endpoint_goes_back_to_a_commit_and_forth_again(twice):
    first, second = promotions(twice)
    new = keys(twice.prod())
    roll_back(twice.paths, "prod", Processes(), first[:8], "model-001")
    twice.repository.commit("rollback")
    again = roll_back(twice.paths, "prod", Processes(), second[:8], "model-001")
    assert again.models == {} and keys(twice.prod()) == new


def test_refuses_an_endpoint_that_is_not_there_or_was_never_another(twice):
    with pytest.raises(RoundhouseError, match="model-1: no such endpoint in environment prod; "):
        roll_back(twice.paths, "prod", Processes(), endpoint="model-1")
    with pytest.raises(RoundhouseError, match="promotion of commit abc of endpoint model-001 in"):
        roll_back(twice.paths, "prod", Processes(), "abc", "model-001")


def deployments_at(rungs, commit):
    """What dev's files of a commit deploy."""
    folder = rungs.root.parent / "at"
    git(rungs.root, "worktree", "add", "-q", "--detach", str(folder), commit)
    return deployments(read_tree(folder), "dev")
