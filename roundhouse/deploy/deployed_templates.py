"""The templates of an account's stacks as they are deployed now."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from onboarding.yaml_text import load_yaml
from roundhouse.aws.clients import Client, calling
from roundhouse.session import Session

EVERY_SECONDS = 2.0
READERS = 8
NEVER_DEPLOYED = (
    "REVIEW_IN_PROGRESS",
    "CREATE_FAILED",
    "ROLLBACK_FAILED",
    "ROLLBACK_COMPLETE",
    "DELETE_COMPLETE",
)

Template = Mapping[str, Any]


def deployed_templates(session: Session, stack_names: Sequence[str]) -> dict[str, Template]:
    """The templates of those of the stacks that are there, by name; an update that is under way is
    waited for.
    """
    client = session.clients("cloudformation")
    statuses = dict(_statuses(client)) if stack_names else {}
    there = [
        name for name in stack_names if statuses.get(name, NEVER_DEPLOYED[0]) not in NEVER_DEPLOYED
    ]
    busy = [name for name in there if statuses[name].endswith("_IN_PROGRESS")]
    if busy:
        _wait(session, client, busy)
    with ThreadPoolExecutor(READERS) as readers:
        return dict(
            zip(there, readers.map(lambda name: _template(client, name), there), strict=True)
        )


def _statuses(client: Client) -> Iterator[tuple[str, str]]:
    """Newest first, as CloudFormation lists them; a name that was deleted and made anew is there
    once more.
    """
    seen: set[str] = set()
    with calling("Looking at the stacks"):
        for page in client.get_paginator("list_stacks").paginate():
            for each in page["StackSummaries"]:
                if each["StackStatus"] != "DELETE_COMPLETE" and each["StackName"] not in seen:
                    seen.add(each["StackName"])
                    yield each["StackName"], each["StackStatus"]


def _wait(session: Session, client: Client, names: Sequence[str]) -> None:
    with session.report.step("Waiting for the updates that are under way") as step:
        for name in names:
            step.update(name)
            while _status(client, name).endswith("_IN_PROGRESS"):
                time.sleep(EVERY_SECONDS)


def _status(client: Client, name: str) -> str:
    with calling(f"Looking at stack {name}"):
        return str(client.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"])


def _template(client: Client, name: str) -> Template:
    """The cdk command line sends a template that is not an asset as YAML, and boto3 reads JSON
    only.
    """
    with calling(f"Reading the template of stack {name}"):
        body = client.get_template(StackName=name)["TemplateBody"]
    if isinstance(body, str):
        template: Template = json.loads(body) if body.lstrip().startswith("{") else load_yaml(body)
        return template
    return dict(body)
