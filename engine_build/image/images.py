"""`python3 engine_build/image/images.py ORDERS.json`.

Builds and pushes the container images that no repository holds yet.

What the image project runs, in CodeBuild's own image: so it imports the standard library only, and
asks AWS through the `aws`
command. ORDERS.json is what `roundhouse images` wrote: `region`, `registries` to log in to, and
`images`, each with `image`,
`repository`, `tag`, `uri`, `dockerfile` and `arguments`. The current folder is the build context.
Never run by CodeBuild where
this was written: no account, and no Docker.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

ABSENT = "ImageNotFoundException"
"""What ECR answers when a repository has no such tag."""
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
"""The one kind of image that SageMaker takes; an OCI image, Docker's newer default, it refuses."""
FAILED, WRONG_USAGE = 1, 2


class ImageFailed(Exception):
    """An image was not built or pushed; the message is one sentence."""


@dataclass(frozen=True)
class Ended:
    """What a process came to; its output is told while it runs when nobody asked for it."""

    code: int
    output: str = ""


Run = Callable[[Sequence[str], "str | None", bool], Ended]
"""Runs a command, with text for its standard input, quietly or not."""


def main(arguments: Sequence[str], run: Run, stdout: TextIO, stderr: TextIO) -> int:
    """Return 0 when every image is there.

    1 with one sentence when one could not be made, 2 for wrong usage.
    """
    if len(arguments) != 1:
        print("usage: python3 engine_build/image/images.py ORDERS.json", file=stderr)
        return WRONG_USAGE
    try:
        orders: Mapping[str, Any] = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
        missing = [
            image for image in orders["images"] if not is_there(run, orders["region"], image)
        ]
        if missing:
            log_in(run, orders["region"], orders["registries"])
        for item in missing:
            make(run, orders["region"], item)
    except ImageFailed as error:
        print(str(error), file=stderr, flush=True)
        return FAILED
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
        print(
            f"{arguments[0]} is no list of images ({why}); `roundhouse images` writes it.",
            file=stderr,
            flush=True,
        )
        return FAILED
    print(
        f"{len(missing)} images built, {len(orders['images']) - len(missing)} were there.",
        file=stdout,
        flush=True,
    )
    return 0


def is_there(run: Run, region: str, order: Mapping[str, Any]) -> bool:
    """Whether the repository holds the tag.

    A tag is its content's address and is never pushed twice.
    """
    ask = (
        "aws",
        "ecr",
        "describe-images",
        "--region",
        region,
        "--repository-name",
        order["repository"],
    )
    wanted = (
        "--image-ids",
        f"imageTag={order['tag']}",
        "--query",
        "imageDetails[0].imageManifestMediaType",
        "--output",
        "text",
    )
    found = run((*ask, *wanted), None, True)
    if found.code != 0 and ABSENT not in found.output:
        raise ImageFailed(
            f"{order['image']}: ECR cannot be asked for {order['uri']}: {_last_line(found.output)}."
        )
    if found.code == 0 and found.output.strip() != MANIFEST:
        raise ImageFailed(
            f"{order['image']}: {order['uri']} is of the kind {found.output.strip()}, and "
            f"SageMaker takes {MANIFEST} only; delete that tag, then build it again."
        )
    return found.code == 0


def log_in(run: Run, region: str, registries: Sequence[str]) -> None:
    """One password opens every registry that the role may read."""
    password = run(("aws", "ecr", "get-login-password", "--region", region), None, True)
    if password.code != 0:
        raise ImageFailed(f"ECR gives no password: {_last_line(password.output)}.")
    for registry in registries:
        entered = run(
            ("docker", "login", "--username", "AWS", "--password-stdin", registry),
            password.output,
            True,
        )
        if entered.code != 0:
            raise ImageFailed(f"{registry} lets nobody in: {_last_line(entered.output)}.")


def make(run: Run, region: str, order: Mapping[str, Any]) -> None:
    """Builds and pushes one image."""
    arguments = [
        word
        for name, value in order["arguments"].items()
        for word in ("--build-arg", f"{name}={value}")
    ]
    # Without provenance and of Docker's own type, for otherwise it becomes an OCI image or an index
    # of several.
    kind = ("--provenance=false", "--output", "type=docker")
    command = (
        "docker",
        "buildx",
        "build",
        "--file",
        order["dockerfile"],
        "--tag",
        order["uri"],
        *kind,
        *arguments,
        ".",
    )
    built = run(command, None, False)
    if built.code != 0:
        raise ImageFailed(
            f"{order['image']}: docker build ended with {built.code}: {_last_line(built.output)}."
        )
    pushed = run(("docker", "push", order["uri"]), None, False)
    # Asked even after a failure: another build may have been faster, and the same tag is the same
    # content.
    if not is_there(run, region, order):
        raise ImageFailed(
            f"{order['image']}: docker push ended with {pushed.code}: {_last_line(pushed.output)}."
        )


def run_process(command: Sequence[str], given: str | None, quietly: bool) -> Ended:
    """Runs a command; a quiet one is neither printed with its input nor heard."""
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
            process.stdin.write(given or "")
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
