"""The fixtures of engine_build's own tests.

One tiny checkpoint, its wheel, and one whole build of it.
"""

from tests.unit.engine_build.conftest import built, checkpoint, wheel

__all__ = ["built", "checkpoint", "wheel"]
