"""`roundhouse bench --record`, from an endpoint as SageMaker describes it to the lock."""

from __future__ import annotations

import dataclasses

import pytest

from onboarding.lock import LockEntry
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.errors import RoundhouseError
from roundhouse.load_test.bench import LoadReport
from roundhouse.load_test.options import LoadOptions
from roundhouse.load_test.recording import hold_fault, record, search_fault
from stacks.capacity.variant import instance_capacity
from tests.unit.roundhouse.engines import copied_tree
from tests.unit.roundhouse.load_test.phases import load_of, measurement, searched, second
from tests.unit.roundhouse.load_test.served import S3, served_endpoint, served_tree

pytestmark = pytest.mark.unit


def step(rate, **changes):
    return measurement(second(**changes), rate=rate, name=f"step: {rate:g}")


STEPS = (*(step(1000.0),) * 2, *(step(1030.0, milliseconds=40.0),) * 2)
FOUND = searched(*STEPS)


class Benching:
    """Load tests that come out as told; remembers what was asked."""

    def __init__(self, root, *results):
        self.root, self.results, self.calls = root, list(results), []

    def __call__(self, paths, report, options):
        self.calls.append(options)
        if options.loop is not None:
            options.require_consistent()
        result = self.results.pop(0) if self.results else hold(options.rate)
        return LoadReport(
            result=result,
            page=self.root / "build/load/r.html",
            data=self.root / "build/load/r.json",
        )


def of_hold(phase):
    return load_of(phase, slo_ms=20.0)


def hold(rate, **changes):
    return of_hold(step(rate, **changes))


def load_options(**changes):
    return LoadOptions(**{"endpoint": "sentence-embedder", "env": "dev", "record": True, **changes})


def record_with(place, *results, utilization=lambda *arguments: None, **changes):
    run = Benching(place.root, FOUND, *results)
    return record(place.session, load_options(**changes), run=run, utilization=utilization), run


def test_rate_that_was_held_is_written_into_the_lock_beside_what_is_there(tmp_path):
    place = served_endpoint(tmp_path)
    before = place.lock
    done, run = record_with(place, utilization=lambda *arguments: 81.5)
    assert [call.rate for call in run.calls] == [None, 1000.0]
    assert run.calls[1].seconds == 180 and run.calls[1].slo == 20.0 and not run.calls[1].record
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
    assert done.summary == (
        "One ml.g5.xlarge answers 1000 requests a second with p99 within 20 ms, its GPUs 81.5 "
        "% busy."
    )


def test_recorded_capacity_is_what_the_next_synth_scales_on(tmp_path):
    place = served_endpoint(tmp_path)
    record_with(place)
    deployment = next(
        item for item in deployments(read_tree(tmp_path), "dev") if item.name == "sentence-embedder"
    )
    capacity = instance_capacity(deployment)
    assert capacity is not None and capacity.requests_per_second == 1000
    assert (
        "served (roundhouse bench, held for 1 s, dev-sentence-embedder on ml.g5.xlarge"
        in capacity.derivation
    )


def test_rate_of_several_instances_is_divided_among_them(tmp_path):
    count = {"ProductionVariants": [{"CurrentInstanceCount": 3, "DesiredInstanceCount": 3}]}
    done, _ = record_with(served_endpoint(tmp_path, changes={"endpoint": count}))
    assert done.capacity.requests_per_second == 333.333


def test_rate_that_is_not_held_is_tried_lower(tmp_path):
    place = served_endpoint(tmp_path)
    done, run = record_with(place, hold(1000.0, milliseconds=40.0))
    assert [call.rate for call in run.calls] == [None, 1000.0, pytest.approx(1000 / 1.04)]
    assert done.capacity.requests_per_second == 961.538


