"""Every attribute that a Python file touches on the modules and objects of TensorRT and CUDA, found
in its syntax tree.

What counts as theirs: the modules imported, parameters and values annotated with a protocol of a
`surface` module, parameters
annotated `Any`, and whatever is read or called from one of these. A value's class is known as long
as it comes from the module
or is annotated; of other values only the attribute's name is.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

MODULES = {
    "tensorrt": "tensorrt",
    "tensorrt_bindings": "tensorrt",
    "tensorrt_lean": "tensorrt",
    "cuda.bindings.runtime": "cuda",
}
PROTOCOLS = {
    "TensorRT": "tensorrt",
    "CudaRuntime": "cuda",
    "ICudaEngine": "tensorrt.ICudaEngine",
    "IExecutionContext": "tensorrt.IExecutionContext",
}
"""Protocols that stand for modules and for classes of theirs."""
UNKNOWN = "?"


@dataclass(frozen=True, kw_only=True, order=True)
class Touch:
    """One attribute read or written.

    The path begins with `tensorrt`, `cuda`, or `?` where the class is not known.
    """

    file: str
    line: int
    path: str


def touches(path: Path, root: Path) -> list[Touch]:
    """Every touch of a file, in order."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    shared = _imported(tree)
    found: set[tuple[int, str]] = set()
    for scope in tree.body:
        found |= _Scope(scope, shared).touched()
    file = path.relative_to(root).as_posix()
    return sorted(Touch(file=file, line=line, path=touched) for line, touched in found)


def _imported(tree: ast.Module) -> dict[str, str]:
    """Names that imports bind, anywhere in the file."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {
                each.asname or each.name: MODULES[each.name]
                for each in node.names
                if each.name in MODULES
            }
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            full = {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
            known |= {name: MODULES[module] for name, module in full.items() if module in MODULES}
    return known


class _Scope:
    """One function or class at the top of a file, everything in it sharing its names."""

    def __init__(self, scope: ast.stmt, shared: dict[str, str]) -> None:
        self._scope = scope
        self._known = dict(shared)
        for argument in (node for node in ast.walk(scope) if isinstance(node, ast.arg)):
            self._annotate(argument)

    def touched(self) -> set[tuple[int, str]]:
        """(line, path) of every touch."""
        while self._bind_once():
            pass
        found = set()
        for node in ast.walk(self._scope):
            owner = self._owner(node.value) if isinstance(node, ast.Attribute) else None
            if isinstance(node, ast.Attribute) and owner is not None:
                found.add((node.lineno, f"{owner}.{node.attr}"))
        return found

    def _annotate(self, argument: ast.arg) -> None:
        if argument.annotation is None or argument.arg in ("self", "args", "kwargs"):
            return
        words = {node.id for node in ast.walk(argument.annotation) if isinstance(node, ast.Name)}
        for word in words & {*PROTOCOLS, "Any"}:
            self._known[argument.arg] = PROTOCOLS.get(word, UNKNOWN)

    def _bind_once(self) -> bool:
        """Follows assignments and loops one step; False once there is nothing new."""
        before = len(self._known)
        for node in ast.walk(self._scope):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._bind(target, self._owner(node.value))
            elif (
                isinstance(node, ast.AnnAssign)
                and isinstance(node.annotation, ast.Name)
                and node.annotation.id in PROTOCOLS
            ):
                self._bind(node.target, PROTOCOLS[node.annotation.id])
            elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
                self._bind(node.target, self._owner(node.value))
            elif isinstance(node, (ast.For, ast.comprehension)):
                self._bind(node.target, self._owner(node.iter))
            elif isinstance(node, ast.withitem) and node.optional_vars is not None:
                self._bind(node.optional_vars, self._owner(node.context_expr))
        return len(self._known) > before

    def _bind(self, target: ast.expr, owner: str | None) -> None:
        if owner is None:
            return
        if isinstance(target, (ast.Tuple, ast.List)):
            for each in target.elts:
                self._bind(each, UNKNOWN)
        elif isinstance(target, (ast.Name, ast.Attribute)):
            self._known.setdefault(ast.unparse(target), owner)

    def _owner(self, node: ast.expr) -> str | None:
        """The path of what an expression gives; None when it is not theirs."""
        known = (
            self._known.get(ast.unparse(node))
            if isinstance(node, (ast.Name, ast.Attribute))
            else None
        )
        if known is not None:
            return known
        if isinstance(node, ast.Attribute):
            owner = self._owner(node.value)
            return (
                None if owner is None else (UNKNOWN if owner == UNKNOWN else f"{owner}.{node.attr}")
            )
        if isinstance(node, ast.Call):
            return self._called(node)
        if isinstance(node, (ast.Subscript, ast.Await)):
            return None if self._owner(node.value) is None else UNKNOWN
        return None

    def _called(self, call: ast.Call) -> str | None:
        owner = self._owner(call.func)
        if owner is not None:
            # A class of the module gives its instance; whatever else is called gives something.
            return owner if owner.split(".")[-1][:1].isupper() else UNKNOWN
        module = (
            call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
        )
        imports = ast.unparse(call.func).endswith("import_module")
        return MODULES.get(module) if imports and isinstance(module, str) else None
