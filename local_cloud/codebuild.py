"""CodeBuild's builds: their specifications, their processes on this machine, and their records.

StartBuild and StopBuild stand in the place of MiniStack's, which only pretend.
"""

from __future__ import annotations

import copy
import shlex
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from ministack.services import codebuild

from local_cloud.account import account_id, in_background, read_object, region
from local_cloud.containers.archive import ArchiveError, unpack_source
from local_cloud.containers.container import ContainerSpec
from local_cloud.containers.images import ImageError, local_image
from local_cloud.containers.job import STOP_SECONDS, Job
from local_cloud.protocol.errors import AwsError, Reply, Request, error_reply, json_reply
from local_cloud.settings import Settings

PHASES = ("build", "post_build")
"""Those that our build specifications have; the second runs after a failed one too."""


@dataclass(frozen=True, kw_only=True)
class Buildspec:
    """Commands by phase in CodeBuild's order, and the variables that the build's record tells."""

    phases: Mapping[str, tuple[str, ...]]
    exported: tuple[str, ...]


def read_buildspec(text: str) -> Buildspec:
    """Read one of our own build specifications."""
    content = yaml.safe_load(text)
    phases = content["phases"]
    return Buildspec(
        phases={name: tuple(phases[name]["commands"]) for name in PHASES if name in phases},
        exported=tuple((content.get("env") or {}).get("exported-variables") or ()),
    )


def phase_script(commands: tuple[str, ...], exported: tuple[str, ...], shell_folder: Path) -> str:
    """Return the `bash -e` script of one phase."""
    prints = [
        f'printf %s "${{{name}-}}" > {shlex.quote(str(shell_folder / name))}' for name in exported
    ]
    lines = [f"at_end() {{ {'; '.join((*prints, ':'))}; }}", "trap at_end EXIT"]
    for number, command in enumerate(commands):
        title = shlex.quote(f"[Container] Running command {command.strip()}")
        progress = shlex.quote(str(shell_folder / "progress"))
        lines += [f"echo {number} > {progress}", f"echo {title}", command]
    return "\n".join([*lines, ""])


class PhaseError(Exception):
    """A phase failed; carries CodeBuild's status code and a message of one sentence."""

    def __init__(self, code: str, message: str, status: str = "FAILED") -> None:
        super().__init__(message)
        self.code = code
        self.status = status