def test_model_of_a_shared_endpoint_is_recorded_for_its_own_engine(tmp_path):
    place = served_endpoint(tmp_path, endpoint="text-shared", model="sentence-embedder-int8")
    record_with(place, endpoint="text-shared", model="sentence-embedder-int8")
    assert place.capacity["ml.g5.xlarge"].endpoint == "dev-text-shared"


def test_local_measurement_stays_in_scratch_locks(tmp_path):
    place = served_endpoint(tmp_path, environment="local")
    done, _ = record_with(place, env="local")
    assert done.lock == tmp_path / "build/local/locks/sentence-embedder.lock.yaml"
    assert place.capacity["ml.c7i.large"].gpu_utilization_percent is None


def test_refuses_a_local_measurement_for_reviewed_locks(tmp_path):
    file = copied_tree(tmp_path) / "environments" / "local.yaml"
    file.write_text(file.read_text().replace("locks: build/local/locks", "locks: locks/local"))
    place = served_tree(tmp_path, "local")
    with pytest.raises(
        RoundhouseError,
        match="locks/local/ holds reviewed locks, and the local cloud's speed is this machine's",
    ):
        record_with(place, env="local")
    assert place.capacity is None


def config(**changes):
    variant = {"VariantName": "AllTraffic", "ModelName": "m", "InstanceType": "ml.g5.xlarge"}
    return {"config": {"ProductionVariants": [{**variant, **changes}]}}


OTHER = {"ModelDataUrl": "s3://b/engines/0123/model.tar.gz", "Environment": {}}


@pytest.mark.parametrize(
    ("changes", "message"),
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
            "it runs on ml.g5.2xlarge, and the files have ml.g5.xlarge",
        ),
        ({"config": {"AsyncInferenceConfig": {}}}, "it is asynchronous"),
        (
            {
                "endpoint": {
                    "ProductionVariants": [{"CurrentInstanceCount": 1, "DesiredInstanceCount": 2}]
                }
            },
            "it has 1 instances and 2 are desired",
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
def test_refuses_an_endpoint_that_is_not_the_locks_before_any_load(tmp_path, changes, message):
    place = served_endpoint(tmp_path, changes=changes)
    run = Benching(place.root, FOUND)
    with pytest.raises(RoundhouseError) as raised:
        record(place.session, load_options(), run=run)
    assert message in str(raised.value) and str(raised.value).startswith(
        "--record: dev-sentence-embedder: "
    )
    assert run.calls == [] and place.capacity is None


def test_refuses_another_archive_of_the_same_engine(tmp_path):
    place = served_endpoint(tmp_path)
    place.clients["sagemaker"].model["PrimaryContainer"]["Environment"] = {
        "ROUNDHOUSE_MANIFEST_SHA256": "e" * 64
    }
    with pytest.raises(
        RoundhouseError, match=r"serves an archive of engine .* that is not the lock's"
    ):
        record_with(place)


def test_refuses_a_shared_endpoint_whose_archive_in_s3_is_another(tmp_path):
    place = served_endpoint(tmp_path, endpoint="text-shared", model="sentence-embedder-int8")
    entry = place.target.lock_entry
    other = entry.model_copy(
        update={"archive": entry.archive.model_copy(update={"sha256": "b" * 64})}
    )
    place.clients["s3"] = S3(LockEntry.model_dump_json(other).encode())
    with pytest.raises(RoundhouseError, match="in S3 is not the lock's"):
        record_with(place, endpoint="text-shared", model="sentence-embedder-int8")


def test_refuses_several_instances_of_a_shared_endpoint(tmp_path):
    count = {"ProductionVariants": [{"CurrentInstanceCount": 2, "DesiredInstanceCount": 2}]}
    place = served_endpoint(
        tmp_path,
        endpoint="text-shared",
        model="sentence-embedder-int8",
        changes={"endpoint": count},
    )
    with pytest.raises(RoundhouseError, match="2 instances share its models unevenly"):
        record_with(place, endpoint="text-shared", model="sentence-embedder-int8")


def test_refuses_an_engine_that_no_lock_has(tmp_path):
    place = served_endpoint(tmp_path, build=False)
    with pytest.raises(
        RoundhouseError, match="run: roundhouse build --env dev --model sentence-embedder"
    ):
        record_with(place)


def test_refuses_a_search_that_found_nothing_and_names_its_report(tmp_path):
    place = served_endpoint(tmp_path)
    run = Benching(place.root, dataclasses.replace(FOUND, broken_off=True))
    with pytest.raises(
        RoundhouseError,
        match=r"the load test was broken off; nothing was recorded, and the report is .*r\.html",
    ):
        record(place.session, load_options(), run=run)
    assert place.capacity is None


def test_refuses_a_rate_that_is_never_held(tmp_path):
    place = served_endpoint(tmp_path)
    with pytest.raises(RoundhouseError, match="were not held for 1 s"):
        record_with(place, *(hold(1000.0, milliseconds=40.0) for _ in range(3)))
    assert place.capacity is None


def test_refuses_an_endpoint_that_changed_meanwhile(tmp_path):
    changes = {"later": {"EndpointConfigName": "c-2"}}
    place = served_endpoint(tmp_path, changes=changes)
    with pytest.raises(RoundhouseError, match="the endpoint changed during the load test"):
        record_with(place)
    assert place.capacity is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"endpoint": None, "env": None, "url": "http://h:1"},
            "a server by its URL has no lock",
        ),
        ({"rate": 5.0}, "takes no load"),
    ],
)
def test_refuses_options_that_record_nothing(changes, message):
    with pytest.raises(RoundhouseError, match=message):
        load_options(**changes).require_consistent()


