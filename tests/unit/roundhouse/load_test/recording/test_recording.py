"""`roundhouse bench --record`, from an endpoint as SageMaker describes it to the lock, with load
tests told by hand.
"""

from __future__ import annotations

import dataclasses

import pytest

from onboarding.lock import LockEntry
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.errors import RoundhouseError
from roundhouse.load_test.benching import Benched
from roundhouse.load_test.recording.recording import record
from roundhouse.load_test.wishes import Wishes, require_sound
from stacks.capacity.variant import instance_capacity
from tests.unit.roundhouse.engines import copied_tree
from tests.unit.roundhouse.load_test.recording.desk import S3, desk, desk_of
from tests.unit.roundhouse.load_test.seconds import measured, searched, second

pytestmark = pytest.mark.unit


def step(rate, **changes):
    return measured(second(0, **changes), rate=rate, name=f"step: {rate:g}")


FOUND = searched(step(1000.0), step(1030.0, milliseconds=40.0), step(1030.0, milliseconds=40.0))


class Benching:
    """Load tests that come out as told; remembers what was asked."""

    def __init__(self, root, *results):
        self.root, self.results, self.asked = root, list(results), []

    def __call__(self, at, report, wishes):
        self.asked.append(wishes)
        if wishes.loop is not None:
            require_sound(wishes)
        result = self.results.pop(0) if self.results else held(wishes.rate)
        return Benched(
            result=result,
            page=self.root / "build/load/r.html",
            data=self.root / "build/load/r.json",
        )


def held(rate, **changes):
    return dataclasses.replace(searched(step(rate, **changes)), saturation=None)


def wishes(**changes):
    return Wishes(
        **{"endpoint": "sentence-embedder", "environment": "dev", "record": True, **changes}
    )


def recorded(place, *results, utilization=lambda *told: None, **changes):
    run = Benching(place.root, FOUND, *results)
    return record(place.session, wishes(**changes), run=run, utilization=utilization), run


def test_rate_that_was_held_is_written_into_the_lock_beside_what_is_there(tmp_path):
    place = desk(tmp_path)
    before = place.lock
    done, run = recorded(place, utilization=lambda client, watch, begin, end: 81.5)
    assert [each.rate for each in run.asked] == [None, 1000.0]
    assert run.asked[1].seconds == 180 and run.asked[1].slo_ms == 20.0 and not run.asked[1].record
    (capacity,) = place.capacity.values()
    assert capacity == done.capacity
    assert (capacity.requests_per_second, capacity.slo_ms, capacity.percentile) == (
        1000.0,
        20.0,
        99.0,
    )
    assert (capacity.instance_type, capacity.server, capacity.gpu_utilization_percent) == (
        "ml.g5.xlarge",
        "triton",
        81.5,
    )
    assert (capacity.rows_per_request, capacity.endpoint, capacity.date) == (
        2,
        "dev-sentence-embedder",
        "2026-01-02",
    )
    assert (
        place.lock.engines[place.target.engine_key].manifest
        == before.engines[place.target.engine_key].manifest
    )
    assert (
        done.told
        == "One ml.g5.xlarge answers 1000 requests a second with p99 within 20 ms, its GPUs 81.5 % busy."
    )


def test_recorded_capacity_is_what_the_next_synth_scales_on(tmp_path):
    place = desk(tmp_path)
    recorded(place)
    deployment = next(
        each for each in deployments(read_tree(tmp_path), "dev") if each.name == "sentence-embedder"
    )
    capacity = instance_capacity(deployment)
    assert capacity is not None and capacity.requests_per_second == 1000
    assert (
        "served (roundhouse bench, held for 1 s, dev-sentence-embedder on ml.g5.xlarge"
        in capacity.derivation
    )


def test_rate_of_several_instances_is_divided_among_them(tmp_path):
    count = {"ProductionVariants": [{"CurrentInstanceCount": 3, "DesiredInstanceCount": 3}]}
    done, _ = recorded(desk(tmp_path, changes={"endpoint": count}))
    assert done.capacity.requests_per_second == 333.333


def test_rate_that_is_not_held_is_tried_lower(tmp_path):
    place = desk(tmp_path)
    done, run = recorded(place, held(1000.0, milliseconds=40.0))
    assert [each.rate for each in run.asked] == [None, 1000.0, pytest.approx(1000 / 1.04)]
    assert done.capacity.requests_per_second == 961.538


def test_model_of_a_shared_endpoint_is_recorded_for_its_own_engine(tmp_path):
    place = desk(tmp_path, endpoint="text-shared", model="sentence-embedder-int8")
    recorded(place, endpoint="text-shared", model="sentence-embedder-int8")
    assert place.capacity["ml.g5.xlarge"].endpoint == "dev-text-shared"


def test_local_measurement_stays_in_scratch_locks(tmp_path):
    place = desk(tmp_path, environment="local")
    done, _ = recorded(place, environment="local")
    assert done.lock == tmp_path / "build/local/locks/sentence-embedder.lock.yaml"
    assert place.capacity["ml.c7i.large"].gpu_utilization_percent is None


