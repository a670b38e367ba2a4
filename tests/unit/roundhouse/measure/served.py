"""An endpoint as SageMaker describes it, over a tree of its own with one built engine."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

from onboarding.lock import read_lock, write_lock_entry
from onboarding.names import artifact_bucket, engine_archive_path
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from tests.unit.roundhouse.build_cloud import session_of
from tests.unit.roundhouse.engines import copied_tree, entry_for


class Described:
    """A client of AWS that answers each operation with its document."""

    def __init__(self, **documents):
        self.documents = documents

    def __getattr__(self, operation):
        return lambda **request: self.documents[operation]


def object_of(data):
    """An object of S3, which may be read more than once."""
    return {"Body": SimpleNamespace(read=lambda: data)}


def instances(current, desired, **fields):
    """An endpoint of so many instances."""
    counts = {"CurrentInstanceCount": current, "DesiredInstanceCount": desired}
    endpoint = {"EndpointStatus": "InService", "EndpointConfigName": "c-1"}
    return {"describe_endpoint": endpoint | {"ProductionVariants": [counts]} | fields}


def described(deployment, target):
    """What SageMaker says of an endpoint that serves a target."""
    entry, bucket = target.lock_entry, artifact_bucket(deployment.environment)
    type_name = target.instance_type.name
    variant = {"VariantName": "AllTraffic", "ModelName": "m", "InstanceType": type_name}
    url = f"s3://{bucket}/{engine_archive_path(target.engine_key)}"
    digest = "d" * 64 if entry is None else entry.archive.manifest_sha256
    container = {"ModelDataUrl": url, "Environment": {"ROUNDHOUSE_MANIFEST_SHA256": digest}}
    return {
        **instances(1, 1),
        "describe_endpoint_config": {"ProductionVariants": [variant]},
        "describe_model": {"PrimaryContainer": container},
    }


@dataclasses.dataclass
class Served:
    """A tree of its own with one built engine, and the session of one environment over it."""

    root: object
    deployment: object
    target: object
    clients: dict

    @property
    def session(self):
        return session_of(self.root, self.clients.__getitem__, self.deployment.environment.name)

    @property
    def lock(self):
        return read_lock(self.root / self.deployment.environment.locks, self.target.model.name)

    @property
    def capacity(self):
        entry = self.lock.engines.get(self.target.engine_key)
        return None if entry is None else entry.capacity


def served_endpoint(
    root, environment="dev", endpoint="sentence-embedder", model=None, *, build=True, changes=None
):
    """Serve an endpoint of the tree at `root`, which is copied from the repository if empty."""
    if not (root / "models").exists():
        copied_tree(root)

    def find():
        every = deployments(read_tree(root), environment)
        deployment = next(item for item in every if item.name == endpoint)
        targets = deployment.targets
        return deployment, next(item for item in targets if model in (None, item.model.name))

    deployment, target = find()
    if build:
        locks = root / deployment.environment.locks
        write_lock_entry(locks, target.model.name, entry_for(deployment, target))
        deployment, target = find()
    record = b"{}" if target.lock_entry is None else target.lock_entry.model_dump_json().encode()
    sagemaker = Described(**described(deployment, target) | (changes or {}))
    s3 = Described(get_object=object_of(record))
    clients = {"sagemaker": sagemaker, "s3": s3, "cloudwatch": None}
    return Served(root=root, deployment=deployment, target=target, clients=clients)