def test_search_that_found_both_ends_is_a_measurement():
    assert search_fault(searched(*STEPS)) is None


def test_refuses_a_load_that_searched_for_nothing():
    assert "searched for no saturation point" in search_fault(load_of(step(1000.0)))


def test_refuses_a_broken_off_search_whatever_it_found():
    assert (
        search_fault(dataclasses.replace(searched(*STEPS), broken_off=True))
        == "the load test was broken off"
    )


def test_refuses_a_search_in_which_nothing_held():
    assert search_fault(searched(*(step(1000.0, milliseconds=40.0),) * 2)) == "no rate held the SLO"


def test_refuses_a_search_that_met_no_end():
    assert "only that 1000 a second holds" in search_fault(searched(step(1000.0)))


def test_refuses_a_search_whose_end_is_the_tools_own():
    limited = [step(1030.0, milliseconds=40.0, cpu_share=1.0, service=0.001)] * 2
    reason = search_fault(searched(step(1000.0), *limited))
    assert "only that 1000 a second holds" in reason and "tool's limit" in reason


def test_refuses_a_search_whose_chief_step_the_tool_took_part_in():
    busy = (STEPS[0], step(1000.0, cpu_share=0.99), *STEPS[2:])
    assert "the load tool was part of what it measured" in search_fault(searched(*busy))


def test_hold_within_the_slo_is_a_measurement():
    assert hold_fault(hold(1000.0)) is None


@pytest.mark.parametrize(
    ("phase", "message"),
    [
        (
            step(1000.0, milliseconds=40.0),
            "1000 a second were not held for 1 s (p99 40.0 ms above 20 ms)",
        ),
        (step(1000.0, errors={"HTTP 500": 3}), "3 errors: HTTP 500"),
        (step(100.0, count=100), "p99 needs 1,000"),
        (step(1000.0, cpu_share=0.99), "the load tool was part of what it measured"),
    ],
    ids=["too slow", "errors", "too few samples", "tool's limit"],
)
def test_refuses_a_rate_that_was_not_held(phase, message):
    assert message in hold_fault(of_hold(phase))


def test_refuses_a_broken_off_hold():
    assert (
        hold_fault(dataclasses.replace(hold(1000.0), broken_off=True, phases=()))
        == "the load test was broken off"
    )
