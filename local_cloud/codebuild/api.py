"""CodeBuild's StartBuild and StopBuild, in the place of MiniStack's, which only pretend."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from typing import Any

from ministack.services import codebuild

from local_cloud.codebuild.build import BuildRun
from local_cloud.containers.job import STOP_SECONDS
from local_cloud.ministack.account import account_id, in_background, region
from local_cloud.protocol.errors import AwsError, Reply, error_reply, json_reply
from local_cloud.settings import Settings

Request = Mapping[str, Any]


class Builds:
    """All builds that run or have run."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.runs: dict[str, BuildRun] = {}

    def install(self) -> None:
        """Puts these actions where MiniStack looks for its own."""
        codebuild._start_build = self.start
        codebuild._stop_build = self.stop

    def start(self, request: Request) -> Reply:
        """Starts a build of a project, with the request's overrides."""
        name = request.get("projectName", "")
        project = codebuild._projects.get(name)
        if project is None:
            return _not_found(f"Project not found: {name}")
        record = build_record(project, request)
        run = BuildRun(
            record=record,
            account=account_id(),
            region=region(),
            folder=self.settings.state / "builds" / record["id"].replace(":", "-"),
            settings=self.settings,
            variables={
                variable["name"]: str(variable["value"])
                for variable in record["environment"].get("environmentVariables") or ()
            },
            deadline=time.monotonic() + 60 * int(record["timeoutInMinutes"]),
        )
        record["logs"] = {
            "groupName": str(run.log),
            "streamName": record["id"],
            "deepLink": run.log.as_uri(),
        }
        codebuild._builds[record["id"]] = record
        self.runs[record["id"]] = run
        reply = json_reply({"build": copy.deepcopy(record)})
        in_background(run.run)
        return reply

    def stop(self, request: Request) -> Reply:
        """Kills a build and waits until it is gone."""
        run = self.runs.get(str(request.get("id")))
        if run is None:
            return _not_found(f"Build not found: {request.get('id')}")
        if not run.ended.is_set():
            run.kill()
            run.ended.wait(STOP_SECONDS)
        return json_reply({"build": copy.deepcopy(run.record)})


def build_record(project: Request, request: Request) -> dict[str, Any]:
    """Return a new build's record: the project's settings with the request's overrides."""
    record: dict[str, Any] = copy.deepcopy(
        codebuild._make_build_record(project, codebuild._build_id(project["name"]))
    )
    source = {"type": "NO_SOURCE", **record["source"]}
    environment = {**record["environment"]}
    for field, name in (("type", "Type"), ("location", "Location"), ("buildspec", "")):
        given = request.get(f"source{name}Override" if name else "buildspecOverride")
        source |= {} if given is None else {field: given}
    variables = (
        *(environment.get("environmentVariables") or ()),
        *(request.get("environmentVariablesOverride") or ()),
    )
    environment["environmentVariables"] = list(
        {variable["name"]: dict(variable) for variable in variables}.values()
    )
    record.pop("endTime", None)
    record.update(
        startTime=time.time(),
        currentPhase="SUBMITTED",
        buildStatus="IN_PROGRESS",
        buildComplete=False,
        phases=[],
        source=source,
        environment=environment,
        timeoutInMinutes=int(record["timeoutInMinutes"]),
    )
    return record


def _not_found(message: str) -> Reply:
    return error_reply(AwsError("ResourceNotFoundException", message))
