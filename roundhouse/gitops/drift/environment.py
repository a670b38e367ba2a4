"""Compares an environment as it runs with what was deployed: what a person changed by hand."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from textwrap import shorten

from botocore.exceptions import ClientError

from onboarding.lock import ArchiveRecord
from onboarding.names import artifact_bucket, stack_name
from onboarding.text_generation.checkpoint_key import checkpoint_prefix
from onboarding.text_generation.checkpoint_lock import CheckpointEntry
from roundhouse.aws.clients import Client, Clients, calling, object_sha256
from roundhouse.deploy.prune import objects_under
from roundhouse.gitops.drift.endpoint import sagemaker_drift, scaling_drift
from roundhouse.gitops.drift.stack import (
    DeployedStack,
    Difference,
    deleted_stacks,
    differ_of,
    read_stack,
)
from roundhouse.gitops.markdown import cut_body, markdown
from roundhouse.gitops.template_changes import Template
from roundhouse.session import Session
from roundhouse.table import table
from roundhouse.text import quantity

SERVICES = ("application-autoscaling", "cloudformation", "s3", "sagemaker")
SHARED_PARTS = ("foundation", "builds", "observability")
"""Stacks beside the endpoints' that every deployed environment has."""
READERS = 8
"""Stacks that are read at the same time."""
SHOWN = 200
"""Characters of a value in an issue."""
COLUMNS = ("endpoint", "what", "deployed", "runs")
PROTECTED = ("foundation", "endpoint-")
"""How the names of stacks with termination protection go on."""


def environment_drift(
    session: Session, templates: Mapping[str, Template]
) -> tuple[Difference, ...]:
    """Return every difference of the environment's stacks, and what no file names any more.

    Roles, alarms, buckets and whatever else CloudFormation's own drift detection reads are left to
    it: `aws cloudformation detect-stack-drift`.

    `templates`: those that are deployed, by stack name.
    """
    environment, clients = session.environment, session.clients
    # Clients are created by one thread alone.
    services = {service: clients(service) for service in SERVICES}
    own, prefix = stack_name(environment, ""), stack_name(environment, "endpoint-")
    wanted = {deployment.name: deployment for deployment in session.deployments()}
    generators = {generator.name: generator for generator in session.generators()}
    files = wanted.keys() | generators.keys()
    found = [
        Difference(endpoint=name.removeprefix(prefix), what="stack", deployed=name,
                   live="no file names it")
        for name in sorted(templates)
        if name.startswith(prefix) and name.removeprefix(prefix) not in files
    ]  # fmt: skip
    expected = {stack_name(environment, part) for part in SHARED_PARTS}
    expected |= {f"{prefix}{name}" for name in files}
    if templates:
        gone = (deleted_stacks(services["cloudformation"]) & expected) - templates.keys()
        found += [
            Difference(endpoint=_part(name, own), what="stack", deployed=name, live=None)
            for name in sorted(gone)
        ]

    def read(name: str) -> list[Difference]:
        stack = read_stack(
            services["cloudformation"], environment, name, _part(name, own), templates[name]
        )
        is_protected = name.removeprefix(own).startswith(PROTECTED)
        return list(stack_drift(services.__getitem__, stack, is_protected=is_protected))

    with ThreadPoolExecutor(READERS) as readers:
        for differences in readers.map(read, sorted(templates)):
            found += differences
    bucket = artifact_bucket(environment)
    for name, deployment in wanted.items():
        for target in deployment.targets:
            entry = target.lock_entry
            if entry is not None and f"{prefix}{name}" in templates:
                found += _archive(services["s3"], bucket, name, entry.archive)
    for name, generator in generators.items():
        if generator.entry is not None and f"{prefix}{name}" in templates:
            found += _checkpoint(services["s3"], bucket, name, generator.entry)
    return tuple(found)


def stack_drift(
    clients: Clients, stack: DeployedStack, *, is_protected: bool
) -> Iterator[Difference]:
    """Yield what differs of one stack's endpoint and scaling, and its protection."""
    differ = differ_of(stack.part)
    yield from sagemaker_drift(clients("sagemaker"), stack, differ)
    yield from scaling_drift(clients("application-autoscaling"), stack.template, differ)
    if is_protected:
        yield from differ("termination protection", True, stack.is_protected)


def _checkpoint(
    s3: Client, bucket: str, endpoint: str, entry: CheckpointEntry
) -> Iterator[Difference]:
    """Yield files of a checkpoint that are gone, have another size, or were added."""
    prefix, differ = checkpoint_prefix(entry.checkpoint_key), differ_of(endpoint)
    held = {item.name: item.size_bytes for item in objects_under(s3, bucket, prefix)}
    wanted = {f"{prefix}{file.path}": file.size_bytes for file in entry.files}
    for path in sorted(held.keys() | wanted.keys()):
        yield from differ(f"bytes of {path}", wanted.get(path), held.get(path))


def _part(name: str, own: str) -> str:
    return name.removeprefix(own).removeprefix("endpoint-")


def _archive(
    s3: Client, bucket: str, endpoint: str, archive: ArchiveRecord
) -> Iterator[Difference]:
    """Yield an archive that is gone, or has another size or digest; S3 knows most digests."""
    key, differ = archive.path, differ_of(endpoint)
    with calling(f"s3://{bucket}/{key}"):
        try:
            live = s3.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
        except ClientError as error:
            if error.response["Error"]["Code"] not in ("404", "NoSuchKey"):
                raise
            yield from differ(f"bytes of {key}", archive.size_bytes, None)
            return
    yield from differ(f"bytes of {key}", archive.size_bytes, live["ContentLength"])
    checksum = live.get("ChecksumSHA256", "")
    # A digest of parts names their number, and is none of the whole.
    if checksum and "-" not in checksum:
        digest = base64.b64decode(checksum).hex()
    elif live["ContentLength"] == archive.size_bytes:
        # Builds upload with a digest: these bytes are somebody else's, or a copy.
        digest = object_sha256(s3, bucket, key) or ""
    else:
        return
    yield from differ(f"sha256 of {key}", archive.sha256, digest)


def drift_markdown(environment: str, found: Sequence[Difference]) -> str:
    """Return every difference as the text of one issue."""
    if not found:
        return f"{markdown(environment)} is as deployed."
    rows = (
        (item.endpoint, item.what, *(shorten(str(side), SHOWN, placeholder=" …")
                                     for side in (item.deployed, item.live)))
        for item in found
    )  # fmt: skip
    shown = table(COLUMNS, rows).markdown(markdown)
    return cut_body(
        f"{quantity(len(found), 'thing')} of {markdown(environment)} changed by hand, or no file "
        f"names any more.\n\n{shown}\n\nPut them back by hand or change "
        "the files: a deploy does not undo what its templates do not see. This issue is updated by "
        "every run of `roundhouse drift`, and closed once nothing differs."
    )
