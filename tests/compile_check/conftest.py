"""The fixtures of engine_build's own tests.

One tiny checkpoint, its wheel, and one whole build of it.
"""

from tests.unit.engine_build.conftest import checkpoint, tiny_build, wheel

__all__ = ["checkpoint", "tiny_build", "wheel"]
