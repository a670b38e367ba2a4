"""The id of a plan."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence


def plan_id(
    digests: Mapping[str, tuple[str, str]], missing: Sequence[str], prices: str | None
) -> str:
    """Return the id of a plan: twelve hex digits over the content that a deployment depends on.

    `digests` holds the template before and after of every stack that changes.
    """
    content = {"stacks": {key: list(pair) for key, pair in digests.items()},
               "missing": sorted(missing), "prices": prices}  # fmt: skip
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
