"""Two environments in two accounts and regions of one local cloud, and clients of each."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from rich.console import Console

from local_cloud.address import CloudAddress
from onboarding.environment_spec import EnvironmentSpec
from onboarding.names import artifact_bucket
from roundhouse.aws.clients import COPIES
from roundhouse.paths import Paths
from roundhouse.processes import Processes, Run
from roundhouse.report import Report
from tests.local_cloud.account import new_client
from tests.unit.roundhouse.gitops.promoted import Promoted, promote

SOURCE, DESTINATION = "111122223333", "444455556666"
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


class TwoAccounts:
    """Clients of the receiving account, which may read the bucket of the other one."""

    def __init__(
        self,
        address: CloudAddress,
        on_request: Callable[[], None] = lambda: None,
        receiver: str = DESTINATION,
    ) -> None:
        self.address, self.on_request, self.receiver = address, on_request, receiver

    def client(self, service: str, account: str, region: str) -> Any:
        """A client of an account's root, in a region."""
        client = new_client(self.address, service, account, region)
        client.meta.events.register("before-send", lambda **_: self.on_request())
        return client

    def clients_of(self, environment: EnvironmentSpec) -> Callable[[str], Any]:
        """What a promotion calls: the receiving account's credentials, in either region."""
        return lambda service: self.client(
            "s3" if service == COPIES else service, self.receiver, environment.region
        )

    def make_bucket(self, environment: EnvironmentSpec) -> Any:
        """Make an environment's bucket, which the receiving account may read; return its client."""
        s3 = self.client("s3", environment.account, environment.region)
        bucket = artifact_bucket(environment)
        region = {"LocationConstraint": environment.region}
        is_default = environment.region == "us-east-1"
        s3.create_bucket(
            Bucket=bucket, **({} if is_default else {"CreateBucketConfiguration": region})
        )
        arn, principal = f"arn:aws:s3:::{bucket}", {"AWS": f"arn:aws:iam::{self.receiver}:root"}
        statements = [
            {"Effect": "Allow", "Principal": principal, "Action": action, "Resource": resource}
            for action, resource in (("s3:GetObject", f"{arn}/*"), ("s3:ListBucket", arn))
        ]
        policy = {"Version": "2012-10-17", "Statement": statements}
        s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps(policy))
        return s3

    def promote(self, paths: Paths, run: Run | None = None, **options: Any) -> Promoted:
        """Promote from dev to prod with the receiving account's credentials."""
        return promote(
            paths,
            Report(console=Console(file=io.StringIO())),
            clients_of=self.clients_of,
            run=Processes() if run is None else run,
            now=NOW,
            **{"source": "dev", "destination": "prod", **options},
        )


def stored_objects(s3: Any, bucket: str) -> dict[str, bytes]:
    """Every object of a bucket, by key."""
    listed = s3.list_objects_v2(Bucket=bucket).get("Contents", ())
    return {
        item["Key"]: s3.get_object(Bucket=bucket, Key=item["Key"])["Body"].read() for item in listed
    }
