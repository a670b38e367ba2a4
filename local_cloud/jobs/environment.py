"""The environment of a process that builds: its image's, the way to package indexes, and the local
cloud as its AWS.
"""

from __future__ import annotations

from pathlib import Path

from local_cloud.images import LocalImage
from local_cloud.settings import Settings, package_index_environment


def job_environment(
    image: LocalImage, settings: Settings, *, account: str, region: str, home: Path
) -> dict[str, str]:
    """Variables of a build or a training job; nothing of the user's, and no source of ours: a job
    brings its own.
    """
    base = {
        name: value
        for name, value in image.base_environment(settings.root).items()
        if name != "PYTHONPATH"
    }
    return {
        **package_index_environment(),
        **base,
        "HOME": str(home),
        "XDG_CACHE_HOME": str(settings.state / "cache"),
        "AWS_ENDPOINT_URL": settings.endpoint_url,
        "AWS_ACCESS_KEY_ID": account,
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
