"""One CodeBuild build: its build specification, its processes on this machine and its record."""

from __future__ import annotations

import re
import shlex
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from local_cloud.containers.archive import ArchiveError, unpack_source
from local_cloud.containers.container import ContainerSpec
from local_cloud.containers.images import ImageError, local_image
from local_cloud.containers.job import Job
from local_cloud.ministack.account import read_object

PHASES = ("install", "pre_build", "build", "post_build")
VERSIONS = ("0.1", "0.2")


class BuildspecError(Exception):
    """A buildspec cannot be run; the message is one sentence."""


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One phase's commands."""

    name: str
    commands: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Buildspec:
    """The phases that have commands, in CodeBuild's order, and the variables the buildspec sets."""

    phases: tuple[Phase, ...]
    variables: Mapping[str, str]
    exported: tuple[str, ...] = ()
    """Variables whose last values the build's record tells."""


def read_buildspec(text: str) -> Buildspec:
    """Reads a buildspec, refusing what the local cloud cannot run."""
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BuildspecError(
            f"YAML_FILE_ERROR: the buildspec does not parse ({' '.join(str(error).split())})"
        ) from error
    if not isinstance(content, dict) or str(content.get("version")) not in VERSIONS:
        raise BuildspecError(
            f"YAML_FILE_ERROR: the buildspec must be a mapping with version {' or '.join(VERSIONS)}"
        )
    phases = content.get("phases") or {}
    unknown = sorted(set(phases) - set(PHASES))
    if unknown or not phases:
        raise BuildspecError(
            f"YAML_FILE_ERROR: phases are {', '.join(PHASES)}; found {', '.join(unknown) or 'none'}"
        )
    variables = (content.get("env") or {}).get("variables") or {}
    return Buildspec(
        phases=tuple(
            Phase(name=name, commands=_commands(phases[name] or {}))
            for name in PHASES
            if name in phases
        ),
        variables={str(name): str(value) for name, value in variables.items()},
        exported=tuple(map(str, (content.get("env") or {}).get("exported-variables") or ())),
    )


def exported_variables(names: tuple[str, ...], exports: str) -> dict[str, str]:
    """The values of variables in what `export -p` says."""
    words = (word.partition("=") for word in shlex.split(exports))
    found = {name: value for name, _, value in words if name in names}
    # Bash escapes these within double quotes; shlex leaves them escaped.
    return {name: re.sub(r"\\([$`])", r"\1", value) for name, value in found.items()}


def _commands(content: Mapping[str, Any]) -> tuple[str, ...]:
    commands = content.get("commands") or []
    listed = [commands] if isinstance(commands, str) else commands
    if not isinstance(listed, list) or not all(isinstance(command, str) for command in listed):
        raise BuildspecError(
            f"YAML_FILE_ERROR: commands must be a list of strings, found {commands!r}"
        )
    return tuple(listed)


def phase_script(phase: Phase, shell_folder: Path, succeeding: bool) -> str:
    """Return the `bash -e` script of one phase; it continues where the phase before it ended."""
    exports, folder, progress = (
        shlex.quote(str(shell_folder / name)) for name in ("exports", "folder", "progress")
    )
    lines = [
        f"if [ -f {exports} ]; then . {exports}; fi",
        f'if [ -f {folder} ]; then cd "$(cat {folder})"; fi',
        f"export CODEBUILD_BUILD_SUCCEEDING={int(succeeding)}",
        f"at_end() {{ export -p > {exports}; pwd > {folder}; }}",
        "trap at_end EXIT",
    ]
    for number, command in enumerate(phase.commands):
        title = shlex.quote(f"[Container] Running command {command.strip()}")
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
        self._phase("SUBMITTED", lambda: None)
        self._phase("QUEUED", lambda: None)
        self._phase("PROVISIONING", self._provision)
        buildspec = self._phase("DOWNLOAD_SOURCE", self._download)
        failure = self._run_commands(buildspec)
        self._export(buildspec)
        if failure is None:
            self._phase("UPLOAD_ARTIFACTS", lambda: None)
        self._phase("FINALIZING", lambda: None)
        return "SUCCEEDED" if failure is None else failure.status

    def _run_commands(self, buildspec: Buildspec) -> PhaseError | None:
        """Run the buildspec's phases, post_build even after a failed build; return a failure."""
        failures: dict[str, PhaseError] = {}
        for phase in buildspec.phases:
            if failures and (phase.name != "post_build" or list(failures) != ["build"]):
                continue
            try:
                run = partial(self._run_phase, phase, buildspec, not failures)
                self._phase(phase.name.upper(), run)
            except PhaseError as error:
                failures[phase.name] = error
                if error.status != "FAILED":
                    break
        return next(iter(failures.values()), None)

    def _export(self, buildspec: Buildspec) -> None:
        path = self.folder / "shell" / "exports"
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        values = exported_variables(buildspec.exported, text)
        self.record["exportedEnvironmentVariables"] = [
            {"name": name, "value": value} for name, value in values.items()
        ]

    def _phase(self, name: str, act: Callable[[], Any]) -> Any:
        """Run one phase, with its beginning, end and failure on record."""
        if self.stopped.is_set():
            raise PhaseError("STOPPED", "the build was stopped", "STOPPED")
        begun = time.time()
        entry: dict[str, Any] = {"phaseType": name, "startTime": begun}
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
            now = time.time()
            entry.update(
                phaseStatus=status,
                endTime=now,
                durationInSeconds=round(now - begun),
                contexts=contexts,
            )

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
        elif source.get("type") != "NO_SOURCE":
            raise PhaseError(
                "CLIENT_ERROR",
                "the local cloud builds from S3 or NO_SOURCE, found source type "
                f"{source.get('type')}",
            )
        spec = str(source.get("buildspec") or "buildspec.yml")
        try:
            return read_buildspec(spec if "\n" in spec else _buildspec_file(folder, spec))
        except BuildspecError as error:
            raise PhaseError("YAML_FILE_ERROR", str(error)) from error

    def _run_phase(self, phase: Phase, buildspec: Buildspec, succeeding: bool) -> None:
        shell = self.folder / "shell"
        shell.mkdir(parents=True, exist_ok=True)
        script = shell / f"{phase.name}.sh"
        script.write_text(phase_script(phase, shell, succeeding), encoding="utf-8")
        spec = ContainerSpec(
            command=("/bin/bash", "-e", str(script)),
            environment=self._variables(buildspec),
            folder=self.folder / "src",
            log=self.log,
            own_network=False,
        )
        self._write_line(f"[Container] Entering phase {phase.name.upper()}")
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
                f"Error while executing command: {phase.commands[done].strip()}. Reason: exit "
                f"status {status}. Last line of the log: {self._last_line()}",
            )

    def _variables(self, buildspec: Buildspec) -> dict[str, str]:
        image = local_image(str(self.record["environment"]["image"]), self.settings)
        return {
            **self.environment(image),
            **buildspec.variables,
            **self.variables,
            "CI": "true",
            "CODEBUILD_BUILD_ID": str(self.record["id"]),
            "CODEBUILD_BUILD_ARN": str(self.record["arn"]),
            "CODEBUILD_BUILD_NUMBER": str(self.record["buildNumber"]),
            "CODEBUILD_SRC_DIR": str(self.folder / "src"),
        }

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


def _buildspec_file(folder: Path, name: str) -> str:
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()) or not path.is_file():
        raise BuildspecError(f"YAML_FILE_ERROR: the buildspec {name} is not in the source")
    return path.read_text(encoding="utf-8")
