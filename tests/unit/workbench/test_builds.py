"""Which engines are built, in which order, and how a build's end is read."""

from __future__ import annotations

import dataclasses
import io
import zipfile

import pytest
import yaml
from botocore.exceptions import ClientError
from rich.console import Console

from onboarding.checkpoint import checkpoint_sha256
from onboarding.lock import lock_path, read_lock
from onboarding.tree import read_tree
from tests.unit.workbench.engines import copied_tree, entry_for, local_deployments
from workbench import builds
from workbench.errors import BuildFailed, DeskError, RoundhouseError
from workbench.places import Places
from workbench.processes import Outcome
from workbench.report import Report
from workbench.road import Road


class Cloud:
    """S3 and CodeBuild in memory; a build publishes an entry, or fails with the words a test gives."""

    def __init__(self, road_deployments=()) -> None:
        self.objects, self.bucket_there, self.orders, self.fails, self.stopped = {}, True, [], None, []
        self.pairs = [(d, t) for d in road_deployments for t in d.targets]
        self.interrupt = False

    def __call__(self, service):
        return self

    def _get(self, key):
        if key not in self.objects:
            raise ClientError({"Error": {"Code": "404", "Message": "Not Found"}}, "HeadObject")
        return self.objects[key]

    def head_bucket(self, Bucket):
        if not self.bucket_there:
            raise ClientError({"Error": {"Code": "404", "Message": "Not Found"}}, "HeadBucket")
        return {}

    def head_object(self, Bucket, Key):
        self._get(Key)
        return {}

    def get_object(self, Bucket, Key):
        return {"Body": io.BytesIO(self._get(Key))}

    def put_object(self, Bucket, Key, Body):
        self.objects[Key] = Body

    def start_build(self, **order):
        self.orders.append(order)
        return {"build": {"id": str(len(self.orders) - 1)}}

    def stop_build(self, id):
        self.stopped.append(id)

    def batch_get_builds(self, ids):
        if self.interrupt:
            raise KeyboardInterrupt
        order = self.orders[int(ids[0])]
        model = {each["name"]: each["value"] for each in order["environmentVariablesOverride"]}["ROUNDHOUSE_MODEL"]
        if self.fails is not None:
            phases = [{"contexts": [{"message": self.fails}]}]
            return {"builds": [{"buildStatus": "FAILED", "phases": phases, "logs": {"deepLink": "https://logs.example/1"}}]}
        deployment, target = next((d, t) for d, t in self.pairs if t.model.name == model)
        entry = entry_for(deployment, target)
        self.objects[f"engines/{target.engine_key}/lock-entry.json"] = entry.model_dump_json().encode()
        self.objects[entry.archive.path] = b"archive"
        return {"builds": [{"buildStatus": "SUCCEEDED"}]}


@pytest.fixture
def road(tmp_path):
    tree = copied_tree(tmp_path)
    cloud = Cloud(local_deployments(tree))
    return Road(
        places=Places(code=tree, tree=tree, build=tree / "build"),
        environment=read_tree(tree).environments["local"],
        variables={},
        clients=cloud,
        run=lambda command, on_line=None: Outcome(code=0, output="abc123\n"),
        report=Report(console=Console(file=io.StringIO())),
    )


def _models(orders):
    return [order.target.model.name for order in orders]


def test_every_engine_without_a_lock_entry_is_wanted(road):
    assert _models(builds.wanted(road)) == ["sentence-embedder", "sentence-embedder-fp32", "sentence-embedder-int8"]


def test_building_writes_the_locks_and_leaves_nothing_to_build(road):
    entries = builds.build_all(road, builds.wanted(road))
    assert len(entries) == 3
    folder = road.places.tree / road.environment.locks
    assert list(read_lock(folder, "sentence-embedder").engines)
    assert builds.wanted(road) == ()
    assert builds.build_all(road, ()) == ()


