"""One text generator as an environment deploys it: checkpoint, instance type, arguments.

`generation_deployments` of onboarding/generation_resolve.py makes them from a tree and its locks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from onboarding.deployment import Artifact, DeployedEndpoint
from onboarding.keys import digest
from onboarding.text_generation.arguments import container_environment
from onboarding.text_generation.checkpoint import Checkpoint
from onboarding.text_generation.checkpoint_key import quantizer_route
from onboarding.text_generation.checkpoint_lock import CheckpointEntry
from onboarding.text_generation.cuda_graphs import planned_graph_tokens
from onboarding.text_generation.plan import Candidate, CheckpointPlan, CheckpointUse
from onboarding.text_generation.platforms import GenerationPlatform, gpus
from onboarding.text_generation.spec import TextGenerationSpec


@dataclass(frozen=True, kw_only=True)
class GenerationDeployment(DeployedEndpoint):
    """One endpoint of one environment that generates text; its name is the model's."""

    spec: TextGenerationSpec
    platform: GenerationPlatform
    candidate: Candidate
    """What serves `entry`; without one, what the plan would choose."""
    entry: CheckpointEntry | None
    """None: no checkpoint is built that is accepted and holds the SLO; `problem` says so."""
    built: tuple[CheckpointEntry, ...]
    """Checkpoints in the lock of the keys that the files have now, in the order of the schemes."""
    wanted: tuple[tuple[str, str], ...]
    """Checkpoint key and scheme of those to build: they would hold the SLO, and have no entry."""
    plans: Mapping[str, Candidate]
    """The best way to serve each checkpoint key of the files, built or not."""
    checkpoint: Checkpoint
    """The source's config and headers."""
    inference_ami_version: str | None
    adapters: Mapping[str, str] = field(default_factory=dict)
    """Digest of the files of each LoRA adapter that lies in the tree, by its name."""
    held_by: Mapping[str, str] = field(default_factory=dict)
    """The environment that built a checkpoint which this one is to receive by promotion, by key."""

    @property
    def is_component(self) -> bool:
        """True for each."""
        return True

    @property
    def engine_version(self) -> str:
        """The version of vLLM, which is the image's."""
        return self.platform.engine_version

    @property
    def container_environment(self) -> Mapping[str, str]:
        """The container's environment variables."""
        chosen, config = self.candidate, self.checkpoint.text_config
        graphs = planned_graph_tokens(self.spec, config, gpus().get(chosen.gpu or ""))
        size, version = chosen.tensor_parallel, self.engine_version
        return container_environment(self.spec, size, version, graphs)

    @property
    def checkpoints(self) -> tuple[CheckpointPlan, ...]:
        """Every checkpoint that the files ask for, in the order of the schemes."""
        return tuple(self._checkpoint(key, plan.scheme) for key, plan in self.plans.items())

    def _checkpoint(self, key: str, scheme: str) -> CheckpointPlan:
        entry = next((item for item in self.built if item.checkpoint_key == key), None)
        use: CheckpointUse = "does not hold"
        route = None
        if entry is not None and entry is self.entry:
            use = "serves"
        elif entry is not None:
            use = "accepted" if entry.accepted else "refused"
        elif key in dict(self.wanted):
            use, route = "not built", quantizer_route(self.spec, scheme, self.checkpoint)
        return CheckpointPlan(checkpoint_key=key, scheme=scheme, use=use, route=route)

    @property
    def models(self) -> tuple[str, ...]:
        """The text generator."""
        return (self.name,)

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """The checkpoint that serves; none where none is built that may."""
        if self.entry is None:
            return ()
        key, held_by = self.entry.checkpoint_key, self.held_by.get(self.entry.checkpoint_key)
        return (Artifact(key=key, model=self.name, entry=self.entry, held_by=held_by),)

    @property
    def is_built(self) -> bool:
        """True where a checkpoint serves."""
        return self.entry is not None

    @property
    def plan_key(self) -> str:
        """Digest of all that is served: checkpoint, image, GPU, tensor parallel size, arguments."""
        key = None if self.entry is None else self.entry.checkpoint_key
        return digest(
            {
                "checkpoint": key,
                "image": self.platform.image,
                "engine_version": self.engine_version,
                "gpu": self.candidate.gpu,
                "tensor_parallel": self.candidate.tensor_parallel,
                "environment": dict(self.container_environment),
            }
        )

    @property
    def problem(self) -> str | None:
        """Why nothing can be served, with the way out; None where `entry` is."""
        if self.entry is not None:
            return None
        name, refused = self.name, [entry for entry in self.built if not entry.accepted]
        reasons = "".join(f"; {entry.scheme}: {entry.reason}" for entry in refused)
        if self.wanted:
            schemes = ", ".join(f"{scheme} ({key})" for key, scheme in self.wanted)
            builder = self.environment.promotes_from
            rest = "commit its lock" if builder is None else "commit its lock, then promote it"
            return (
                f"text generator '{name}' has no checkpoint to serve, and {schemes} is not "
                f"built{reasons}; run `roundhouse build --env {builder or self.environment.name} "
                f"--model {name}` and {rest}."
            )
        if len(refused) == len(self.built):
            return (
                f"text generator '{name}' has no checkpoint within its budget{reasons}; add a "
                "format to quantization.schemes, or raise quantization.budget."
            )
        served = ", ".join(entry.scheme for entry in self.built if entry.accepted)
        return (
            f"text generator '{name}' has no checkpoint that holds its SLO: {served} does not on "
            f"any of its instance types{reasons}; name a larger type, or relax the SLO."
        )
