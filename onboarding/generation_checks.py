"""Cases of a tree's text generators, and their rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from onboarding.dataset import is_inside
from onboarding.environment_view import EnvironmentView
from onboarding.fault import Fault
from onboarding.promotion import PROMOTED
from onboarding.rules import (
    generation_placement_rules,
    generation_serving_rules,
    generation_source_rules,
)
from onboarding.rules.generation_case import GenerationCase, GenerationPlacementCase
from onboarding.rules.rule import apply_rules, rules_of
from onboarding.text_generation.checkpoint import (
    CONFIGURATION,
    Checkpoint,
    CheckpointError,
    read_folder,
    read_headers_file,
)
from onboarding.text_generation.spec import (
    GenerationSourceSpec,
    TextGenerationSpec,
)
from onboarding.validation import Checked

RULES = rules_of(GenerationCase, generation_source_rules, generation_serving_rules)
PLACEMENT_RULES = rules_of(GenerationPlacementCase, generation_placement_rules)


def generator_faults(
    generators: Mapping[str, Checked[TextGenerationSpec]], root: Path
) -> Iterator[Fault]:
    """Return the faults of the files themselves, or with an environment's overrides on them."""
    for file in generators.values():
        yield from file.faults
        yield from apply_rules(RULES, generation_case(file, root), file.sections)


def generator_placement_faults(view: EnvironmentView, root: Path) -> Iterator[Fault]:
    """Return the faults of an environment's text generators on its GPUs, AMI and region.

    None of a promotion's exported files, which were checked when it was made: a platform row that
    changes afterwards refuses nothing that is served.
    """
    if (root / PROMOTED).is_dir():
        return
    for case in placement_cases(view, root):
        sections = view.generators[Path(case.model.document.file).stem].sections
        yield from apply_rules(PLACEMENT_RULES, case, sections)


def placement_cases(view: EnvironmentView, root: Path) -> Iterator[GenerationPlacementCase]:
    """Return every text generator of an environment."""
    for file in view.generators.values():
        yield GenerationPlacementCase(
            model=generation_case(file, root), environment=view.environment
        )


def generation_case(file: Checked[TextGenerationSpec], root: Path) -> GenerationCase:
    """Return one text generator with its checkpoint's headers, where they lie in the tree."""
    return GenerationCase(
        spec=file.spec,
        document=file.document,
        root=root,
        checkpoint=read_checkpoint(file.spec.source, root) if "source" in file.sections else None,
    )


def read_checkpoint(
    source: GenerationSourceSpec, root: Path
) -> Checkpoint | CheckpointError | None:
    """Return the headers of a source, or what is wrong with them; None: not in the tree."""
    try:
        if source.headers is not None:
            if not is_inside(root, source.headers):
                return CheckpointError("lies outside the onboarding root", "copy it there")
            return read_headers_file(root / source.headers)
        folder = source.checkpoint
        if folder is None or "://" in folder or not is_inside(root, folder):
            return None
        path = root / folder / (source.path or "")
        if not path.is_dir():
            return None
        if not (path / CONFIGURATION).is_file():
            return CheckpointError(f"has no {CONFIGURATION}", "save it with transformers")
        return read_folder(path)
    except CheckpointError as error:
        return error
