"""The fetch and load steps: what a store has of the float network, or the pinned source.

The source is a file or folder on the disk, and of a checkpoint the model in PyTorch, which is
exported and gives the reference. Libraries of custom operators are fetched too, and their digest,
processor and TensorRT checked.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from engine_build.errors import PublishFailed, SourceFault
from engine_build.request import BuildContext, plugin_path
from engine_build.sources.network import fetch
from engine_build.sources.source import FetchContext, fetch_context, source_name, unreadable
from engine_build.steps.reference import stored_reference
from engine_build.steps.step import BuildState
from onboarding.model_spec import PluginSpec
from onboarding.shared_library import read_shared_library, tensorrt_misfit
from onboarding.source_spec import S3_SCHEME, SourceSpec, split_s3
from onboarding.values import IMAGES, Task


def run(context: BuildContext, state: BuildState) -> None:
    """Find the float network and the reference, or fetch the source. Raises SourceFault."""
    request = context.request
    if request.plugins:
        fetch_plugins(context)
    network = state.network_store.find("float", request.network_keys["float"])
    if network is not None:
        state.networks["float"] = network
        state.reference = stored_reference(context.stores, request)
        # A program is exported of the source itself.
        if state.reference is not None and request.library != "pytorch":
            return
    with context.log.step("fetch", source_name(request.model.source)):
        state.source = fetch(request.model.source, fetching_of(context, "source"))
    reference = request.model.accuracy.reference
    if reference is not None:
        source = SourceSpec(onnx=reference.onnx, sha256=reference.sha256)
        with context.log.step("fetch", f"{reference.onnx}, the accuracy's reference"):
            state.reference_source = fetch(source, fetching_of(context, "reference-source"))


def fetch_plugins(context: BuildContext) -> None:
    """Keep the libraries of custom operators where `context.plugins` has them.

    Raises SourceFault.
    """
    request, fetching = context.request, fetching_of(context, "plugins")
    names = [f"{plugin.name} ({', '.join(plugin.operators)})" for plugin in request.plugins]
    with context.log.step("fetch plugins", ", ".join(names)):
        for plugin in request.plugins:
            path = fetch_plugin(plugin, request.runtime.version, fetching)
            context.work.store.upload(path, plugin_path(plugin))


def fetching_of(context: BuildContext, folder: str) -> FetchContext:
    """Return what fetching into a scratch folder of that name needs."""
    request = context.request
    return fetch_context(context, request.root, request.region, request.source_secrets, folder)


def fetch_plugin(plugin: PluginSpec, tensorrt: str, fetching: FetchContext) -> Path:
    """Return a copy of a plugin's library in a folder; nothing loads it. Raises SourceFault."""
    path, root = fetching.folder / plugin.name, fetching.root
    if plugin.file.startswith(S3_SCHEME):
        name, key = split_s3(plugin.file)
        try:
            is_there = fetching.bucket(f"{S3_SCHEME}{name}").download(key, path)
        except PublishFailed as error:
            raise unreadable(error) from error
        if not is_there:
            raise SourceFault(
                f"plugin {plugin.file} does not exist; upload it, or correct the model file."
            )
    elif not (root / plugin.file).is_file():
        raise SourceFault(
            f"plugin {plugin.file} is no file under {root}; add it, or correct the model file."
        )
    else:
        shutil.copyfile(root / plugin.file, path)
    _check(plugin, path, tensorrt)
    return path


def _check(plugin: PluginSpec, path: Path, tensorrt: str) -> None:
    try:
        library = read_shared_library(path)
    except ValueError as error:
        raise SourceFault(
            f"plugin {plugin.file} {error}; name the library that the compiler made with -shared."
        ) from error
    if library.sha256 != plugin.sha256:
        raise SourceFault(
            f"plugin {plugin.file} has sha256 {library.sha256}, but the model file pins "
            f"{plugin.sha256}; check which is right."
        )
    misfit = tensorrt_misfit(library, tensorrt)
    if misfit is not None:
        raise SourceFault(f"plugin {plugin.file} {misfit}.")


WITHOUT_LIBRARY: tuple[Task, ...] = ("text-classification", "token-classification")
"""Tasks of texts whose reference is the model in PyTorch alone."""


def load(context: BuildContext, state: BuildState) -> None:
    """Load a fetched checkpoint in float32. Raises SourceFault."""
    if state.source is None:
        return
    with context.log.step("load", "the source model in PyTorch, float32"):
        # torch and transformers take seconds to import; builds of known networks never need them.
        from engine_build.sources.checkpoint import refuse_other_tokens
        from engine_build.sources.source_model import SourceModel

        if context.request.model.task == IMAGES:
            from engine_build.sources.source_model import ImageModel

            state.model = ImageModel(state.source)
            return
        assert context.request.longest_sequence is not None
        state.model = SourceModel(
            state.source,
            longest=context.request.longest_sequence,
            task=context.request.model.task,
        )
        if context.request.model.task in WITHOUT_LIBRARY:
            # Other tasks are compared with a library's answers, which have its own tokens.
            texts = [text for text in context.request.validation.values if isinstance(text, str)]
            refuse_other_tokens(state.model.tokenizer, state.model.folder, texts)
