"""A repository of its own for a test, so that a local cloud of this one goes on.

Only the environments are this one's.
"""

import shutil

from tests.local_cloud.tiny_session import REPOSITORY

COPIED = (
    "app.py",
    "cdk.json",
    "container",
    "engine_build",
    "local_cloud",
    "onboarding",
    "requirements",
    "roundhouse",
    "roundhouse_cdk",
    "stacks",
    "template_rules",
)
LINKED = (".venv", ".venvs", "node_modules")


def copy_repository(place, *trees):
    """Copies what runs, and the trees that are named, such as `models`."""
    for name in (*COPIED, *trees):
        copy = shutil.copytree if (REPOSITORY / name).is_dir() else shutil.copyfile
        copy(REPOSITORY / name, place / name)
    for name in LINKED:
        (place / name).symlink_to(REPOSITORY / name)
    return place


def roundhouse(repository, *words):
    """The command line of the desk's own `roundhouse`."""
    return (str(repository / ".venv" / "bin" / "python"), "-m", "roundhouse", *words)
