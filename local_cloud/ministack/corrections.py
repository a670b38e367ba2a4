"""What MiniStack's ECR and S3 do otherwise than AWS.

DescribeImages refuses the first image of its imageIds that is not there; MiniStack leaves it out.
CopyObject finds its source in another account's bucket, and reads If-None-Match.
Source: Amazon ECR API reference, DescribeImages (ImageNotFoundException); Amazon S3 API reference,
CopyObject (`If-None-Match`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ministack.core.responses import error_response_json
from ministack.services import ecr, s3


def install() -> None:
    """Correct both."""
    _correct_images()
    _correct_copies()


def _correct_images() -> None:
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


def _correct_copies() -> None:
    """Make MiniStack find the source of a copy in its owner's account, and keep objects."""
    copy_object = s3._copy_object

    def copy_once(bucket: str, key: str, headers: Mapping[str, str]) -> Any:
        present = (s3._buckets.get(bucket) or {"objects": {}})["objects"].get(key)
        refused = s3._check_put_preconditions(headers, present)
        return copy_object(bucket, key, headers) if refused is None else refused

    s3._ensure_bucket = owned_bucket
    s3._copy_object = copy_once


def owned_bucket(name: str) -> Any:
    """Return a bucket of this account or, once a request for it is allowed, of its owner."""
    return s3._buckets.get(name) or s3._buckets.get_scoped(
        s3._bucket_owner_account(name), None, name
    )
