"""A session of `dev` with an account in memory: every engine is there, and no image."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from datetime import UTC, datetime
from pathlib import Path

from botocore.exceptions import ClientError
from rich.console import Console

from onboarding.lock import write_lock_entry
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.paths import Paths
from roundhouse.processes import Outcome
from roundhouse.report import Report
from roundhouse.session import Session
from tests.unit.roundhouse.engines import REPOSITORY, copied_tree, entry_for

ARCHIVE = b"archive"


class Body(io.BytesIO):
    def iter_chunks(self, size):
        yield self.getvalue()


class Stacks:
    """Stacks as CloudFormation lists them, by name and status."""

    def __init__(self, statuses):
        self.statuses = statuses

    def paginate(self):
        yield {
            "StackSummaries": [
                {"StackName": name, "StackStatus": status, "StackStatusReason": "because of it."}
                for name, status in self.statuses.items()
            ]
        }


class Account:
    """ECR, S3 and CodeBuild in memory; `did` is the order of what matters."""

    def __init__(self):
        self.objects, self.tags, self.images, self.did, self.fails, self.orders = (
            {},
            {},
            set(),
            [],
            None,
            None,
        )
        self.stacks, self.statuses = {}, {}

    def __call__(self, service):
        return self

    def get_paginator(self, name):
        statuses = dict.fromkeys(self.stacks, "UPDATE_COMPLETE") | self.statuses
        return Stacks(statuses) if name == "list_stacks" else self

    def update_termination_protection(self, StackName, EnableTerminationProtection):
        assert not EnableTerminationProtection
        self.did.append(f"unprotected {StackName}")

    def get_template(self, StackName):
        return {"TemplateBody": self.stacks[StackName]}

    def paginate(self, Bucket, Prefix):
        names = sorted(name for name in self.objects if name.startswith(Prefix))
        now = datetime(2026, 11, 21, tzinfo=UTC)
        yield {
            "Contents": [
                {"Key": name, "Size": len(self.objects[name]), "LastModified": now}
                for name in names
            ]
        }

    def get_object_tagging(self, Bucket, Key):
        return {"TagSet": self.tags.get(Key, [])}

    def delete_object_tagging(self, Bucket, Key):
        self.did.append(f"untagged {Key.rsplit('/', 1)[-1]}")
        del self.tags[Key]

    def describe_images(self, repositoryName, imageIds):
        if (repositoryName, imageIds[0]["imageTag"]) not in self.images:
            raise ClientError(
                {"Error": {"Code": "ImageNotFoundException", "Message": "none"}}, "DescribeImages"
            )
        return {}

    def head_bucket(self, Bucket):
        return {}

    def head_object(self, Bucket, Key):
        if Key not in self.objects:
            raise ClientError({"Error": {"Code": "404", "Message": "Not Found"}}, "HeadObject")
        return {}

    def get_object(self, Bucket, Key):
        self.head_object(Bucket, Key)
        return {"Body": Body(self.objects[Key])}

    def put_object(self, Bucket, Key, Body):
        self.orders = json.loads(zipfile.ZipFile(io.BytesIO(Body)).read("images.json"))

    def start_build(self, projectName, **order):
        self.did.append(f"build {projectName}")
        return {"build": {"id": "1"}}

    def batch_get_builds(self, ids):
        if self.fails is not None:
            phases = [{"contexts": [{"message": self.fails}]}]
            return {
                "builds": [
                    {
                        "buildStatus": "FAILED",
                        "phases": phases,
                        "logs": {"deepLink": "https://logs.example/1"},
                    }
                ]
            }
        self.images |= {(image["repository"], image["tag"]) for image in self.orders["images"]}
        return {"builds": [{"buildStatus": "SUCCEEDED"}]}

    def run(self, command, on_line=None):
        if command.argv[0] == "git":
            return Outcome(code=128, output="fatal: not a git repository\n")
        if "synth" in command.argv:
            folder = Path(command.argv[command.argv.index("--output") + 1])
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "manifest.json").write_text('{"version": "55.0.0", "artifacts": {}}')
            return Outcome(code=0, output="")
        chosen = [word for word in command.argv if word.startswith("*")]
        self.did.append(f"deploy {' '.join(chosen)}")
        return Outcome(code=0, output=" ✅  roundhouse-dev-foundation\n")


def whole_session(tmp_path, run=None):
    """Every engine of `dev` is in its lock and in S3; no image is in ECR."""
    tree = copied_tree(tmp_path)
    account = Account()
    environment = read_tree(tree).environments["dev"]
    for deployment in deployments(read_tree(tree), "dev"):
        for target in deployment.targets:
            entry = entry_for(deployment, target)
            digest = hashlib.sha256(ARCHIVE).hexdigest()
            entry = entry.model_copy(
                update={"archive": entry.archive.model_copy(update={"sha256": digest})}
            )
            write_lock_entry(tree / environment.locks, target.model.name, entry)
            account.objects[entry.archive.path] = ARCHIVE
    return Session(
        paths=Paths(code=REPOSITORY, tree=tree, build=tmp_path / "build"),
        environment=environment,
        variables={},
        clients=account,
        run=account.run if run is None else run,
        report=Report(console=Console(file=io.StringIO(), width=140)),
    )
