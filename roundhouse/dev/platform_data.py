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
    newest = max(images, key=lambda version: [int(p) for p in version.split(".") if p.isdecimal()])
    accounts, known = sdk["versions"][newest]["registries"], ", ".join(sorted(images.values()))
    messages = [
        f"{region}: we say account {registries.get(region, 'none')}, the SDK "
        f"{accounts.get(region, 'none')}."
        for region in sorted({*registries, *accounts})
        if registries.get(region) != accounts.get(region)
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
