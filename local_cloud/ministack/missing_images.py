"""Images that a repository does not have, refused as ECR refuses them.

MiniStack leaves them out of DescribeImages' answer.
Source: Amazon ECR API reference, DescribeImages (ImageNotFoundException).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ministack.core.responses import error_response_json
from ministack.services import ecr


def install() -> None:
    """Make DescribeImages refuse the first image of its imageIds that is not there."""
    describe_images = ecr._describe_images

    def describe_present(data: Mapping[str, Any]) -> Any:
        name = data.get("repositoryName", "")
        missing = (
            image for image in data.get("imageIds") or () if ecr._find_image(name, image) is None
        )
        image = next(missing, None)
        if image is None or name not in ecr._repositories:
            return describe_images(data)
        return error_response_json("ImageNotFoundException", _message(name, image), 400)

    ecr._describe_images = describe_present


def _message(name: str, image: Mapping[str, str]) -> str:
    parts = [f"{key}:'{image.get(key, 'null')}'" for key in ("imageDigest", "imageTag")]
    return (
        f"The image with imageId {{{', '.join(parts)}}} does not exist within the repository with "
        f"name '{name}' in the registry with id '{ecr._registry_id()}'"
    )
