"""The files of the repository that each container image copies."""

from __future__ import annotations

from collections.abc import Mapping

from onboarding.text_generation.checkpoint_key import QUANTIZER_IMAGE

_SIGNATURES = ("onboarding/__init__.py", "onboarding/signature.py")
_ENGINE_MANIFEST = (*_SIGNATURES, "onboarding/manifest.py", "onboarding/values.py")

# Of our code a builder image holds a training job's entry alone: a build brings its own source, so
# that changing engine_build
# needs no new image.
_TRAINING_ENTRY = ("engine_build/training_job.py", "engine_build/image/train")

_SERVER = (
    "container/__init__.py",
    "container/archive.py",
    "container/pytorch/**/*",
    "container/server/**/*",
    "container/tensorrt/**/*",
    "container/triton/heads.py",
    "container/triton/images.py",
    "container/triton/manifest_check.py",
    *_ENGINE_MANIFEST,
)

IMAGE_CONTENTS: Mapping[str, tuple[str, ...]] = {
    "python-server": ("container/Dockerfile.server", *_SERVER, "requirements/server.txt"),
    "python-server-gpu": (
        "container/Dockerfile.server_gpu",
        *_SERVER,
        "requirements/server.txt",
        "requirements/bindings-*.txt",
    ),
    "python-server-baseline": (
        "container/Dockerfile.server_baseline",
        *_SERVER,
        "requirements/server-baseline.txt",
        "requirements/torch-cpu.txt",
    ),
    "python-server-gpu-baseline": (
        "container/Dockerfile.server_gpu_baseline",
        *_SERVER,
        "requirements/server-baseline-gpu.txt",
    ),
    "triton": (
        "container/triton/Dockerfile",
        "container/triton/heads.py",
        "container/triton/images.py",
        "container/triton/manifest_check.py",
        "container/triton_image/**/*",
        "container/server/**/*",
        "container/__init__.py",
        "onboarding/example_row.py",
        *_ENGINE_MANIFEST,
        "requirements/server.txt",
    ),
    "vllm-server": (
        "container/Dockerfile.vllm",
        "container/__init__.py",
        "container/server/__init__.py",
        "container/server/__main__.py",
        "container/server/http/__init__.py",
        "container/server/http/dispatch.py",
        "container/server/http/messages.py",
        "container/server/http/request_reader.py",
        "container/server/http/server.py",
        "container/server/process.py",
        "container/server/settings.py",
        "container/server/supervisor.py",
        "container/server/telemetry/__init__.py",
        "container/server/telemetry/failure_log.py",
        "container/server/types.py",
        "container/server/upstream.py",
        "container/server/vllm/**/*",
        *_ENGINE_MANIFEST,
    ),
    "builder-cpu": (
        "engine_build/image/cpu/Dockerfile",
        "engine_build/image/cpu/**/*",
        "requirements/builder.txt",
        "requirements/torch-cpu.txt",
        *_TRAINING_ENTRY,
    ),
    "builder-gpu": (
        "engine_build/image/gpu/Dockerfile",
        "engine_build/image/gpu/**/*",
        "requirements/builder.txt",
        "requirements/bindings-*.txt",
        "requirements/torch-cpu.txt",
        *_TRAINING_ENTRY,
    ),
    QUANTIZER_IMAGE: (
        "engine_build/image/quantizer/Dockerfile",
        "requirements/quantizer.txt",
        "requirements/torch-cuda.txt",
        "requirements/vllm-gpu.txt",
        *_TRAINING_ENTRY,
    ),
}
"""Every image, and the patterns of its Dockerfile and of the repository's files that this copies.

A build of the image brings no other file, and its tag is their digest.
"""
