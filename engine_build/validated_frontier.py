"""Prints a search's frontier with the scores of the validation split.

`python -m engine_build.validated_frontier` takes the arguments of `python -m engine_build` and a
work folder where a build with a sensitivity_search has been; what is there is not made again. No
engine depends on it: it is for documents.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from engine_build.context import BuildContext
from engine_build.errors import BuildError, InputRefused
from engine_build.log import Log
from engine_build.options import options
from engine_build.quantization.sensitivity import Point, format_points, search_on
from engine_build.request import build_request
from engine_build.runner import ProcessRunner
from engine_build.settings import Settings
from engine_build.steps.prepare import prepare
from engine_build.steps.quantize import quantization_of, validation_split
from engine_build.work_folder import WorkFolder


def main(arguments: Sequence[str]) -> int:
    """Exit codes as of a build."""
    log = Log(sys.stderr)
    try:
        wanted = options(arguments)
        with WorkFolder(wanted.out) as work:
            context = BuildContext(
                request=build_request(wanted, log),
                settings=Settings(),
                log=log,
                runner=ProcessRunner(log),
                work=work,
                publish_to=None,
                code_root=Path(__file__).resolve().parents[2],
                now=str,
            )
            points = validated_points(context)
        print(format_points(points))
        return 0
    except BuildError as error:
        log.line(f"FAILED: {error}")
        return error.exit_code


def validated_points(context: BuildContext) -> list[Point]:
    """Each point of the search, on the validation samples. Raises InputRefused without a search."""
    prepared = prepare(context)
    facts = prepared.networks["int8"].facts if "int8" in prepared.networks else {}
    if "frontier" not in facts:
        raise InputRefused(
            f"{context.request.model.name} asks for no sensitivity_search, so there is no "
            "frontier; add one."
        )
    quantization = quantization_of(context, prepared.networks["float"], prepared.encoder)
    split = validation_split(context.request, prepared.networks["float"])
    search = search_on(quantization.calibrated_network(), split, prepared.encoder)
    return [search.point(facts["leaving"][-point["int8_layers"] :]) for point in facts["frontier"]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
