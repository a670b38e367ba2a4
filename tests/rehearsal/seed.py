"""The repository of the rehearsal: this one's code, a tiny model, and two environments."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.local_cloud.tiny_session import TinySession, new_tiny_session
from tests.unit.roundhouse.gitops.repository import git

ROOT = Path(__file__).resolve().parents[2]
CODE = (
    ".github", ".gitignore", "app.py", "cdk.json", "container", "engine_build", "local_cloud",
    "onboarding", "package-lock.json", "package.json", "requirements", "requirements.txt",
    "roundhouse", "roundhouse_cdk", "schemas", "stacks", "template_rules",
)  # fmt: skip
DEV, PROD = ("dev", "111122223333", "us-east-1"), ("prod", "444455556666", "eu-west-1")
"""Name, account and region."""
ENVIRONMENT = """\
name: {name}
account: "{account}"
region: {region}
platform: triton-24.10-cpu
builds: {{at_once: 2, poll_seconds: 1}}
github: {{repository: acme/models, repository_id: {repository}, owner_id: {owner}}}
"""
RECEIVES = """\
locks: locks/prod
promotes_from: dev
gates: {quiet_minutes: 0}
"""


def write_seed(folder, *, repository, owner) -> TinySession:
    """The files of main before the rehearsal; `repository` and `owner` are the forge's numbers."""
    tiny = new_tiny_session(folder)
    for name in CODE:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, folder / name, ignore=ignored)
        else:
            shutil.copyfile(source, folder / name)
    (folder / "environments" / "local.yaml").unlink()
    for name, account, region in (DEV, PROD):
        text = ENVIRONMENT.format(
            name=name, account=account, region=region, repository=repository, owner=owner
        )
        path = folder / "environments" / f"{name}.yaml"
        path.write_text(text + (RECEIVES if name == "prod" else ""))
    return tiny


class Clone:
    """One person's clone of a repository of the forge."""

    def __init__(self, folder, forge, token):
        self.folder, self.forge, self.token = folder, forge, token

    def git(self, *words):
        return git(self.folder, *words)

    def url(self, repository):
        address = self.forge.url.replace("http://", f"http://x-access-token:{self.token}@")
        return f"{address}/{repository}.git"

    def commit(self, message):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)
        return self.git("rev-parse", "HEAD")
