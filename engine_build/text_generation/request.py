"""One checkpoint to build: its command line, and its model, scheme and machine in the tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from engine_build.errors import InputRefused
from engine_build.options import Parser
from onboarding.environment_spec import EnvironmentSpec
from onboarding.generation_resolve import checkpoint_keys, scheme_plan
from onboarding.rules.generation_case import generation_case
from onboarding.text_generation.platforms import quantizer_tools
from onboarding.text_generation.spec import TextGenerationSpec
from onboarding.tree import read_tree

MORE_TOOLS = ("transformers", "accelerate", "safetensors")
"""Recorded beside those that the key holds."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What one build of a checkpoint is asked for."""

    root: Path
    environment: str
    model: str
    key: str
    out: Path
    store: str | None = None
    """An s3:// bucket, or a folder: what is published and known of sources."""
    upload: bool = False
    candidate: str | None = None
    """Where, under candidates/, the checkpoint waits for its signature; None: it is published."""
    format: Literal["text", "json"] = "text"


def options(arguments: Sequence[str]) -> Options:
    """Return the options of a command line. Raises InputRefused."""
    parser = Parser(
        prog="python -m engine_build.text_generation",
        description="Quantizes a text generator, compares it with its source and publishes it; a "
        "known checkpoint is not built again.",
        epilog="Exit codes: 0 built or already there, within its budget or not; 1 bad input; 5 "
        "source fault; 6 publish failed.",
        allow_abbrev=False,
    )
    option = parser.add_argument
    root = "onboarding root: models/, environments/"
    option("--root", type=Path, default=Path(), help=root)
    option("--environment", required=True, help="a file of environments/, without .yaml")
    option("--model", required=True, help="a file of models/, without .yaml")
    option("--key", required=True, help="checkpoint key, 20 hex digits: one of the model's schemes")
    out = "work folder: log, checkpoint/, checkpoint.json; a later run goes on from it"
    option("--out", type=Path, required=True, help=out)
    option("--store", metavar="s3://BUCKET", help="where checkpoints are published, or a folder")
    option("--upload", action="store_true", help="publish the checkpoint in --store")
    candidate = "publish as this candidate, for the environment's signer; default: as a checkpoint"
    option("--candidate", metavar="NAME", help=candidate)
    form = "what the result on stdout looks like"
    option("--format", choices=("text", "json"), default="text", help=form)
    chosen = Options(**vars(parser.parse_args(arguments)))
    if chosen.upload and not chosen.store:
        raise InputRefused("--upload needs --store; name the bucket or folder to publish in.")
    if chosen.candidate is not None and not chosen.upload:
        raise InputRefused("--candidate needs --upload; add it, or leave the candidate out.")
    if not chosen.out.name:
        raise InputRefused("--out is empty; name a folder.")
    return chosen


@dataclass(frozen=True, kw_only=True)
class CheckpointRequest:
    """What is built."""

    root: Path
    environment: EnvironmentSpec
    spec: TextGenerationSpec
    key: str
    scheme: str
    already: str | None
    """The number format that the source's weights have; None: 16 or 32 bits."""
    tensor_parallel: int
    """GPUs that share its weights where it is measured: the plan's."""


def checkpoint_request(chosen: Options) -> CheckpointRequest:
    """Read the tree and find the scheme of a key. Raises InputRefused."""
    tree = read_tree(chosen.root)
    view = tree.views.get(chosen.environment)
    if view is None:
        known = ", ".join(sorted(tree.views)) or "none"
        raise InputRefused(
            f"environment {chosen.environment} has no file in environments/; there are: {known}."
        )
    files = {f"models/{chosen.model}.yaml", f"environments/{chosen.environment}.yaml"}
    faults = [fault for fault in tree.faults if fault.file in files]
    if faults:
        more = f"{len(faults)} faults, the first: " if len(faults) > 1 else ""
        raise InputRefused(f"{more}{faults[0]}")
    generator = view.generators.get(chosen.model)
    if generator is None:
        known = ", ".join(sorted(view.generators)) or "none"
        raise InputRefused(
            f"{chosen.model} is no text generator of environment {chosen.environment}; those are: "
            f"{known}."
        )
    headers = generation_case(generator, tree.root).headers
    already = None if headers is None else headers.scheme
    keys = checkpoint_keys(generator.spec, tree.root, already)
    if chosen.key not in keys:
        schemes = ", ".join(f"{key} ({scheme})" for key, scheme in keys.items())
        raise InputRefused(
            f"{chosen.key} is no checkpoint key of {chosen.model} as its files are now; those "
            f"are: {schemes}."
        )
    plan = scheme_plan(tree, chosen.environment, chosen.model, keys[chosen.key])
    return CheckpointRequest(
        root=tree.root,
        environment=view.environment.spec,
        spec=generator.spec,
        key=chosen.key,
        scheme=keys[chosen.key],
        already=already,
        tensor_parallel=1 if plan is None else plan.tensor_parallel,
    )


def installed_tools() -> dict[str, str]:
    """Return the versions of the libraries that make checkpoints.

    Raises InputRefused where they are not those of the keys.
    """
    tools = {}
    for name, wanted in quantizer_tools().items():
        try:
            found = version(name)
        except PackageNotFoundError:
            found = "none"
        if found.split("+")[0] != wanted:
            raise InputRefused(
                f"this Python has {name} {found}, and checkpoint keys are of {wanted}; run the "
                "build in the environment of requirements/quantizer.txt."
            )
        tools[name] = found
    return tools | {name: version(name) for name in MORE_TOOLS}
