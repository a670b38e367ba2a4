"""One checkpoint to build: its model, scheme and machine in the tree."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from engine_build.errors import InputRefused
from engine_build.options import Options
from engine_build.text_generation.job import CheckpointBuild
from onboarding.generation_resolve import checkpoint_keys, scheme_plan
from onboarding.rules.generation_case import generation_case
from onboarding.text_generation.platforms import quantizer_tools
from onboarding.tree import read_tree

MORE_TOOLS = ("transformers", "accelerate", "safetensors")
"""Recorded beside those that the key holds."""


def read_checkpoint_build(chosen: Options) -> CheckpointBuild:
    """Read the tree and find the scheme of a key. Raises InputRefused."""
    assert chosen.key is not None
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
    return CheckpointBuild(
        root=tree.root,
        environment=view.environment.spec,
        spec=generator.spec,
        key=chosen.key,
        scheme=keys[chosen.key],
        already=already,
        tensor_parallel=1 if plan is None else plan.tensor_parallel,
        versions=installed_tools(),
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
