"""A session of `dev` with an account in memory: every engine is there, and no image."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from pathlib import Path

from onboarding.lock import write_lock_entry
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.processes import Outcome
from tests.unit.roundhouse.build_cloud import session_of
from tests.unit.roundhouse.engines import REPOSITORY, copied_tree, entry_for
from tests.unit.roundhouse.memory_s3 import MemoryS3, refusal

ARCHIVE = b"archive"


def image_digest(name):
    """The digest that the registry has of an image `repository:tag`."""
    return f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"


def _quota_pages(quotas):
    """A page for each quota, as Service Quotas pages them."""
    for name, value in quotas.items():
        yield {"Quotas": [{"QuotaName": name, "QuotaCode": "L-1", "Value": float(value)}]}


class Account(MemoryS3):
    """An account's services in memory; `did` is the order of what matters.

    A build pushes the images of its source, unless `fails` has a reason or `forgets` is true.
    """

    def __init__(self):
        super().__init__()
        self.tags, self.images, self.stacks, self.statuses = {}, set(), {}, {}
        self.did, self.started, self.fails, self.forgets = [], [], None, False
        self.quotas, self.defaults = {}, {}
        self.absent = "ImageNotFoundException"

    def __call__(self, service):
        return self

    def list_stacks(self):
        statuses = dict.fromkeys(self.stacks, "UPDATE_COMPLETE") | self.statuses
        for name, status in statuses.items():
            stack = {
                "StackName": name,
                "StackStatus": status,
                "StackStatusReason": "because of it.",
            }
            yield {"StackSummaries": [stack]}

    def update_termination_protection(self, StackName, EnableTerminationProtection):
        assert not EnableTerminationProtection
        self.did.append(f"unprotected {StackName}")

    def get_template(self, StackName):
        return {"TemplateBody": self.stacks[StackName]}

    def list_service_quotas(self, ServiceCode):
        yield from _quota_pages(self.quotas)

    def list_aws_default_service_quotas(self, ServiceCode):
        yield from _quota_pages(self.defaults)

    def get_object_tagging(self, Bucket, Key):
        return {"TagSet": self.tags.get(Key, [])}

    def delete_object_tagging(self, Bucket, Key):
        self.did.append(f"untagged {Key.rsplit('/', 1)[-1]}")
        del self.tags[Key]

    def describe_images(self, repositoryName, imageIds):
        if (repositoryName, imageIds[0]["imageTag"]) not in self.images:
            raise refusal(self.absent)
        name = f"{repositoryName}:{imageIds[0]['imageTag']}"
        return {"imageDetails": [{"imageDigest": image_digest(name)}]}

    def source(self):
        """The zip of the build."""
        (key,) = (key for key in self.objects if key.startswith("sources/"))
        return zipfile.ZipFile(io.BytesIO(self.objects[key]))

    def orders(self):
        return json.loads(self.source().read("images.json"))

    def start_build(self, **request):
        self.started.append(request)
        self.did.append(f"build {request['projectName']}")
        return {"build": {"id": "1"}}

    def batch_get_builds(self, ids):
        if self.fails is not None:
            phases, logs = [{"contexts": [{"message": self.fails}]}], "https://logs.example/1"
            build = {"buildStatus": "FAILED", "phases": phases, "logs": {"deepLink": logs}}
            return {"builds": [build]}
        if not self.forgets:
            self.images |= {(item["repository"], item["tag"]) for item in self.orders()["images"]}
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
            digest = {"sha256": hashlib.sha256(ARCHIVE).hexdigest()}
            entry = entry.model_copy(update={"archive": entry.archive.model_copy(update=digest)})
            write_lock_entry(tree / environment.locks, target.model.name, entry)
            account.objects[entry.archive.path] = ARCHIVE
    return session_of(tree, account, "dev", run or account.run, REPOSITORY, width=140)
