"""Some models move to a new commit, the others stay; an endpoint is never of two commits."""

from __future__ import annotations

import pytest

from onboarding.promotion import read_promotion
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.errors import DeployFailedError, RoundhouseError
from tests.unit.roundhouse.gitops.repository import BUDGET, git
from tests.unit.roundhouse.gitops.rungs import BUCKETS, keys

pytestmark = pytest.mark.unit


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
    assert set(promoted.promotion.evidence) == {"model-001", "model-002"}
    assert not [key for key in new_commit.s3.buckets[BUCKETS["prod"]] if new[1] in key]


def test_second_promotion_of_a_model_does_nothing(new_commit):
    new_commit.promote("model-001")
    new_commit.repository.commit("promotion of a model")
    again = new_commit.promote("model-001")
    assert (again.path, again.copied.copied) == (None, 0)


def test_whole_promotion_ends_that_of_single_models(new_commit):
    new_commit.promote("model-001")
    new_commit.repository.commit("promotion of a model")
    whole = new_commit.promote()
    assert whole.path is not None and whole.promotion.models == {}
    assert "models:" not in whole.path.read_text()
    assert keys(new_commit.prod()) == keys(deployments(read_tree(new_commit.root), "dev"))


def test_reverting_the_promotion_of_a_model_deploys_what_was(new_commit):
    before = keys(new_commit.prod())
    new_commit.promote("model-001")
    new_commit.repository.commit("promotion of a model")
    git(new_commit.root, "revert", "--no-edit", "HEAD")
    assert keys(new_commit.prod()) == before


def test_gates_of_other_models_are_not_checked(new_commit):
    _, two = deployments(read_tree(new_commit.root), "dev")
    new_commit.measure(two, date="2026-01-01")
    new_commit.repository.commit()
    new_commit.promote("model-001")
    with pytest.raises(DeployFailedError, match="model-002: its load test is 325 days old"):
        new_commit.promote("model-002")


def test_gates_are_those_of_the_present_environment_file(new_commit):
    new_commit.repository.edit("environments/prod.yaml", {"gates": {"capacity_days": 1}})
    new_commit.repository.commit()
    with pytest.raises(DeployFailedError, match=r"gates\.capacity_days is 1;"):
        new_commit.promote("model-001")


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


def test_refuses_a_model_whose_override_changed(new_commit):
    override = {"models": {"model-001": {"endpoint": {"scaling": {"max": 9}}}}}
    new_commit.repository.edit("environments/prod.yaml", override)
    new_commit.repository.commit()
    with pytest.raises(RoundhouseError, match="Endpoint model-001 would be neither"):
        new_commit.promote("model-001")


def test_refuses_a_dataset_that_another_model_reads_too(new_commit):
    data = new_commit.root / "models/data"
    (file,) = data.glob("*calibration*")
    file.write_text(file.read_text() + "one more sentence\n")
    new_commit.build()
    with pytest.raises(RoundhouseError, match="Endpoint model-002 would be neither"):
        new_commit.promote("model-001")


def test_refuses_a_model_that_joins_one_which_is_not_there_yet(rungs):
    rungs.promote()
    rungs.repository.commit("promotion")
    text = (rungs.root / "models/model-001.yaml").read_text()
    for name in ("model-003", "model-004"):
        (rungs.root / f"models/{name}.yaml").write_text(text.replace("model-001", name))
    rungs.repository.edit("models/model-003.yaml", {"endpoint": None})
    rungs.repository.edit("models/model-003.yaml", {"endpoint": {"joins": "model-004"}})
    rungs.build()
    with pytest.raises(RoundhouseError, match=r"model-003 cannot be moved alone: .* leave --model"):
        rungs.promote("model-003")
    rungs.promote("model-003", "model-004")
    assert len(keys(rungs.prod())) == 4


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
