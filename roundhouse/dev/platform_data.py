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
    """Return one sentence per difference between the SDK's table of the Triton image and ours.

    `registries` maps region to account, `base_images` platform name to `repository:tag`.
    """
    images = {
        version: f"{row['repository']}:{row['tag_prefix']}"
        for version, row in sdk["versions"].items()
    }
    newest = newest_version(sdk)
    known = ", ".join(sorted(images.values()))
    messages = [
        f"{region}: we say account {ours or 'none'}, the SDK {theirs or 'none'}."
        for region, ours, theirs in registry_differences(sdk, registries)
    ]
    messages += [
        f"{platform}: the SDK knows no image {image}; it knows {known}."
        for platform, image in base_images.items()
        if image not in images.values()
    ]
    if images[newest] not in base_images.values():
        messages.append(
            f"the SDK's newest Triton image is {newest}; no serving platform of ours uses it."
        )
    return messages


def newest_version(sdk: Mapping[str, Any]) -> str:
    """Return the newest Triton of the SDK's table, such as 26.05."""
    versions: Mapping[str, Any] = sdk["versions"]
    return max(versions, key=version_number)


def version_number(version: str) -> tuple[int, ...]:
    """Return a version in the form that versions are compared in."""
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def registry_differences(
    sdk: Mapping[str, Any], registries: Mapping[str, str]
) -> list[tuple[str, str | None, str | None]]:
    """Return (region, our account, the SDK's) where they differ; None: no account is known."""
    accounts = sdk["versions"][newest_version(sdk)]["registries"]
    return [
        (region, registries.get(region), accounts.get(region))
        for region in sorted({*registries, *accounts})
        if registries.get(region) != accounts.get(region)
    ]


def main() -> int:
    """Return exit code 1 when anything differs."""
    from sagemaker.core import image_uris  # type: ignore[import-not-found, unused-ignore]

    platforms = _rows("serving_platforms.yaml")
    base_images = {row["name"]: row["base_image"] for row in platforms if row["base_image"]}
    table = image_uris.config_for_framework(FRAMEWORK)
    messages = differences(table, _rows("triton_registries.yaml"), base_images)
    agreed = "platform data and the SageMaker SDK's image tables agree"
    print("\n".join(messages) if messages else agreed)
    return 1 if messages else 0


def _rows(name: str) -> Any:
    text = resources.files("onboarding.data").joinpath(name).read_text(encoding="utf-8")
    return yaml.safe_load(text)["rows"]


if __name__ == "__main__":
    sys.exit(main())
