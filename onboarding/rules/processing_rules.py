"""Rules of user-defined preprocessing and postprocessing: the file, its digest, its code."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from onboarding.code_scan import code_problems
from onboarding.dataset import is_inside
from onboarding.example_row import row_problem
from onboarding.fault import Fault
from onboarding.processing_spec import PostprocessingSpec, PreprocessingSpec
from onboarding.rules.rule import ModelCase, rule, rules_of

FUNCTIONS = {"preprocessing": "preprocess", "postprocessing": "postprocess"}
LARGEST_BYTES = 1 << 20


@rule("serving")
def code_is_pinned_and_can_be_read(case: ModelCase) -> Iterator[Fault]:
    """A file of the onboarding tree by its digest, so that a pull request shows its change."""
    for key, spec in _processing(case):
        path = ("serving", key)
        data = _code(case, spec.file)
        if data is None:
            yield case.document.at(*path, "file").fault(
                f"'serving.{key}.file' is no Python file under the onboarding root",
                value=spec.file,
                allowed=f"a file that ends in .py, of at most {LARGEST_BYTES >> 20} MiB",
                way_out="add the file, such as models/code/clean_text.py, or correct the path",
            )
            continue
        digest = hashlib.sha256(data).hexdigest()
        add = {"add": f"    sha256: {digest}"}
        if spec.sha256 is None:
            fault = case.document.at(*path, "file").fault(
                f"unpinned code: 'serving.{key}.file' has no digest",
                value=spec.file,
                way_out="add the line below",
            )
            yield fault.model_copy(update=add)
        elif spec.sha256 != digest:
            fault = case.document.at(*path, "sha256").fault(
                f"'serving.{key}.sha256' is not that of {spec.file}",
                value=spec.sha256,
                way_out="review the file, and write the line below",
            )
            yield fault.model_copy(update=add)


@rule("serving")
def code_can_run_in_the_image(case: ModelCase) -> Iterator[Fault]:
    """Syntax, the function, and imports that the images have; nothing of it runs here."""
    for key, spec in _processing(case):
        data = _code(case, spec.file)
        problems = () if data is None else code_problems(data, FUNCTIONS[key])
        for line, problem, way_out in problems:
            yield case.document.at("serving", key, "file").fault(
                f"'serving.{key}.file': {spec.file}, line {line}, {problem}", way_out=way_out
            )


@rule("serving")
def processed_tensors_are_named_once(case: ModelCase) -> Iterator[Fault]:
    """Two tensors of one name could not be told apart."""
    for key, spec in _processing(case):
        field = "inputs" if isinstance(spec, PreprocessingSpec) else "outputs"
        names = [tensor.name for tensor in getattr(spec, field)]
        for index, name in enumerate(names):
            if name in names[:index]:
                yield case.document.at("serving", key, field, index, "name").fault(
                    f"'serving.{key}.{field}' names a tensor twice",
                    value=name,
                    way_out="rename one of the two",
                )
        for index, tensor in enumerate(getattr(spec, field)):
            if 0 in tensor.dims:
                yield case.document.at("serving", key, field, index, "dims").fault(
                    f"'serving.{key}.{field}[{index}].dims' has a size of 0",
                    value=list(tensor.dims),
                    allowed="sizes from 1 on, or -1 for any",
                    way_out="write [1] for one value a row",
                )


@rule("serving")
def examples_are_rows_of_their_inputs(case: ModelCase) -> Iterator[Fault]:
    """The build and every health request send them; one of two inputs would be no request."""
    spec = case.spec.serving.preprocessing
    inputs = () if spec is None else spec.inputs
    given = [tensor for tensor in inputs if tensor.example is not None]
    for index, tensor in enumerate(inputs):
        place = case.document.at("serving", "preprocessing", "inputs", index, "example")
        where = f"'serving.preprocessing.inputs[{index}].example'"
        if tensor.example is None and given:
            yield place.fault(
                f"{where} is missing, and {given[0].name} has one",
                way_out="give every input an example, or none",
            )
        elif tensor.example is not None:
            problem = row_problem(tensor.example, tensor.datatype, tensor.dims)
            if problem is not None:
                yield place.fault(
                    f"{where} is no row of {tensor.name}: {problem}",
                    allowed=f"{tensor.datatype} of shape {list(tensor.dims)}, -1 for any size",
                    way_out="write one row, or correct dims",
                )


def _processing(
    case: ModelCase,
) -> Iterator[tuple[str, PreprocessingSpec | PostprocessingSpec]]:
    serving = case.spec.serving
    if serving.preprocessing is not None:
        yield "preprocessing", serving.preprocessing
    if serving.postprocessing is not None:
        yield "postprocessing", serving.postprocessing


def _code(case: ModelCase, file: str) -> bytes | None:
    """Return a file's bytes; None where there is no such file."""
    path = case.datasets.root / file
    if not file.endswith(".py") or not is_inside(case.datasets.root, file):
        return None
    try:
        return path.read_bytes() if path.stat().st_size <= LARGEST_BYTES else None
    except (OSError, ValueError):
        return None


RULES = rules_of(globals())
