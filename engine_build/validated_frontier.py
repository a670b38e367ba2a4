"""Prints a search's frontier with the scores of the validation split.

`python -m engine_build.validated_frontier` takes the arguments of `python -m engine_build` and a
work folder where a build with a sensitivity_search has been; what is there is not made again. No
engine depends on it: it is for documents.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack

from engine_build.__main__ import build_context
from engine_build.context import BuildContext
from engine_build.errors import BuildError, InputRefused
from engine_build.log import Log
from engine_build.options import options
from engine_build.pipeline import NETWORK_STEPS, run_steps
from engine_build.quantization.sensitivity import Point, format_points, search_on
from engine_build.steps.quantize import quantization_of, validation_split


def main(arguments: Sequence[str]) -> int:
    """Exit codes as of a build."""
    log = Log(sys.stderr)
    try:
        with ExitStack() as stack:
            points = validated_points(build_context(options(arguments), {}, log, stack))
        print(format_points(points))
        return 0
    except BuildError as error:
        log.line(f"FAILED: {error}")
        return error.exit_code


def validated_points(context: BuildContext) -> list[Point]:
    """Each point of the search, on the validation samples. Raises InputRefused without a search."""
    state = run_steps(context, NETWORK_STEPS)
    facts = state.networks["int8"].facts if "int8" in state.networks else {}
    if "frontier" not in facts:
        raise InputRefused(
            f"{context.request.model.name} asks for no sensitivity_search, so there is no "
            "frontier; add one."
        )
    quantization = quantization_of(context, state.networks["float"], state.encoder)
    split = validation_split(context.request, state.networks["float"])
    search = search_on(quantization.calibrated_network(), split, state.encoder)
    return [search.point(facts["leaving"][-point["int8_layers"] :]) for point in facts["frontier"]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
