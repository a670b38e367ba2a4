"""`python3 engine_build/image/images.py ORDERS.json`.

Builds and pushes the container images that no repository holds yet.

What the image project runs, in CodeBuild's own image: so it imports the standard library only, and
asks AWS through the `aws` command. ORDERS.json is what `roundhouse build --images` wrote: `region`,
`registries` to log in to, and `images`, each with `image`, `repository`, `tag`, `uri`, `dockerfile`
and `arguments`. The current folder is the build context. Never run by CodeBuild where this was
written: no account, and no Docker.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

ABSENT = "ImageNotFoundException"
"""What ECR answers when a repository has no such tag."""
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
"""The one kind of image that SageMaker takes; an OCI image, Docker's newer default, it refuses."""
FAILED, WRONG_USAGE = 1, 2


class ImageFailed(Exception):
    """An image was not built or pushed; the message is one sentence."""


class Ended(NamedTuple):
    """The exit code of a process, and both its streams."""

    code: int
    output: str = ""


Run = Callable[[Sequence[str], "str | None", bool], Ended]
"""Runs a command, with text for its standard input, quietly or not."""


def main(arguments: Sequence[str], run: Run, stdout: TextIO, stderr: TextIO) -> int:
    """Return 0 when every image is there, 1 when one could not be made, 2 for wrong usage."""
    if len(arguments) != 1:
        print("usage: python3 engine_build/image/images.py ORDERS.json", file=stderr)
        return WRONG_USAGE
    try:
        orders: Mapping[str, Any] = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
        region, images = orders["region"], orders["images"]
        missing = [image for image in images if not is_pushed(run, region, image)]
        if missing:
            log_in(run, region, orders["registries"])
        for image in missing:
            build_and_push(run, region, image)
    except ImageFailed as error:
        print(str(error), file=stderr, flush=True)
        return FAILED
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"({type(error).__name__}: {error}); `roundhouse build --images` writes it."
        print(f"{arguments[0]} is no list of images {reason}", file=stderr, flush=True)
        return FAILED
    summary = f"{len(missing)} images built, {len(images) - len(missing)} were there."
    print(summary, file=stdout, flush=True)
    return 0


def is_pushed(run: Run, region: str, order: Mapping[str, Any]) -> bool:
    """Return True when the repository holds the tag, its content's digest. Raises ImageFailed."""
    repository = ("--region", region, "--repository-name", order["repository"])
    image = ("--image-ids", f"imageTag={order['tag']}")
    kind = ("--query", "imageDetails[0].imageManifestMediaType", "--output", "text")
    answer = run(("aws", "ecr", "describe-images", *repository, *image, *kind), None, True)
    if answer.code != 0 and ABSENT not in answer.output:
        reason = _last_line(answer.output)
        raise ImageFailed(f"{order['image']}: ECR cannot be asked for {order['uri']}: {reason}.")
    if answer.code == 0 and answer.output.strip() != MANIFEST:
        raise ImageFailed(
            f"{order['image']}: {order['uri']} is of the kind {answer.output.strip()}, and "
            f"SageMaker takes {MANIFEST} only; delete that tag, then build it again."
        )
    return answer.code == 0


def log_in(run: Run, region: str, registries: Sequence[str]) -> None:
    """Log in to every registry; one password is for all that the role may read."""
    password = run(("aws", "ecr", "get-login-password", "--region", region), None, True)
    if password.code != 0:
        raise ImageFailed(f"ECR gives no password: {_last_line(password.output)}.")
    login = ("docker", "login", "--username", "AWS", "--password-stdin")
    for registry in registries:
        entered = run((*login, registry), password.output, True)
        if entered.code != 0:
            raise ImageFailed(f"{registry} lets nobody in: {_last_line(entered.output)}.")


def build_and_push(run: Run, region: str, order: Mapping[str, Any]) -> None:
    """Build and push one image. Raises ImageFailed."""
    build = ("docker", "buildx", "build", "--file", order["dockerfile"], "--tag", order["uri"])
    # Without provenance and of Docker's own type, for otherwise it becomes an OCI image or an index
    # of several.
    kind = ("--provenance=false", "--output", "type=docker")
    values = [f"{name}={value}" for name, value in order["arguments"].items()]
    arguments = [word for value in values for word in ("--build-arg", value)]
    built = run((*build, *kind, *arguments, "."), None, False)
    if built.code != 0:
        raise ImageFailed(
            f"{order['image']}: docker build ended with {built.code}: {_last_line(built.output)}."
        )
    pushed = run(("docker", "push", order["uri"]), None, False)
    # Asked even after a failure: another build may have been faster, and the same tag is the same
    # content.
    if not is_pushed(run, region, order):
        raise ImageFailed(
            f"{order['image']}: docker push ended with {pushed.code}: {_last_line(pushed.output)}."
        )


def run_process(command: Sequence[str], text: str | None, quietly: bool) -> Ended:
    """Run a command; of a quiet one neither input nor output is printed."""
    print(f"$ {shlex.join(command)}", flush=True)
    lines: list[str] = []
    try:
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(text or "")
            process.stdin.close()
            for line in process.stdout:
                lines.append(line)
                if not quietly:
                    print(line, end="", flush=True)
    except FileNotFoundError:
        return Ended(127, f"{command[0]} is not installed")
    except BrokenPipeError:
        return Ended(process.returncode or FAILED, "".join(lines) or f"{command[0]} did not listen")
    return Ended(process.returncode, "".join(lines))


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else "it left no word"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], run_process, sys.stdout, sys.stderr))
