"""Rules of a user's own code: TensorRT plugins, and preprocessing and postprocessing."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections import Counter
from collections.abc import Iterator

from onboarding.dataset import Datasets, is_inside
from onboarding.example_row import row_problem
from onboarding.fault import Fault, comma_list
from onboarding.model_spec import ModelSpec, PluginSpec
from onboarding.rules.cases import EngineCase
from onboarding.rules.source_rules import file_faults
from onboarding.serving_spec import PostprocessingSpec, PreprocessingSpec
from onboarding.shared_library import SharedLibrary, tensorrt_misfit
from onboarding.validation import Checked

PLUGINS = "engine.plugins"
FUNCTIONS = {"preprocessing": "preprocess", "postprocessing": "postprocess"}
LARGEST_BYTES = 1 << 20


def plugins_are_of_an_onnx_file(model: Checked[ModelSpec], datasets: Datasets) -> Iterator[Fault]:
    """Nothing exports a checkpoint with operators that ONNX lacks."""
    if model.spec.engine.plugins and model.spec.source.onnx is None:
        yield model.fault(
            PLUGINS,
            "is for ONNX files, whose nodes name the custom operators",
            allowed="source.onnx",
            way_out="export the network with them, and name the file as source.onnx",
            beside=["source"],
        )


def plugins_are_pinned_libraries(model: Checked[ModelSpec], datasets: Datasets) -> Iterator[Fault]:
    """A library of the tree is there, is a library, and has the digest; S3's are read by builds.

    TensorRT finds each library and operator once, and none inside a version-compatible plan.
    """
    plugins = model.spec.engine.plugins
    named = {
        "file name": [plugin.name for plugin in plugins],
        "operator": [name for plugin in plugins for name in plugin.operators],
    }
    for kind, names in named.items():
        for name in (name for name, count in Counter(names).items() if count > 1):
            yield model.fault(
                PLUGINS,
                f"has one {kind} twice",
                value=name,
                way_out="name each library and each operator once",
            )
    if plugins and model.spec.engine.version_compatible:
        yield model.fault(
            "engine.version_compatible",
            "is not for networks with plugins, which are compiled for one TensorRT",
            way_out="take one of the two out",
            beside=[PLUGINS],
        )
    for index, plugin in enumerate(plugins):
        path, library = f"{PLUGINS}[{index}]", datasets.shared_library(plugin.file)
        if isinstance(library, str):
            yield model.fault(
                f"{path}.file",
                library,
                allowed="a shared library for 64-bit Linux",
                way_out="name the library that the compiler made with -shared",
            )
        elif library is not None and library.sha256 != plugin.sha256:
            yield model.fault(
                f"{path}.sha256",
                f"is not that of {plugin.file}",
                allowed=library.sha256,
                way_out="check which is right",
            )
        elif library is None:
            yield from file_faults(model, datasets.root, f"{path}.file", plugin.file)


def plugins_fit_the_platform(case: EngineCase) -> Iterator[Fault]:
    """A library is for one processor and one major version of TensorRT."""
    for path, plugin in _on_gpu(case):
        library = case.datasets.shared_library(plugin.file)
        if case.platform.tensorrt is None or not isinstance(library, SharedLibrary):
            continue
        misfit = tensorrt_misfit(library, case.platform.tensorrt)
        if misfit is not None:
            yield case.model.at(path, case.instance_path).fault(
                f"plugin {plugin.name} {misfit.what}, on platform {case.platform.name}",
                value=misfit.value,
                allowed=misfit.allowed,
                way_out=misfit.way_out,
            )


def plugins_are_loaded(case: EngineCase) -> Iterator[Fault]:
    """The calibrator knows standard operators alone; Triton loads libraries once, at its start."""
    engine = case.model.spec.engine
    mode = case.platform.quantization if engine.quantization is None else engine.quantization
    if not any(_on_gpu(case)):
        return
    if mode != "explicit":
        yield case.model.at("engine.quantization", PLUGINS).fault(
            f"'{PLUGINS}' needs quantization explicit, and this engine's is {mode}",
            value=mode,
            allowed="explicit",
            way_out="choose `quantization: explicit`",
        )
    if case.server == "triton" and case.multi_model:
        yield case.model.at("endpoint", PLUGINS).fault(
            f"'{PLUGINS}' cannot be loaded by a multi-model endpoint: Triton takes libraries at "
            "its start, and models come later",
            value=comma_list(plugin.name for plugin in engine.plugins),
            way_out="give the model an endpoint of its own",
        )
    elif case.server == "triton" and not case.has_signers:
        yield case.model.fault(
            PLUGINS,
            "with Triton needs `trusted_signers` in the environment: nothing else checks a library "
            "before Triton runs its code",
            value="server: triton",
            allowed="server: python, which checks every digest itself, or signed engines",
            way_out="add `trusted_signers` to the environment, or `serving: {server: python}`",
            beside=["serving.server"],
        )


def _on_gpu(case: EngineCase) -> Iterator[tuple[str, PluginSpec]]:
    """The plugins of an engine; ONNX Runtime runs the operators' functions instead."""
    if case.instance.is_gpu:
        for index, plugin in enumerate(case.model.spec.engine.plugins):
            yield f"{PLUGINS}[{index}].file", plugin


