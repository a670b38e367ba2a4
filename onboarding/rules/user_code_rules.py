"""Rules of a user's own code: TensorRT plugins, and preprocessing and postprocessing."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections import Counter
from collections.abc import Iterator

from onboarding.dataset import is_inside
from onboarding.document import Place
from onboarding.example_row import row_problem
from onboarding.fault import Fault
from onboarding.nearest import comma_list
from onboarding.plugin_spec import PluginSpec
from onboarding.processing_spec import PostprocessingSpec, PreprocessingSpec
from onboarding.rules.rule import EngineCase, ModelCase, rule
from onboarding.rules.source_rules import file_faults
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
    for index, plugin in enumerate(case.spec.engine.plugins):
        place = case.document.at(*PLUGINS, index, "file")
        library = case.datasets.shared_library(plugin.file)
        address = tuple(file_faults(case, place, "a plugin's 'file'", plugin.file))
        if address or library is None:
            yield from address
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
