"""What no lock names: which engines are deployed, and what becomes of the others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from onboarding.environment_spec import EnvironmentSpec
from roundhouse.deploy.prune import (
    Stored,
    StoredObject,
    Verdict,
    decide,
    deployed_keys,
)

KEY, CHECKPOINT = "0123456789abcdef0123", "00112233445566778899"
ENVIRONMENT = EnvironmentSpec(
    name="dev", account="111122223333", region="us-east-1", platform="triton-26.05"
)


class Formation:
    """Two stacks; the change set of one was never executed, so it has no template."""

    def get_paginator(self, name):
        stacks = [
            {"StackName": "roundhouse-dev-endpoint-a", "StackStatus": "UPDATE_COMPLETE"},
            {"StackName": "roundhouse-dev-endpoint-b", "StackStatus": "REVIEW_IN_PROGRESS"},
        ]
        return SimpleNamespace(paginate=lambda: [{"StackSummaries": stacks}])

    def get_template(self, StackName):
        assert StackName == "roundhouse-dev-endpoint-a"
        model = {"ModelDataUrl": f"s3://bucket/engines/{KEY}/model.tar.gz"}
        source = {"S3Uri": f"s3://bucket/checkpoints/{CHECKPOINT}/"}
        return {"TemplateBody": {"Model": model, "Chat": source}}


def test_a_stack_that_was_only_requested_has_no_engine_deployed():
    session = SimpleNamespace(environment=ENVIRONMENT, clients=lambda service: Formation())
    assert deployed_keys(session) == {KEY, CHECKPOINT}


NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def engine(*, days, marks=(False,), key="k"):
    modified = NOW - timedelta(days=days)
    objects = (
        StoredObject(
            name=f"engines/{key}/{number}", size_bytes=10, modified=modified, is_marked=is_marked
        )
        for number, is_marked in enumerate(marks)
    )
    return Stored(kind="engine", key=key, objects=tuple(objects))


def decision(stored, named=(), deployed=(), older_than_days=30):
    return decide(stored, named, deployed, now=NOW, older_than_days=older_than_days, kept_days=90)


@pytest.mark.parametrize(
    ("days", "marks", "verdict"),
    [
        (30, (False, False), Verdict.marked),
        (29, (False, False), Verdict.young),
        (1, (True, True), Verdict.marked_before),
        (0, (True, False), Verdict.marked),
    ],
)
def test_an_engine_that_nothing_names_is_marked_once_it_is_old(days, marks, verdict):
    assert decision(engine(days=days, marks=marks)).verdict is verdict


@pytest.mark.parametrize("days", [0, 1000])
@pytest.mark.parametrize(
    ("keys", "verdict"), [({"named": "k"}, Verdict.named), ({"deployed": "k"}, Verdict.deployed)]
)
def test_an_engine_that_is_named_or_deployed_is_never_marked_and_loses_its_mark(
    keys, verdict, days
):
    assert decision(engine(days=days), **keys, older_than_days=0).verdict is verdict
    marked = engine(days=days, marks=(False, True))
    assert decision(marked, **keys, older_than_days=0).verdict is Verdict.taken_back


def test_a_mark_has_the_day_of_the_deletion_and_a_lock_has_none():
    assert decision(engine(days=40)).gone_on == NOW + timedelta(days=91)
    assert decision(engine(days=5, marks=(True,))).gone_on == NOW + timedelta(days=86)
    assert decision(engine(days=40), "k").gone_on is None
