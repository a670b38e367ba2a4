"""Rules of what an environment's builds may read: buckets, secrets and package indexes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from onboarding.fault import Fault
from onboarding.names import ONNX_PREFIX, artifact_bucket
from onboarding.platform import aws_partition
from onboarding.rules.rule import EnvironmentCase, rule, rules_of


@rule("source_buckets", "name", "account", "region")
def source_buckets_are_distinct(case: EnvironmentCase) -> Iterator[Fault]:
    """Each is another part of S3, and not the environment's own bucket."""
    own, seen = artifact_bucket(case.spec), set()
    for index, bucket in enumerate(case.spec.source_buckets):
        place = case.document.at("source_buckets", index)
        if bucket.bucket == own:
            yield place.fault(
                "'source_buckets' names the environment's own bucket",
                value=bucket.address,
                way_out=f"leave it out: builds read s3://{own}/{ONNX_PREFIX}/ already",
            )
        elif bucket.address in seen:
            yield place.fault(
                "'source_buckets' names one place twice",
                value=bucket.address,
                way_out="leave the second out",
            )
        seen.add(bucket.address)


@rule("source_buckets", "region")
def source_keys_are_of_the_region(case: EnvironmentCase) -> Iterator[Fault]:
    """S3 decrypts in the bucket's region, and roles may use a key through S3 there alone."""
    for index, bucket in enumerate(case.spec.source_buckets):
        key = bucket.kms_key_arn
        if key is not None and key.split(":")[3] != case.spec.region:
            yield case.document.at("source_buckets", index, "kms_key_arn").fault(
                "the key of a source bucket is of another region than the environment",
                value=key,
                allowed=f"a key of {case.spec.region}",
                way_out="copy the sources to a bucket of this region",
            )


@rule("source_secrets", "account", "region")
def secrets_are_whole_arns_of_the_region(case: EnvironmentCase) -> Iterator[Fault]:
    """Roles name a secret exactly, and builds ask Secrets Manager in their own region."""
    spec = case.spec
    form = f"arn:{aws_partition(spec.region)}:secretsmanager:{spec.region}:"
    for path, secret in spec.source_secrets.secrets.items():
        place = case.document.at("source_secrets", *path.split("."), "secret_arn")
        pattern = rf"{re.escape(form)}([0-9]{{12}}):secret:.+-[A-Za-z0-9]{{6}}"
        found = re.fullmatch(pattern, secret.secret_arn)
        if found is None:
            yield place.fault(
                f"the secret of 'source_secrets.{path}' is no whole ARN of this region",
                value=secret.secret_arn,
                allowed=f"{form}ACCOUNT:secret:NAME-XXXXXX",
                way_out="copy the ARN from the secret's page; a secret of another region can be "
                "replicated to this one",
            )
        elif found[1] != spec.account and secret.kms_key_arn is None:
            yield place.fault(
                f"the secret of 'source_secrets.{path}' is of another account, and no key is named",
                value=secret.secret_arn,
                allowed="a secret that a customer key encrypts, with its `kms_key_arn`: other "
                "accounts cannot use aws/secretsmanager",
                way_out="name the key, or make the secret in the environment's account",
            )


@rule("source_secrets", "region")
def keys_of_secrets_are_of_the_region(case: EnvironmentCase) -> Iterator[Fault]:
    """Secrets Manager decrypts in the region of the secret."""
    for path, secret in case.spec.source_secrets.secrets.items():
        key = secret.kms_key_arn
        if key is not None and key.split(":")[3] != case.spec.region:
            place = case.document.at("source_secrets", *path.split("."), "kms_key_arn")
            yield place.fault(
                f"the key of 'source_secrets.{path}' is of another region than the environment",
                value=key,
                allowed=f"a key of {case.spec.region}",
                way_out="name the key that encrypts the secret in this region",
            )


@rule("source_secrets")
def package_index_is_an_address(case: EnvironmentCase) -> Iterator[Fault]:
    """An HTTPS address without credentials, which would stand in git and in every log."""
    index = case.spec.source_secrets.package_index
    if index is None:
        return
    place = case.document.at("source_secrets", "package_index", "url")
    try:
        parts = urlsplit(index.url)
        host, secret = parts.hostname, parts.username is not None or parts.password is not None
    except ValueError:
        parts, host, secret = urlsplit(""), None, "@" in index.url
    if secret:
        yield place.fault(
            "'source_secrets.package_index.url' holds a user name or a password, not shown here",
            allowed="https://HOST/PATH/ without them",
            way_out="take them out, change the password, and put it into a secret named by "
            "`credentials`",
        )
    elif host is None or not (
        parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK)
    ):
        yield place.fault(
            "'source_secrets.package_index.url' is no HTTPS address",
            value=index.url,
            allowed="https://HOST/PATH/; http:// on this machine alone",
            way_out="give the address of the simple index",
        )


LOOPBACK = ("127.0.0.1", "localhost")
"""Hosts that no network lies between."""
RULES = rules_of(globals())