@dataclass(kw_only=True)
class BuildRun(Job):
    """Runs the build of one record, phase by phase."""

    variables: Mapping[str, str]
    deadline: float

    @property
    def log(self) -> Path:
        """The build's output."""
        return self.folder / "build.log"

    def run(self) -> None:
        """Run all phases; the record ends SUCCEEDED, FAILED, TIMED_OUT or STOPPED in any case."""
        status = "FAULT"
        try:
            status = self._run_phases()
        except PhaseError as error:
            status = error.status
        finally:
            self._finish("STOPPED" if self.stopped.is_set() else status)

    def _run_phases(self) -> str:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        for name in ("SUBMITTED", "QUEUED"):
            self._phase(name, lambda: None)
        self._phase("PROVISIONING", self._provision)
        buildspec = self._phase("DOWNLOAD_SOURCE", self._download)
        failure = self._run_commands(buildspec)
        self._export(buildspec)
        return "SUCCEEDED" if failure is None else failure.status

    def _run_commands(self, buildspec: Buildspec) -> PhaseError | None:
        """Run the buildspec's phases, even after one that failed; return the first failure."""
        failure: PhaseError | None = None
        for phase in buildspec.phases:
            try:
                self._phase(phase.upper(), partial(self._run_phase, phase, buildspec))
            except PhaseError as error:
                failure = failure or error
                if error.status != "FAILED":
                    break
        return failure

    def _export(self, buildspec: Buildspec) -> None:
        files = {name: self.folder / "shell" / name for name in buildspec.exported}
        self.record["exportedEnvironmentVariables"] = [
            {"name": name, "value": path.read_text(encoding="utf-8")}
            for name, path in files.items()
            if path.is_file()
        ]

    def _phase(self, name: str, act: Callable[[], Any]) -> Any:
        """Run one phase, with its beginning, end and failure on record."""
        if self.stopped.is_set():
            raise PhaseError("STOPPED", "the build was stopped", "STOPPED")
        entry: dict[str, Any] = {"phaseType": name, "startTime": time.time()}
        self.record["phases"].append(entry)
        self.record["currentPhase"] = name
        status, contexts = "SUCCEEDED", [{"statusCode": "", "message": ""}]
        try:
            return act()
        except PhaseError as error:
            status, contexts = error.status, [{"statusCode": error.code, "message": str(error)}]
            self._write_line(f"[Container] Phase {name} {status}: {error}")
            raise
        finally:
            entry.update(phaseStatus=status, endTime=time.time(), contexts=contexts)

    def _provision(self) -> None:
        environment = self.record["environment"]
        if "GPU" in str(environment.get("type", "")):
            raise PhaseError(
                "CLIENT_ERROR",
                f"the project asks for {environment['type']}, and this machine has no GPU: build "
                "for a cpu target, or on AWS",
            )
        try:
            local_image(str(environment.get("image")), self.settings)
        except ImageError as error:
            raise PhaseError("BUILD_CONTAINER_UNABLE_TO_PULL_IMAGE", str(error)) from error

    def _download(self) -> Buildspec:
        source = self.record["source"]
        folder = self.folder / "src"
        folder.mkdir(parents=True)
        if source.get("type") == "S3":
            _unpack(str(source.get("location", "")), folder)
        spec = str(source.get("buildspec") or "buildspec.yml")
        try:
            return read_buildspec(spec if "\n" in spec else (folder / spec).read_text("utf-8"))
        except (OSError, yaml.YAMLError, KeyError) as error:
            message = f"the build specification cannot be read: {error}"
            raise PhaseError("YAML_FILE_ERROR", message) from error

    def _run_phase(self, phase: str, buildspec: Buildspec) -> None:
        shell = self.folder / "shell"
        shell.mkdir(parents=True, exist_ok=True)
        script, commands = shell / f"{phase}.sh", buildspec.phases[phase]
        script.write_text(phase_script(commands, buildspec.exported, shell), encoding="utf-8")
        image = local_image(str(self.record["environment"]["image"]), self.settings)
        spec = ContainerSpec(
            command=("/bin/bash", "-e", str(script)),
            environment={**self.environment(image), **self.variables},
            folder=self.folder / "src",
            log=self.log,
            own_network=False,
        )
        self._write_line(f"[Container] Entering phase {phase.upper()}")
        status = self.run_container(spec, max(self.deadline - time.monotonic(), 0))
        if self.stopped.is_set():
            raise PhaseError("STOPPED", "the build was stopped", "STOPPED")
        if status is None:
            message = "the build took longer than timeoutInMinutes allows"
            raise PhaseError("BUILD_TIMED_OUT", message, "TIMED_OUT")
        if status != 0:
            done = int((shell / "progress").read_text(encoding="utf-8"))
            raise PhaseError(
                "COMMAND_EXECUTION_ERROR",
                f"Error while executing command: {commands[done].strip()}. Reason: exit "
                f"status {status}. Last line of the log: {self._last_line()}",
            )

    def _finish(self, status: str) -> None:
        if status == "SUCCEEDED":
            for name in ("src", "home", "shell"):
                shutil.rmtree(self.folder / name, ignore_errors=True)
        now = time.time()
        self.record["phases"].append({"phaseType": "COMPLETED", "startTime": now})
        self.record.update(
            buildStatus=status, currentPhase="COMPLETED", endTime=now, buildComplete=True
        )
        self.ended.set()

    def _write_line(self, line: str) -> None:
        with self.log.open("a", encoding="utf-8") as log:
            log.write(line + "\n")

    def _last_line(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "(nothing)")


def _unpack(location: str, folder: Path) -> None:
    bucket, _, key = location.removeprefix("arn:aws:s3:::").partition("/")
    content = read_object(bucket, key)
    if content is None:
        raise PhaseError(
            "CLIENT_ERROR", f"there is no object s3://{bucket}/{key} for the source: NoSuchKey"
        )
    try:
        unpack_source(content, folder, f"s3://{bucket}/{key}")
    except ArchiveError as error:
        raise PhaseError("CLIENT_ERROR", str(error)) from error


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