def test_a_build_is_ordered_from_the_published_sources(road):
    builds.build_all(road, builds.wanted(road, ("sentence-embedder",)))
    (order,) = road.clients.orders
    assert order["projectName"] == "roundhouse-local-build-cpu"
    assert order["sourceTypeOverride"] == "S3"
    bucket, _, key = order["sourceLocationOverride"].partition("/")
    assert bucket == "roundhouse-local-000000000000-us-east-1" and key in road.clients.objects
    variables = {each["name"]: each["value"] for each in order["environmentVariablesOverride"]}
    assert variables == {"ROUNDHOUSE_MODEL": "sentence-embedder", "ROUNDHOUSE_SOURCE_COMMIT": "abc123"}


def test_sources_bring_a_checkpoint_that_lies_beside_the_models(road):
    folder = road.places.tree / "checkpoints/mine"
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", ".cache"):
        (folder / name).write_text(name)
    path = road.places.tree / "models/sentence-embedder.yaml"
    spec = yaml.safe_load(path.read_text())
    spec["source"] = {"checkpoint": "checkpoints/mine", "sha256": checkpoint_sha256(folder)}
    path.write_text(yaml.safe_dump(spec))
    key = builds.upload_source(road).partition("/")[2]
    names = zipfile.ZipFile(io.BytesIO(road.clients.objects[key])).namelist()
    assert {"checkpoints/mine/config.json", "checkpoints/mine/model.safetensors"} <= set(names)
    assert "checkpoints/mine/.cache" not in names


def test_an_engine_gone_from_s3_is_wanted_again(road):
    builds.build_all(road, builds.wanted(road))
    gone = next(key for key in road.clients.objects if key.endswith("model.tar.gz"))
    del road.clients.objects[gone]
    (order,) = builds.wanted(road)
    assert order.why == "in the lock, but gone from S3"


def test_engines_that_share_a_network_wait_for_the_one_that_makes_it(road):
    first, second = builds.waves(builds.wanted(road))
    assert len(first) == 1
    assert len(first[0].target.network_keys) == 2
    assert len(second) == 2


def test_engines_that_share_nothing_run_together(road):
    orders = builds.wanted(road)
    apart = [
        dataclasses.replace(order, target=dataclasses.replace(order.target, network_keys={"float": str(place)}))
        for place, order in enumerate(orders)
    ]
    assert [len(wave) for wave in builds.waves(apart)] == [3]


def test_refuses_a_failed_build_with_its_reason_and_log_and_keeps_the_lock(road):
    builds.build_all(road, builds.wanted(road, ("sentence-embedder",)))
    path = lock_path(road.places.tree / road.environment.locks, "sentence-embedder")
    before = path.read_bytes()
    road.clients.fails = "The worst cosine is 0.91, the budget asks for 0.95"
    deployment, target = road.clients.pairs[0]
    order = builds.Wanted(deployment=deployment, target=target, why="again")
    said = r"sentence-embedder: The worst cosine .* are as they were\. Log: https://logs.example/1"
    with pytest.raises(BuildFailed, match=said) as error:
        builds.build_all(road, (order,))
    assert error.value.exit_code == 3
    assert path.read_bytes() == before


def test_refuses_an_unknown_model(road):
    with pytest.raises(RoundhouseError, match="--model nobody: no such model in environment local; allowed: sentence-embedder"):
        builds.wanted(road, ("nobody",))


def test_refuses_to_build_where_no_bucket_is(road):
    orders = builds.wanted(road)
    road.clients.bucket_there = False
    with pytest.raises(DeskError, match="`roundhouse deploy --env local` makes it"):
        builds.build_all(road, orders)


def test_an_interrupt_stops_the_build(road):
    road.clients.interrupt = True
    with pytest.raises(KeyboardInterrupt):
        builds.build_all(road, builds.wanted(road, ("sentence-embedder",)))
    assert road.clients.stopped == ["0"]
