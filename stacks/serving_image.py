"""The image that answers, by server."""

from __future__ import annotations

from onboarding.values import Server

IMAGE_OF_SERVER: dict[Server, str] = {"python": "python-server", "triton": "triton"}
