"""Compares our platform data with the SageMaker SDK's image tables.

`make platform-data` runs it in an environment of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import resources
from typing import Any

import yaml

FRAMEWORK = "sagemaker-tritonserver"


def differences(
    sdk: Mapping[str, Any], registries: Mapping[str, str], base_images: Mapping[str, str]
) -> list[str]:
    """One sentence per difference.

    `sdk` is the SDK's table of the Triton image; `registries` maps region to account, `base_images`
    platform name to
    `repository:tag`.
    """
    versions = sdk["versions"]
    newest = max(versions)
    accounts = _accounts(registries, versions[newest])
    found = [
        f"{region}: we say account {ours}, the SDK {theirs}." for region, ours, theirs in accounts
    ]
    known = {f"{v['repository']}:{v['tag_prefix']}" for v in versions.values()}
    for platform, image in base_images.items():
        if image not in known:
            found.append(
                f"{platform}: the SDK knows no image {image}; it knows {', '.join(sorted(known))}."
            )
    if (
        f"{versions[newest]['repository']}:{versions[newest]['tag_prefix']}"
        not in base_images.values()
    ):
        found.append(
            f"the SDK's newest Triton image is {newest}; no serving platform of ours uses it."
        )
    return found


def _accounts(
    registries: Mapping[str, str], newest: Mapping[str, Any]
) -> list[tuple[str, str, str]]:
    theirs = newest["registries"]
    regions = sorted(set(registries) | set(theirs))
    pairs = (
        (region, registries.get(region, "none"), theirs.get(region, "none")) for region in regions
    )
    return [(region, ours, account) for region, ours, account in pairs if ours != account]


def main() -> int:
    """Exit code 1 when anything differs."""
    from sagemaker.core import image_uris  # type: ignore[import-not-found, unused-ignore]

    found = differences(
        image_uris.config_for_framework(FRAMEWORK), _rows("triton_registries.yaml"), _base_images()
    )
    print("\n".join(found) if found else "platform data and the SageMaker SDK's image tables agree")
    return 1 if found else 0


def _rows(name: str) -> Any:
    return yaml.safe_load(
        resources.files("onboarding.data").joinpath(name).read_text(encoding="utf-8")
    )["rows"]


def _base_images() -> dict[str, str]:
    return {
        row["name"]: row["base_image"]
        for row in _rows("serving_platforms.yaml")
        if row["base_image"] is not None
    }


if __name__ == "__main__":
    sys.exit(main())
