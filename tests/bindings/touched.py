"""Every attribute that a Python file touches on TensorRT's and CUDA's objects, by its syntax tree.

Theirs are the modules imported, parameters and values annotated with a protocol of a `surface`
module, parameters annotated `Any`, and whatever is read or called from one of these. A value's
class is known as long as it comes from the module or is annotated; of other values only the
attribute's name is.
"""

from __future__ import annotations

import ast
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


def touches(path: Path) -> list[tuple[int, str]]:
    """Line and path of every attribute; it begins with `tensorrt`, `cuda`, or `?` for an unknown
    class.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = _imported(tree)
    touched = {touch for scope in tree.body for touch in _Scope(scope, imported).touches()}
    return sorted(touched)


def _imported(tree: ast.Module) -> dict[str, str]:
    """Names that imports bind, anywhere in the file."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            prefix = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                if f"{prefix}{alias.name}" in MODULES:
                    names[alias.asname or alias.name] = MODULES[f"{prefix}{alias.name}"]
    return names


class _Scope:
    """One function or class at the top of a file, everything in it sharing its names."""

    def __init__(self, scope: ast.stmt, imported: dict[str, str]) -> None:
        self._nodes = list(ast.walk(scope))
        self._owners = dict(imported)
        for node in self._nodes:
            is_own = isinstance(node, ast.arg) and node.arg in ("self", "args", "kwargs")
            if isinstance(node, ast.arg) and node.annotation is not None and not is_own:
                names = (one.id for one in ast.walk(node.annotation) if isinstance(one, ast.Name))
                for name in {*names} & {*PROTOCOLS, "Any"}:
                    self._owners[node.arg] = PROTOCOLS.get(name, UNKNOWN)

    def touches(self) -> set[tuple[int, str]]:
        before = -1
        while before < len(self._owners):
            before = len(self._owners)
            self._follow()
        return {
            (node.lineno, f"{owner}.{node.attr}")
            for node in self._nodes
            if isinstance(node, ast.Attribute) and (owner := self._owner(node.value)) is not None
        }

    def _follow(self) -> None:
        """Follows assignments and loops one step."""
        for node in self._nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._bind(target, self._owner(node.value))
            elif isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) in PROTOCOLS:
                self._bind(node.target, PROTOCOLS[ast.unparse(node.annotation)])
            elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                self._bind(node.target, self._owner(node.value))
            elif isinstance(node, ast.For | ast.comprehension):
                self._bind(node.target, self._owner(node.iter))
            elif isinstance(node, ast.withitem) and node.optional_vars is not None:
                self._bind(node.optional_vars, self._owner(node.context_expr))

    def _bind(self, target: ast.expr, owner: str | None) -> None:
        if owner is not None and isinstance(target, ast.Tuple | ast.List):
            for element in target.elts:
                self._bind(element, UNKNOWN)
        elif owner is not None and isinstance(target, ast.Name | ast.Attribute):
            self._owners.setdefault(ast.unparse(target), owner)

    def _owner(self, node: ast.expr) -> str | None:
        """The path of what an expression gives; None when it is not theirs."""
        if isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node) in self._owners:
            return self._owners[ast.unparse(node)]
        if isinstance(node, ast.Call):
            return self._result(node)
        if not isinstance(node, ast.Attribute | ast.Subscript | ast.Await):
            return None
        owner = self._owner(node.value)
        is_class = isinstance(node, ast.Attribute) and owner not in (None, UNKNOWN)
        return f"{owner}.{node.attr}" if is_class else owner and UNKNOWN

    def _result(self, call: ast.Call) -> str | None:
        owner = self._owner(call.func)
        if owner is not None:
            # A class of the module gives its instance; whatever else is called gives something.
            return owner if owner.split(".")[-1][:1].isupper() else UNKNOWN
        if not ast.unparse(call.func).endswith("import_module") or not call.args:
            return None
        return MODULES.get(ast.unparse(call.args[0]).strip("'"))