def code_is_pinned_and_runs(model: Checked[ModelSpec], datasets: Datasets) -> Iterator[Fault]:
    """A file of the tree by its digest, with imports that the images have; nothing runs here."""
    for key, spec in _processing(model):
        path, data = f"serving.{key}", _code(datasets, spec.file)
        if data is None:
            yield model.fault(
                f"{path}.file",
                "is no Python file under the onboarding root",
                allowed=f"a file that ends in .py, of at most {LARGEST_BYTES >> 20} MiB",
                way_out="add the file, such as models/code/clean_text.py, or correct the path",
            )
            continue
        digest = hashlib.sha256(data).hexdigest()
        if spec.sha256 != digest:
            fault = (
                model.at(f"{path}.file").fault(
                    f"unpinned code: '{path}.file' has no digest",
                    value=spec.file,
                    way_out="add the line below",
                )
                if spec.sha256 is None
                else model.fault(
                    f"{path}.sha256",
                    f"is not that of {spec.file}",
                    way_out="review the file, and write the line below",
                )
            )
            yield fault.model_copy(update={"add": f"    sha256: {digest}"})
        for line, problem, way_out in code_problems(data, FUNCTIONS[key]):
            what = f"'{path}.file': {spec.file}, line {line}, {problem}"
            yield model.at(f"{path}.file").fault(what, way_out=way_out)


def processed_tensors_are_rows(model: Checked[ModelSpec], datasets: Datasets) -> Iterator[Fault]:
    """Two tensors of one name could not be told apart, and health requests send the examples."""
    for key, spec in _processing(model):
        field = "inputs" if isinstance(spec, PreprocessingSpec) else "outputs"
        tensors = getattr(spec, field)
        names = [tensor.name for tensor in tensors]
        for index, tensor in enumerate(tensors):
            path = f"serving.{key}.{field}[{index}]"
            if tensor.name in names[:index]:
                yield model.at(f"{path}.name").fault(
                    f"'serving.{key}.{field}' names a tensor twice",
                    value=tensor.name,
                    way_out="rename one of the two",
                )
            if 0 in tensor.dims:
                yield model.fault(
                    f"{path}.dims",
                    "has a size of 0",
                    allowed="sizes from 1 on, or -1 for any",
                    way_out="write [1] for one value a row",
                )
        if isinstance(spec, PreprocessingSpec):
            yield from _example_faults(model, spec)


def _example_faults(model: Checked[ModelSpec], spec: PreprocessingSpec) -> Iterator[Fault]:
    given = [tensor for tensor in spec.inputs if tensor.example is not None]
    for index, tensor in enumerate(spec.inputs):
        path = f"serving.preprocessing.inputs[{index}].example"
        if tensor.example is None and given:
            yield model.fault(
                path,
                f"is missing, and {given[0].name} has one",
                way_out="give every input an example, or none",
            )
        elif tensor.example is not None:
            problem = row_problem(tensor.example, tensor.datatype, tensor.dims)
            if problem is not None:
                yield model.at(path).fault(
                    f"'{path}' is no row of {tensor.name}: {problem}",
                    allowed=f"{tensor.datatype} of shape {list(tensor.dims)}, -1 for any size",
                    way_out="write one row, or correct dims",
                )


def _processing(
    model: Checked[ModelSpec],
) -> Iterator[tuple[str, PreprocessingSpec | PostprocessingSpec]]:
    for key in FUNCTIONS:
        spec = getattr(model.spec.serving, key)
        if spec is not None:
            yield key, spec


def _code(datasets: Datasets, file: str) -> bytes | None:
    """Return a file's bytes; None where there is no such file."""
    path = datasets.root / file
    if not file.endswith(".py") or not is_inside(datasets.root, file):
        return None
    try:
        return path.read_bytes() if path.stat().st_size <= LARGEST_BYTES else None
    except (OSError, ValueError):
        return None


PACKAGES = ("numpy", "tokenizers")
"""What both of Triton's images and the builder have; `tests/unit/onboarding/test_code_scan.py`
holds it against their requirements."""
Problem = tuple[int, str, str]
"""Line, what is wrong, the way out."""


def code_problems(source: bytes, function: str) -> tuple[Problem, ...]:
    """Return everything that is wrong with a file that must define `function(tensors)`."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        return ((error.lineno or 1, f"is no Python: {error.msg}", "correct the line"),)
    except ValueError as error:
        return ((1, f"is no Python: {error}", "save it as UTF-8 text"),)
    problems = [*_function_problems(tree, function)]
    for node in ast.walk(tree):
        problems.extend(_import_problems(node))
    return tuple(sorted(problems))


def _function_problems(tree: ast.Module, name: str) -> Iterator[Problem]:
    way_out = f"write `def {name}(tensors):`, which returns a dict of arrays"
    nodes = [node for node in tree.body if getattr(node, "name", None) == name]
    if not nodes:
        yield 1, f"has no function {name}", way_out
        return
    node = nodes[-1]
    if not isinstance(node, ast.FunctionDef):
        yield node.lineno, f"has {name} as no plain function", way_out
        return
    given = node.args
    positional = [*given.posonlyargs, *given.args]
    required = len(positional) - len(given.defaults)
    needs = [
        argument
        for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
        if default is None
    ]
    if required > 1 or needs or not (positional or given.vararg):
        yield node.lineno, f"has {name}({ast.unparse(given)}), called with one argument", way_out


def _import_problems(node: ast.AST) -> Iterator[Problem]:
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [(node.module or "") if not node.level else ""]
    for name in names:
        root, line = name.partition(".")[0], getattr(node, "lineno", 1)
        if not root:
            yield line, "imports a file beside it", "keep all of the code in one file"
        elif root not in PACKAGES and root not in sys.stdlib_module_names:
            allowed = f"the standard library, {', '.join(PACKAGES)}"
            way_out = f"use what the servers' images have: {allowed}"
            yield line, f"imports {name}, which the servers' images lack", way_out


RULES = (plugins_are_of_an_onnx_file, plugins_are_pinned_libraries)
CODE_RULES = (code_is_pinned_and_runs, processed_tensors_are_rows)
"""Of ensembles too, which have no code: their keys are refused beside."""
ENGINE_RULES = (plugins_fit_the_platform, plugins_are_loaded)
