"""Where a checkpoint is built: in CodeBuild on CPUs, or on the GPU that will serve it."""

from __future__ import annotations

from typing import Literal

from onboarding.text_generation.checkpoint import Checkpoint
from onboarding.text_generation.checkpoint_key import is_gated
from onboarding.text_generation.platforms import quantizer_routes, schemes
from onboarding.text_generation.spec import TextGenerationSpec
from onboarding.text_generation.weights import count_weights

QUANTIZER: Literal["quantizer"] = "quantizer"
"""The CodeBuild project on CPUs."""
QUANTIZER_JOB: Literal["quantizer-job"] = "quantizer-job"
"""A SageMaker training job on the instance type of the plan."""
QUANTIZER_IMAGE = "builder-quantizer"
QuantizerRoute = Literal["quantizer", "quantizer-job"]
GIB = 1 << 30


def quantizer_route(
    spec: TextGenerationSpec, scheme: str, checkpoint: Checkpoint
) -> QuantizerRoute:
    """Return where a model's checkpoint is built in one scheme.

    One that is compared with its source is run, so its parameters decide; of others the bytes,
    which lie on the machine's disk twice.
    """
    limits = quantizer_routes()
    if is_gated(spec, scheme, checkpoint.scheme):
        parameters = count_weights(checkpoint, schemes()["bf16"], 1).parameters
        is_small = parameters <= limits.gated_cpu_parameters
    else:
        is_small = checkpoint.bytes <= limits.copied_cpu_gib * GIB
    return QUANTIZER if is_small else QUANTIZER_JOB
