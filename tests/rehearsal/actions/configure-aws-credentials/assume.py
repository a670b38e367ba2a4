"""Exchanges the job's OIDC token for credentials of a role, which every later step has."""

import json
import os
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path


def read(url, **options):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, **options), timeout=900) as reply:
            return reply.read().decode()
    except urllib.error.HTTPError as error:
        sys.exit(f"{url.partition('?')[0]}: HTTP {error.code}: {error.read().decode()}")


request = os.environ["ACTIONS_ID_TOKEN_REQUEST_TOKEN"]
token = read(
    f"{os.environ['ACTIONS_ID_TOKEN_REQUEST_URL']}&audience={os.environ['AUDIENCE']}",
    headers={"Authorization": f"bearer {request}"},
)
question = {
    "Action": "AssumeRoleWithWebIdentity",
    "Version": "2011-06-15",
    "RoleArn": os.environ["ROLE"],
    "RoleSessionName": "GitHubActions",
    "DurationSeconds": os.environ["SECONDS_VALID"],
    "WebIdentityToken": json.loads(token)["value"],
}
answer = read(
    os.environ["AWS_ENDPOINT_URL"],
    data=urllib.parse.urlencode(question).encode(),
    headers={"Content-Type": "application/x-www-form-urlencoded"},
)
found = {
    variable: re.search(f"<{name}>(.*?)</{name}>", answer, re.DOTALL)[1]
    for variable, name in (
        ("AWS_ACCESS_KEY_ID", "AccessKeyId"),
        ("AWS_SECRET_ACCESS_KEY", "SecretAccessKey"),
        ("AWS_SESSION_TOKEN", "SessionToken"),
    )
}
for value in found.values():
    print(f"::add-mask::{value}")
region = os.environ["REGION"]
with Path(os.environ["GITHUB_ENV"]).open("a") as file:
    for name, value in {**found, "AWS_REGION": region, "AWS_DEFAULT_REGION": region}.items():
        file.write(f"{name}={value}\n")
