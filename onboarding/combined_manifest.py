"""The manifest of an archive with one network's engines for several compute capabilities.

Its digests name the archive's files, the published manifest of each engine among them, so the chain
holds from the digest that a deployment pins to every plan. A reader of one-engine manifests refuses
it.
"""

from __future__ import annotations

from typing import Literal

from onboarding.manifest import ServedModel
from onboarding.values import Value


class CombinedEngine(Value):
    """One engine of several: the manifest it was published with, and where its file lies here."""

    engine_key: str
    manifest: str
    engine_file: str


class CombinedManifest(ServedModel):
    """What the engines share, and each engine by compute capability.

    `compute_capability` lists all of them, for people; no server has one of this name.
    """

    format_version: Literal[2] = 2
    engines: dict[str, CombinedEngine]
    engine_file: None = None
