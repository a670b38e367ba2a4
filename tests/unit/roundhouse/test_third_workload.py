"""A third kind of workload is one module: what this one adds is all that a kind must say.

Its builds make indexes of texts, one for each model of an environment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from onboarding.deployment import Artifact, DeployedEndpoint
from onboarding.lock import BuiltEntry, LockError, ModelLock, read_lock, record_measurement
from onboarding.platform import BuildRoute
from onboarding.signature import SignedStatement
from onboarding.tree import Tree, held_entries, read_tree
from onboarding.values import Value
from onboarding.workload import WORKLOADS, Workload, endpoint_deployments
from roundhouse.aws.clients import Client
from roundhouse.deploy.builds import engines
from roundhouse.deploy.builds.requests import BuildRequest, EnginesNotBuiltError
from roundhouse.deploy.verification import verified_prefixes, verify
from roundhouse.errors import DeployFailedError
from roundhouse.gitops.copies import (
    Store,
    StoredFile,
    StoredFiles,
    copy_entries,
    stored_files,
)
from roundhouse.gitops.promote import gate_faults
from tests.fixtures.signer import Signer
from tests.unit.onboarding.text_generation.test_generation_resolve import _root
from tests.unit.roundhouse.build_cloud import Cloud, session_of
from tests.unit.roundhouse.gitops.rungs import BUCKETS, S3

KEY, DIGEST = "1" * 20, "2" * 64


class IndexEntry(BuiltEntry):
    noun: ClassVar[str] = "index"
    measured: ClassVar[str] = "recall"
    digest_noun: ClassVar[str] = "sha256"
    subject: ClassVar[str] = "manifest.json"
    index_key: str
    model: str
    sha256: str
    recall: float | None = None
    signature: SignedStatement | None = None

    key = property(lambda self: self.index_key)
    built_model = property(lambda self: self.model)
    digest = signed_sha256 = property(lambda self: self.sha256)

    @classmethod
    def lock_type(cls) -> type[ModelLock]:
        return IndexLock


class IndexLock(ModelLock):
    field: ClassVar[str] = "indexes"
    entry_type: ClassVar[type[BuiltEntry]] = IndexEntry
    indexes: dict[str, IndexEntry]


@dataclass(frozen=True, kw_only=True)
class IndexDeployment(DeployedEndpoint):
    index: Artifact

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        return (self.index,)


def index_deployments(tree: Tree, environment: str, only: Collection[str] = ()):
    spec = tree.environments[environment]
    entries, faults = held_entries(tree, spec, "faq", IndexLock)
    assert not faults
    entry, held_by = entries.get(KEY, (None, None))
    index = Artifact(key=KEY, model="faq", entry=entry, held_by=held_by)
    return (IndexDeployment(environment=spec, name="faq", index=index),)


@dataclass(frozen=True, kw_only=True)
class IndexRequest(BuildRequest):
    key: str = KEY
    model: str = "faq"
    is_locked: bool = False
    instance_type: str = "ml.c7i.xlarge"
    route: BuildRoute = "cpu"
    published_record: tuple[str, type[BuiltEntry]] = (f"indexes/{KEY}.json", IndexEntry)

    def title(self, *, of_several: bool) -> str:
        return f"Indexing {self.model}"

    def document(self) -> dict[str, Any]:
        return {"engineKey": self.key, "model": self.model, "route": self.route}


INDEXES = Workload(lock=IndexLock, resolve=index_deployments)


class IndexCloud(Cloud):
    entry: Value = IndexEntry(index_key=KEY, model="faq", sha256=DIGEST)

    def _record(self, engine):
        self.objects[f"indexes/{KEY}.json"] = self.entry.model_dump_json().encode()
        return {"engineKey": KEY, "model": "faq", "status": "built", "notReused": ""}

    def get_object_tagging(self, Bucket, Key):
        return {"TagSet": []}


@pytest.fixture
def session(tmp_path):
    return session_of(_root(tmp_path), IndexCloud(), "cloud")


def deployment(session) -> DeployedEndpoint:
    tree = read_tree(session.paths.tree)
    found = endpoint_deployments(tree, "cloud", workloads=(*WORKLOADS, INDEXES))
    (own,) = (item for item in found if item.models == ("faq",))
    assert len(found) == 1 + len(endpoint_deployments(tree, "cloud"))
    return own


def build(session):
    request = IndexRequest(deployment=deployment(session), why="not in the lock")
    return engines.build_all(session, (request,), sleep=lambda seconds: None, allow_dirty=True)


def test_it_is_built_locked_and_measured(session):
    before = deployment(session)
    assert not before.is_built
    assert before.source_command(before.index) == "`roundhouse build --env cloud --model faq`"
    assert build(session) == (session.clients.entry,)
    locks = session.paths.tree / session.environment.locks
    record_measurement(locks, "faq", KEY, IndexLock, lambda recall: 0.9)
    after = deployment(session)
    assert after.is_built and after.index.entry.recall == 0.9
    assert "Indexing faq" in session.report.console.file.getvalue()
    with pytest.raises(LockError, match="has no index 00"):
        record_measurement(locks, "faq", "00", IndexLock, lambda recall: 0.9)


@stored_files.register
def _(entry: IndexEntry, source: Store, destination: Store, command: str) -> StoredFiles:
    path = f"indexes/{entry.key}.json"
    return [StoredFile(key=path, size_bytes=5)], path, None


def test_it_is_copied_where_it_is_promoted():
    s3 = S3()
    dev, prod = s3.buckets.values()
    dev[f"indexes/{KEY}.json"] = b"index"
    stores = (Store(bucket=bucket, s3=s3, copies=s3) for bucket in BUCKETS.values())
    copied = copy_entries(*stores, [IndexCloud.entry], {KEY: "`roundhouse build`"})
    assert (copied.copied, prod) == (1, dev)


@verified_prefixes.register
def _(deployment: IndexDeployment, s3: Client, bucket: str) -> Iterator[str]:
    yield f"indexes/{deployment.index.key}"


def test_it_is_verified_and_promoted_where_a_trusted_signer_signed_it(session):
    build(session)
    own = deployment(session)
    assert verify(session, [own]) == 1
    assert list(gate_faults(own, own, None)) == []
    trusted = own.environment.model_copy(update={"trusted_signers": (Signer().public,)})
    trusting = replace(own, environment=trusted)
    says = f"none of 'trusted_signers' signed index {KEY} of 'faq': its lock entry holds no"
    with pytest.raises(DeployFailedError, match=f"^Refused before deploying: {says}"):
        verify(session, [trusting])
    (fault,) = gate_faults(trusting, own, None)
    assert fault.startswith(says) and fault.endswith("`roundhouse build --env cloud --model faq`")


def test_its_signature_is_verified():
    signer, other = Signer(), Signer()
    entry = IndexCloud.entry.model_copy(update={"signature": signer.sign_manifest(DIGEST)})
    assert entry.signature_fault([other.key, signer.key]) is None
    assert "key" in entry.signature_fault([other.key])
    changed = entry.model_copy(update={"sha256": "3" * 64})
    assert "it signs a manifest.json of sha256 22222" in changed.signature_fault([signer.key])
    assert "holds no signature" in IndexCloud.entry.signature_fault([signer.key])


def test_refuses_a_record_of_another_model(session):
    session.clients.entry = IndexCloud.entry.model_copy(update={"model": "other"})
    with pytest.raises(EnginesNotBuiltError, match=f"is that of {KEY} of other"):
        build(session)
    assert read_lock(session.paths.tree / "models", "faq", IndexLock).indexes == {}
