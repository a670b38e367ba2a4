"""Which variants Application Auto Scaling scales."""

from __future__ import annotations

from collections.abc import Iterable

TARGET_PARTS = 4


def scaled_variants(targets: Iterable[tuple[str, ...]], endpoint: str) -> frozenset[str]:
    """The variants of an endpoint among scalable targets, each named by namespace, resource and
    dimension.
    """
    resources = (
        resource.split("/") for namespace, resource, _ in targets if namespace == "sagemaker"
    )
    return frozenset(
        parts[3]
        for parts in resources
        if len(parts) == TARGET_PARTS and parts[:2] == ["endpoint", endpoint]
    )
