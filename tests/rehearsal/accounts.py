"""The accounts of the rehearsal: two, in two regions, of one local cloud with permissions."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from unittest import mock

import boto3

from local_cloud import lifecycle
from local_cloud.settings import BENCHMARK_SECONDS
from onboarding.platform import serving_platforms
from roundhouse.settings import QUIET
from stacks.images import base_image, image_tags, read_image_files

ROOT = Path(__file__).resolve().parents[2]
PLATFORM = "triton-24.10-cpu"
EARLY = ("Foundation", "Images", "Builds", "Access")
"""What a person deploys first, before workflows have roles."""


class Accounts:
    """The local cloud, and what its accounts' administrator does once."""

    def __init__(self, folder):
        self.folder = folder
        with mock.patch.dict(os.environ, {"AUTH": "true"}):
            # What a tiny engine measures is not rehearsed; every shape still has its round.
            os.environ.setdefault(BENCHMARK_SECONDS, "0.1")
            self.address = lifecycle.start(ROOT, folder)

    def stop(self):
        lifecycle.stop(self.folder)

    def variables(self, account, region):
        """The variables of a process that works as an account's administrator."""
        return {
            **QUIET,
            **lifecycle.client_environment(self.address, os.environ, account, region),
        }

    def job_variables(self):
        """Where AWS is for a job that has no credentials yet."""
        url = self.address.endpoint_url
        return {
            "AWS_ENDPOINT_URL": url,
            "AWS_ENDPOINT_URL_S3": url,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            **QUIET,
        }

    def client(self, service, account, region):
        return boto3.client(
            service,
            endpoint_url=self.address.endpoint_url,
            aws_access_key_id=account,
            aws_secret_access_key="local",
            region_name=region,
        )

    def prepare(self, tree, environment, account, region):
        """Bootstrap an account, and deploy what workflows and builds need."""
        cdk, variables = ROOT / "node_modules" / ".bin" / "cdk", self.variables(account, region)
        output = self.folder / f"cdk-{environment}"
        stacks = tuple(f"{environment}/{name}" for name in EARLY)
        for folder, words in (
            (self.folder, ("bootstrap", f"aws://{account}/{region}")),
            (
                tree,
                ("deploy", *stacks, "--context", f"env={environment}", "--output", str(output),
                 "--require-approval", "never", "--concurrency", "4"),
            ),
        ):  # fmt: skip
            result = subprocess.run(
                (str(cdk), *words, "--no-notices", "--no-color"),
                cwd=folder,
                env=variables,
                capture_output=True,
                text=True,
                check=False,
            )
            assert result.returncode == 0, f"cdk {words[0]}: {result.stdout}{result.stderr}"
        self.push_images(tree, environment, account, region)

    def push_images(self, tree, environment, account, region):
        """Give every repository its image's tag; nothing in the local cloud runs the image."""
        tags = image_tags(read_image_files(tree), base_image(serving_platforms()[PLATFORM]))
        ecr = self.client("ecr", account, region)
        for repository in ecr.describe_repositories()["repositories"]:
            name = repository["repositoryName"]
            tag = tags.get(name.removeprefix(f"roundhouse-{environment}/"))
            if tag is not None:
                manifest = json.dumps({"schemaVersion": 2, "annotations": {"tag": tag}})
                ecr.put_image(repositoryName=name, imageTag=tag, imageManifest=manifest)
