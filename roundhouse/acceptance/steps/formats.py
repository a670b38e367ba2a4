"""Compares what NVIDIA's programs printed and wrote with the forms that our parsers expect."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine_build.errors import BuildError
from engine_build.quantization.calibration_cache import CACHE_NAME, parse_cache, version_digits
from onboarding.lock import read_lock
from onboarding.names import artifact_bucket, network_path
from roundhouse.acceptance import build_output
from roundhouse.acceptance.assumptions import Assumption, Place
from roundhouse.acceptance.build_logs import build_logs
from roundhouse.acceptance.build_output import Reading
from roundhouse.acceptance.setup import Setup
from roundhouse.acceptance.steps.step import AcceptanceContext, AcceptanceStep
from roundhouse.aws.clients import object_bytes


def assumptions(setup: Setup) -> tuple[Assumption, ...]:
    """Return the form of every output that is parsed."""
    version = str(setup.platform.tensorrt)
    keys = ", ".join(sorted(build_output.KNOWN_LAYER_KEYS))
    rows = {
        "host": ("nvidia-smi prints name, driver and compute capability", "three fields"),
        "driver": ("the builder's driver", f"{setup.platform.minimum_driver} or newer"),
        "banner": ("trtexec's first line names its TensorRT", version),
        "plan-version": ("--getPlanVersionOnly names the plan's TensorRT", version),
        "median": ("trtexec's summary has a median latency", "a number"),
        "inspector": ("--exportLayerInfo has the keys that we read", "tensors and layers"),
        "layers": ("each detailed layer has the keys that we read", keys),
    }
    found = [
        Assumption(name=f"formats.{name}", says=says, expected=expected, place=Place.gpu)
        for name, (says, expected) in rows.items()
    ]
    if any(model.name == "cached" for model in setup.models):
        found.append(
            Assumption(
                name="formats.calibration-cache",
                says="TensorRT's calibrator writes a cache in the form that we read",
                expected=f"TRT-{version_digits(version)}-EntropyCalibration2",
                place=Place.gpu,
            )
        )
    return tuple(found)


def run(context: AcceptanceContext) -> str:
    """Keep every build's output, and read what a GPU's holds."""
    logs = dict(build_logs(context.session))
    for name, text in logs.items():
        context.evidence.write_text(f"logs/{name}.log", text)
    if context.setup.has_gpu:
        _compare(context, {name: text for name, text in logs.items() if "nvidia-smi" in text})
        _compare_cache(context)
    return f"{len(logs)} logs kept"


def _compare(context: AcceptanceContext, logs: Mapping[str, str]) -> None:
    """Record what the parsers read of every build; one log that differs counts."""
    version = str(context.setup.platform.tensorrt)
    least = context.setup.platform.minimum_driver or 0
    for name, log in logs.items():
        output = build_output.shown_output(log)
        host = build_output.read_host(output)
        _record(context, "host", host, lambda value: True, "three fields")
        if host.value is not None:
            driver = str(host.value.driver)
            is_new = int(driver.split(".")[0]) >= least
            context.findings.record("formats.driver", driver, holds=is_new)
        same = version.__eq__ if version.count(".") == 3 else _begins(version)
        _record(context, "banner", build_output.read_banner(output), same)
        _record(context, "plan-version", build_output.read_plan_version(output), same)
        _record(context, "median", build_output.read_median(output), lambda value: True)
        for number, text in enumerate(build_output.inspector_texts(log)):
            context.evidence.write_text(f"inspector/{name}-{number}.json", text)
            _compare_inspection(context, text)


def _compare_inspection(context: AcceptanceContext, text: str) -> None:
    reading = build_output.read_inspection(text)
    _record(context, "inspector", reading, lambda value: value.layers > 0, "tensors and layers")
    if reading.fault is None:
        keys = build_output.layer_keys(text)
        has_all = keys >= build_output.KNOWN_LAYER_KEYS
        context.findings.record("formats.layers", ", ".join(sorted(keys)), holds=has_all)


def _begins(version: str) -> Callable[[object], bool]:
    return lambda value: str(value).startswith(version)


def _record(
    context: AcceptanceContext,
    name: str,
    reading: Reading,
    holds: Callable[..., bool],
    found: str | None = None,
) -> None:
    """Record a reading; `found` says it in a word where the value is a whole."""
    if reading.fault is not None:
        text = f"{reading.fault}: {reading.text[:200]!r}"
        context.findings.record(f"formats.{name}", text, holds=False)
        return
    text = str(reading.value) if found is None else found
    context.findings.record(f"formats.{name}", text, holds=bool(holds(reading.value)))


def _compare_cache(context: AcceptanceContext) -> None:
    """Read the calibration cache that the build left beside its network."""
    if "cached" not in context.built:
        return
    session = context.session
    lock = read_lock(session.paths.tree / session.environment.locks, "cached")
    (entry,) = lock.engines.values()
    key = network_path(entry.manifest.network_keys["int8"], CACHE_NAME)
    name = "formats.calibration-cache"
    data = object_bytes(session.clients("s3"), artifact_bucket(session.environment), key)
    if data is None:
        context.findings.record(name, f"no object {key}", holds=False)
        return
    context.evidence.write_text("calibration.cache", data.decode("utf-8", "replace"))
    try:
        cache = parse_cache(data, key)
    except BuildError as error:
        context.findings.record(name, str(error), holds=False)
        return
    context.findings.record(name, f"TRT-{cache.version}-{cache.algorithm}")


FORMATS = AcceptanceStep(
    name="formats",
    title="Reading the builds' output",
    limit_minutes=5,
    assumptions=assumptions,
    run=run,
)
