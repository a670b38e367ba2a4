"""Sample requests of a recommendation job: a .tar.gz of bodies, the same for the same dataset."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from dataclasses import dataclass

from roundhouse.errors import RoundhouseError
from roundhouse.load_test.inputs import Inputs

MOST_BODIES = 100
MOST_BYTES = 16 * 1024 * 1024
"""Of all bodies together; the mix of lengths is what counts, and a hundred requests show it."""
MOST_BODY_BYTES = 6_291_456
"""What InvokeEndpoint takes."""


@dataclass(frozen=True, kw_only=True)
class Payload:
    """The archive of a job's sample requests."""

    data: bytes
    content_type: str
    requests: int
    description: str

    @property
    def sha256(self) -> str:
        """Digest of the archive, its address in the bucket."""
        return hashlib.sha256(self.data).hexdigest()


def sample_payload(inputs: Inputs) -> Payload:
    """Return the archive of bodies spread evenly over a dataset; equal inputs give equal bytes.

    AWS takes one content type, which all bodies have. Raises RoundhouseError.
    """
    types = {body.content_type for body in inputs.bodies}
    if len(types) > 1:
        raise RoundhouseError(
            f"--input: its requests have {len(types)} content types ({', '.join(sorted(types))}), "
            "and a job takes one; binary bodies name their header's length: use JSON."
        )
    largest = max(len(body.data) for body in inputs.bodies)
    if largest > MOST_BODY_BYTES:
        raise RoundhouseError(
            f"--input: a request of {largest:,} bytes is above the {MOST_BODY_BYTES:,} that "
            "InvokeEndpoint takes; ask for fewer rows a request."
        )
    step = max(1, -(-len(inputs.bodies) // MOST_BODIES))
    chosen: list[bytes] = []
    size = 0
    for body in inputs.bodies[::step]:
        size += len(body.data)
        if chosen and size > MOST_BYTES:
            break
        chosen.append(body.data)
    return Payload(
        data=_archive(chosen),
        content_type=inputs.bodies[0].content_type,
        requests=len(chosen),
        description=inputs.description,
    )


def _archive(bodies: list[bytes]) -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for number, body in enumerate(bodies):
            member = tarfile.TarInfo(f"request-{number:04}")
            member.size, member.mode = len(body), 0o644
            archive.addfile(member, io.BytesIO(body))
    return gzip.compress(plain.getvalue(), mtime=0)
