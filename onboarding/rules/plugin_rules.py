"""Rules of TensorRT plugins: pinned libraries that every server of theirs can load."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from onboarding.dataset import is_inside
from onboarding.document import Place
from onboarding.fault import Fault
from onboarding.nearest import comma_list
from onboarding.plugin_spec import PluginSpec
from onboarding.rules.rule import EngineCase, ModelCase, rule, rules_of
from onboarding.shared_library import SharedLibrary, tensorrt_misfit

PLUGINS = ("engine", "plugins")


@rule("engine", "source")
def plugins_are_of_an_onnx_file(case: ModelCase) -> Iterator[Fault]:
    """Nothing exports a checkpoint with operators that ONNX lacks."""
    if case.spec.engine.plugins and case.spec.source.onnx is None:
        yield case.document.at_change(PLUGINS, ("source",)).fault(
            "'engine.plugins' is for ONNX files, whose nodes name the custom operators",
            allowed="source.onnx",
            way_out="export the network with them, and name the file as source.onnx",
        )


@rule("engine")
def plugin_names_and_operators_are_distinct(case: ModelCase) -> Iterator[Fault]:
    """The archive carries each library by its name, and TensorRT finds an operator once."""
    plugins = case.spec.engine.plugins
    rows = (
        ("file name", [plugin.name for plugin in plugins]),
        ("operator", [name for plugin in plugins for name in plugin.operators]),
    )
    for kind, names in rows:
        for name in (name for name, count in Counter(names).items() if count > 1):
            yield case.document.at(*PLUGINS).fault(
                f"'engine.plugins' has one {kind} twice",
                value=name,
                way_out="name each library and each operator once",
            )


@rule("engine")
def plugins_have_no_lean_runtime(case: ModelCase) -> Iterator[Fault]:
    """The runtime inside a version-compatible plan sees no library that registers itself."""
    if case.spec.engine.plugins and case.spec.engine.version_compatible:
        yield case.document.at_change(("engine", "version_compatible"), PLUGINS).fault(
            "'engine.version_compatible' is not for networks with plugins, which are compiled for "
            "one TensorRT",
            value=True,
            way_out="take one of the two out",
        )


@rule("engine")
def plugins_are_pinned_libraries(case: ModelCase) -> Iterator[Fault]:
    """A library of the tree is there, is a library, and has the digest; S3's are read by builds."""
    root = case.datasets.root
    for index, plugin in enumerate(case.spec.engine.plugins):
        place = case.document.at(*PLUGINS, index, "file")
        library = case.datasets.shared_library(plugin.file)
        if "://" in plugin.file or not is_inside(root, plugin.file):
            if not re.fullmatch(r"s3://[^/]+/.+", plugin.file):
                yield place.fault(
                    "a plugin's 'file' is neither in S3 nor under the onboarding root",
                    value=plugin.file,
                    allowed="s3://BUCKET/KEY, or a path relative to the onboarding root",
                    way_out="copy the library to one of these",
                )
        elif library is None:
            yield place.fault(
                "a plugin's 'file' is no file under the onboarding root",
                value=plugin.file,
                way_out="add the library, or correct the path",
            )
        elif isinstance(library, str):
            yield place.fault(
                f"a plugin's 'file' {library}",
                value=plugin.file,
                allowed="a shared library for 64-bit Linux",
                way_out="name the library that the compiler made with -shared",
            )
        elif library.sha256 != plugin.sha256:
            yield case.document.at(*PLUGINS, index, "sha256").fault(
                f"a plugin's 'sha256' is not that of {plugin.file}",
                value=plugin.sha256,
                allowed=library.sha256,
                way_out="check which is right",
            )


@rule("engine")
def plugins_fit_the_platform(case: EngineCase) -> Iterator[Fault]:
    """A library is for one processor and one major version of TensorRT."""
    if case.platform.tensorrt is None:
        return
    for place, plugin in _on_gpu(case):
        library = case.library(plugin.file)
        misfit = (
            tensorrt_misfit(library, case.platform.tensorrt)
            if isinstance(library, SharedLibrary)
            else None
        )
        if misfit is not None:
            yield place.fault(
                f"plugin {plugin.name} {misfit.what}, on platform {case.platform.name}",
                value=misfit.value,
                allowed=misfit.allowed,
                way_out=misfit.way_out,
            )


@rule("engine")
def plugins_need_an_explicit_network(case: EngineCase) -> Iterator[Fault]:
    """The calibrator reads the network in standard operators, and its ranges are of those."""
    engine = case.spec.engine
    mode = case.platform.quantization if engine.quantization is None else engine.quantization
    if any(_on_gpu(case)) and mode != "explicit":
        yield case.document.at_change(("engine", "quantization"), PLUGINS).fault(
            f"'engine.plugins' needs quantization explicit, and this engine's is {mode}",
            value=mode,
            allowed="explicit",
            way_out="choose `quantization: explicit`",
        )


@rule("engine")
def plugins_are_loaded_by_the_server(case: EngineCase) -> Iterator[Fault]:
    """Triton loads libraries once, at its start, and runs their code: for one model, if signed."""
    if case.server != "triton" or not any(_on_gpu(case)):
        return
    if case.multi_model:
        yield case.document.at_change(("endpoint",), PLUGINS).fault(
            "'engine.plugins' cannot be loaded by a multi-model endpoint: Triton takes libraries "
            "at its start, and models come later",
            value=comma_list(plugin.name for plugin in case.spec.engine.plugins),
            way_out="give the model an endpoint of its own",
        )
    elif not case.has_signers:
        yield case.document.at_change(PLUGINS, ("serving", "server")).fault(
            "'engine.plugins' with Triton needs `trusted_signers` in the environment: nothing else "
            "checks a library before Triton runs its code",
            value="server: triton",
            allowed="server: python, which checks every digest itself, or signed engines",
            way_out="add `trusted_signers` to the environment, or `serving: {server: python}`",
        )


def _on_gpu(case: EngineCase) -> Iterator[tuple[Place, PluginSpec]]:
    """The plugins of an engine; ONNX Runtime runs the operators' functions instead."""
    if case.instance.is_gpu:
        for index, plugin in enumerate(case.spec.engine.plugins):
            yield case.document.at_change((*PLUGINS, index, "file"), case.instance_path), plugin


ENGINE_RULES = (
    plugins_fit_the_platform,
    plugins_need_an_explicit_network,
    plugins_are_loaded_by_the_server,
)
RULES = tuple(item for item in rules_of(globals()) if item not in ENGINE_RULES)