def test_refuses_a_local_measurement_for_reviewed_locks(tmp_path):
    file = copied_tree(tmp_path) / "environments" / "local.yaml"
    file.write_text(file.read_text().replace("locks: build/local/locks", "locks: models"))
    place = desk_of(tmp_path, "local")
    with pytest.raises(
        RoundhouseError,
        match="models/ holds reviewed locks, and the local cloud's speed is this machine's",
    ):
        recorded(place, environment="local")
    assert place.capacity is None


def config(**changes):
    variant = {"VariantName": "AllTraffic", "ModelName": "m", "InstanceType": "ml.g5.xlarge"}
    return {"config": {"ProductionVariants": [{**variant, **changes}]}}


OTHER = {"ModelDataUrl": "s3://b/engines/0123/model.tar.gz", "Environment": {}}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"endpoint": {"EndpointStatus": "Updating"}},
            "it is Updating; wait until it is InService",
        ),
        (
            {"model": {"PrimaryContainer": OTHER}},
            "it serves engines/0123/model.tar.gz, and the lock's engine is engines/",
        ),
        ({"config": {"ProductionVariants": [{}, {}]}}, "2 variants share its requests"),
        (
            config(InstancePools=[{"InstanceType": "ml.g5.xlarge"}]),
            "several instance types, and which one answered is not known",
        ),
        (
            config(InstanceType="ml.g5.2xlarge"),
            "it runs on ml.g5.2xlarge, and the files say ml.g5.xlarge",
        ),
        ({"config": {"AsyncInferenceConfig": {}}}, "by way of a queue"),
        (
            {
                "endpoint": {
                    "ProductionVariants": [{"CurrentInstanceCount": 1, "DesiredInstanceCount": 2}]
                }
            },
            "it has 1 instances and wants 2",
        ),
    ],
    ids=[
        "updating",
        "another engine",
        "two variants",
        "pools",
        "another type",
        "asynchronous",
        "scaling",
    ],
)
def test_refuses_an_endpoint_that_is_not_the_locks_before_any_load(tmp_path, changes, said):
    place = desk(tmp_path, changes=changes)
    run = Benching(place.root, FOUND)
    with pytest.raises(RoundhouseError) as raised:
        record(place.session, wishes(), run=run)
    assert said in str(raised.value) and str(raised.value).startswith(
        "--record: dev-sentence-embedder: "
    )
    assert run.asked == [] and place.capacity is None


def test_refuses_another_archive_of_the_same_engine(tmp_path):
    place = desk(tmp_path)
    place.clients["sagemaker"].model["PrimaryContainer"]["Environment"] = {
        "ROUNDHOUSE_MANIFEST_SHA256": "e" * 64
    }
    with pytest.raises(
        RoundhouseError, match=r"serves an archive of engine .* that is not the lock's"
    ):
        recorded(place)


def test_refuses_a_shared_endpoint_whose_archive_in_s3_is_another(tmp_path):
    place = desk(tmp_path, endpoint="text-shared", model="sentence-embedder-int8")
    entry = place.target.lock_entry
    other = entry.model_copy(
        update={"archive": entry.archive.model_copy(update={"sha256": "b" * 64})}
    )
    place.clients["s3"] = S3(LockEntry.model_dump_json(other).encode())
    with pytest.raises(RoundhouseError, match="in S3 is not the lock's"):
        recorded(place, endpoint="text-shared", model="sentence-embedder-int8")


def test_refuses_several_instances_of_a_shared_endpoint(tmp_path):
    count = {"ProductionVariants": [{"CurrentInstanceCount": 2, "DesiredInstanceCount": 2}]}
    place = desk(
        tmp_path,
        endpoint="text-shared",
        model="sentence-embedder-int8",
        changes={"endpoint": count},
    )
    with pytest.raises(RoundhouseError, match="2 instances share its models unevenly"):
        recorded(place, endpoint="text-shared", model="sentence-embedder-int8")


def test_refuses_an_engine_that_no_lock_has(tmp_path):
    place = desk(tmp_path, build=False)
    with pytest.raises(
        RoundhouseError, match="run: roundhouse build --env dev --model sentence-embedder"
    ):
        recorded(place)


def test_refuses_a_search_that_found_nothing_and_names_its_report(tmp_path):
    place = desk(tmp_path)
    run = Benching(place.root, dataclasses.replace(FOUND, broken_off=True))
    with pytest.raises(
        RoundhouseError,
        match=r"the load test was broken off; nothing was recorded, and the report is .*r\.html",
    ):
        record(place.session, wishes(), run=run)
    assert place.capacity is None


def test_refuses_a_rate_that_is_never_held(tmp_path):
    place = desk(tmp_path)
    with pytest.raises(RoundhouseError, match="were not held for 1 s"):
        recorded(place, *(held(1000.0, milliseconds=40.0) for _ in range(3)))
    assert place.capacity is None


def test_refuses_an_endpoint_that_changed_meanwhile(tmp_path):
    changes = {"later": {"EndpointConfigName": "c-2"}}
    place = desk(tmp_path, changes=changes)
    with pytest.raises(RoundhouseError, match="the endpoint changed during the load test"):
        recorded(place)
    assert place.capacity is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"endpoint": None, "environment": None, "url": "http://h:1"},
            "a server by its URL has no lock",
        ),
        ({"rate": 5.0}, "takes no load"),
    ],
)
def test_refuses_wishes_that_record_nothing(changes, said):
    with pytest.raises(RoundhouseError, match=said):
        require_sound(wishes(**changes))
