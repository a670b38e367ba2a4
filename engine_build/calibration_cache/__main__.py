"""`python -m engine_build.calibration_cache CACHE --network float.onnx --out qdq.onnx [--exclude
NODE ...]`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, TextIO

from engine_build.calibration_cache.cache import read_cache
from engine_build.errors import BuildError, InputRefused

DESCRIPTION = (
    "Turns a calibration cache of TensorRT before 11 into a symmetric Q/DQ network, which TensorRT 10 and 11 take: activations "
    "keep the cache's scales, weights get one for each output channel. The network is checked, and run once in ONNX Runtime."
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputRefused(
            f"{message}; run `python -m engine_build.calibration_cache --help` for the options."
        )


def main(arguments: Sequence[str], stdout: TextIO, stderr: TextIO) -> int:
    """Exit codes: 0 written; 1 and 5 as in errors.py."""
    try:
        print("\n".join(migrate(_parsed(arguments))), file=stdout)
        return 0
    except BuildError as error:
        print(f"FAILED: {error}", file=stderr)
        return error.exit_code
    except OSError as error:
        print(
            f"FAILED: {error.filename}: {error.strerror}; repair that, and run the same command again.",
            file=stderr,
        )
        return InputRefused.exit_code


def migrate(options: argparse.Namespace) -> tuple[str, ...]:
    """Writes the network; tells what became of the cache, in lines. Raises BuildError."""
    cache = read_cache(options.cache)
    if not options.network.is_file():
        raise InputRefused(
            f"--network {options.network} is no file; name the float network that the cache was made of."
        )
    # The numeric libraries load here, so that a mistyped command is refused at once.
    from engine_build.calibration_cache.migration import migrated, write_network
    from engine_build.runtimes.ort import version
    from engine_build.sources.onnx_source import read_model

    result = migrated(read_model(options.network), cache, options.exclude)
    write_network(result.network, options.out)
    origin = f"{options.cache.name} of TensorRT {cache.version}, {cache.algorithm}"
    written = f"{options.out}: {len(result.int8)} layers in INT8, their inputs by {origin}; runs in ONNX Runtime {version()}."
    return (
        written,
        *_told("left float, the cache has no scale of their input", result.without_scale),
        *_told("left float, excluded", result.excluded),
        *_told("tensors of the cache that are not in the network", result.not_in_network),
    )


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(
        prog="python -m engine_build.calibration_cache", description=DESCRIPTION, allow_abbrev=False
    )
    parser.add_argument("cache", type=Path, metavar="CACHE", help="the calibration cache")
    parser.add_argument(
        "--network", type=Path, required=True, help="the float network, ONNX, that it was made of"
    )
    parser.add_argument("--out", type=Path, required=True, help="the Q/DQ network, ONNX, to write")
    parser.add_argument(
        "--exclude", nargs="+", default=[], metavar="NODE", help="nodes that stay float"
    )
    return parser.parse_args(arguments)


def _told(what: str, names: Sequence[str]) -> tuple[str, ...]:
    return (f"{what} ({len(names)}):", *(f"  {name}" for name in names)) if names else ()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], sys.stdout, sys.stderr))
