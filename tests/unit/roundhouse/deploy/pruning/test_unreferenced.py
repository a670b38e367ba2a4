"""What becomes of an engine that no lock names: decided from keys, ages and marks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from roundhouse.deploy.pruning.unreferenced import (
    Named,
    Stored,
    StoredObject,
    Verdict,
    decide,
    group_objects,
    reportable,
)

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
NOBODY = Named(by_locks=frozenset())


def engine(*, days, marks=(False,), key="k"):
    return Stored(
        kind="engine",
        key=key,
        objects=tuple(
            StoredObject(
                name=f"engines/{key}/{number}",
                size_bytes=10,
                modified=NOW - timedelta(days=days),
                is_marked=marked,
            )
            for number, marked in enumerate(marks)
        ),
    )


def verdict(each, named=NOBODY, older_than_days=30):
    return decide(each, named, now=NOW, older_than_days=older_than_days, kept_days=90)


@pytest.mark.parametrize(
    ("days", "marks", "expected"),
    [
        (30, (False, False), Verdict.marked),
        (29, (False, False), Verdict.young),
        (1, (True, True), Verdict.marked_before),
        (0, (True, False), Verdict.marked),
    ],
)
def test_what_nothing_names_is_marked_once_it_is_old(days, marks, expected):
    assert verdict(engine(days=days, marks=marks)).verdict is expected


@pytest.mark.parametrize(
    "named", [Named(by_locks=frozenset("k")), Named(by_locks=frozenset(), deployed=frozenset("k"))]
)
def test_what_is_named_or_deployed_is_never_marked_and_loses_its_mark(named):
    for days in (0, 1000):
        assert verdict(engine(days=days), named, older_than_days=0).verdict in (
            Verdict.named,
            Verdict.deployed,
        )
        assert (
            verdict(engine(days=days, marks=(False, True)), named, older_than_days=0).verdict
            is Verdict.taken_back
        )


def test_a_mark_tells_when_the_engine_is_gone_and_a_lock_does_not():
    assert verdict(engine(days=40)).gone_on == NOW + timedelta(days=91)
    assert verdict(engine(days=5, marks=(True,))).gone_on == NOW + timedelta(days=86)
    assert verdict(engine(days=40), Named(by_locks=frozenset("k"))).gone_on is None


def test_objects_are_grouped_by_their_first_folder():
    names = (
        "engines/b/model.tar.gz",
        "engines/a/model.tar.gz",
        "engines/a/card/x.html",
        "engines/stray",
    )
    found = group_objects(
        "engine", [StoredObject(name=name, size_bytes=3, modified=NOW) for name in names]
    )
    assert [(each.key, each.size_bytes) for each in found] == [("a", 6), ("b", 3)]


def test_only_what_is_not_as_it_should_be_is_shown_the_largest_first():
    large = decide(
        engine(days=40, key="large", marks=(False,) * 3),
        NOBODY,
        now=NOW,
        older_than_days=1,
        kept_days=1,
    )
    small = decide(engine(days=40, key="small"), NOBODY, now=NOW, older_than_days=1, kept_days=1)
    well = decide(
        engine(days=40, key="well"),
        Named(by_locks=frozenset({"well"})),
        now=NOW,
        older_than_days=1,
        kept_days=1,
    )
    assert [each.stored.key for each in reportable([small, well, large])] == ["large", "small"]
