"""Which environment and command of this machine stands for a container image."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from local_cloud.settings import Settings

BASELINE = "python-server-baseline"
OVERRIDES_FILE = "images.yaml"
OF_CHAT = "python -m roundhouse.dev.environments vllm quantizer"
MAKERS = dict.fromkeys(("vllm", "quantizer"), OF_CHAT)
"""Commands that make the environments which are made only when asked for."""
TRITON_SERVE = Path(__file__).with_name("triton_serve.py")
VLLM_SERVE = Path(__file__).with_name("vllm_serve.py")
TRAIN = Path(__file__).parents[1] / "sagemaker" / "training" / "train.py"


class ImageError(Exception):
    """No environment of this machine stands for an image; the message is one sentence."""


@dataclass(frozen=True, kw_only=True)
class LocalImage:
    """The local stand-in of one image: its Python environment and its command."""

    environment_folder: Path
    command: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[Path, ...] = ()
    """Folders of packages that the environment lacks."""

    def base_environment(self, root: Path) -> dict[str, str]:
        """Return a process's variables: the image's own programs, the repository's packages."""
        return {
            "PATH": f"{self.environment_folder}/bin:/usr/bin:/bin",
            "VIRTUAL_ENV": str(self.environment_folder),
            "PYTHONPATH": ":".join(map(str, (root, *self.packages))),
            "PYTHONUNBUFFERED": "1",
            "LANG": "C.UTF-8",
            **self.variables,
        }


def local_image(image_uri: str, settings: Settings) -> LocalImage:
    """Return the stand-in of an image; `images.yaml` in the state folder adds to the table."""
    name = image_uri.split("@")[0].rsplit("/", 1)[-1].split(":")[0]
    table = {**_table(settings), **_overrides(settings)}
    if name not in table:
        raise ImageError(
            f"no local environment stands for the image {image_uri}: known are "
            f"{', '.join(sorted(table))}"
        )
    if not table[name].environment_folder.exists():
        raise ImageError(
            f"the environment {table[name].environment_folder} for the image {name} is missing: "
            f"`{MAKERS.get(table[name].environment_folder.name, 'make environments')}` makes it"
        )
    return table[name]


def _table(settings: Settings) -> dict[str, LocalImage]:
    environments = settings.environments
    triton = ("--triton", environments / "triton", "--backends", settings.state / "backends")
    vllm = (environments / "vllm" / "bin" / "python", "-I", "-S", VLLM_SERVE)
    server_packages = tuple(sorted(environments.glob("server/lib/python3*/site-packages")))
    training = (TRAIN, settings.root / "engine_build" / "training_job.py")
    commands = {
        "python-server": ("server", "-m", "container.server", "serve"),
        # torch is the builder's; what else the server imports is the server's own.
        "python-server-baseline": ("builder", "-m", "container.server", "serve"),
        "triton": ("triton", "-I", "-S", TRITON_SERVE, *triton),
        "vllm-server": ("vllm", "-m", "container.server", "vllm", *vllm),
        "builder-cpu": ("builder", *training),
        "builder-quantizer": ("quantizer", *training),
    }
    return {
        name: LocalImage(
            environment_folder=environments / environment,
            command=(str(environments / environment / "bin" / "python"), *map(str, arguments)),
            packages=server_packages if name == BASELINE else (),
        )
        for name, (environment, *arguments) in commands.items()
    }


def _overrides(settings: Settings) -> dict[str, LocalImage]:
    path = settings.state / OVERRIDES_FILE
    if not path.exists():
        return {}
    rows: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    return {
        name: LocalImage(
            environment_folder=Path(row.get("environment_folder", sys.prefix)),
            command=tuple(row.get("command", ())),
            variables=row.get("variables", {}),
        )
        for name, row in rows.items()
    }
