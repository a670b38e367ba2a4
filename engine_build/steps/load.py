"""The load step: the checkpoint in PyTorch, which is exported and gives the reference."""

from __future__ import annotations

from engine_build.context import BuildContext
from engine_build.steps.step import BuildState, Step
from onboarding.values import IMAGES, Task

WITHOUT_LIBRARY: tuple[Task, ...] = ("text-classification", "token-classification")
"""Tasks of texts whose reference is the model in PyTorch alone."""


def run(context: BuildContext, state: BuildState) -> None:
    """Load a fetched checkpoint in float32. Raises SourceFault."""
    if state.source is None:
        return
    with context.log.step("load", "the source model in PyTorch, float32"):
        # torch and transformers take seconds to import; builds of known networks never need them.
        from engine_build.sources.source_model import SourceModel

        if context.request.model.task == IMAGES:
            from engine_build.sources.image_model import ImageModel

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
            texts = context.request.validation.values
            state.model.refuse_other_tokens([text for text in texts if isinstance(text, str)])


LOAD = Step(name="load", run=run, applies=lambda context: context.request.model.source.onnx is None)
