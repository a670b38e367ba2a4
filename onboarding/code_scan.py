"""Reads a user's Python file without running it: syntax, its function, what it imports and calls.

A lint, not a sandbox: Python can hide an import or a call from any reader of its text. What keeps
a user's code from other requests is the process of its own that runs it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

PACKAGES = ("numpy", "tokenizers")
"""What both of Triton's images and the builder have; `tests/unit/onboarding/test_code_scan.py`
holds it against their requirements."""
NETWORK = frozenset(
    (
        *("asyncio", "ftplib", "http", "imaplib", "mailbox", "nntplib", "poplib", "select"),
        *("selectors", "smtplib", "socket", "socketserver", "ssl", "telnetlib", "urllib"),
        *("webbrowser", "wsgiref", "xmlrpc"),
    )
)
PURE = frozenset(("urllib.parse",))
"""Modules of such a package that reach nothing."""
PROCESSES = frozenset(
    (
        *("_posixsubprocess", "_thread", "concurrent", "ctypes", "multiprocessing", "posix"),
        *("pty", "signal", "subprocess", "threading"),
    )
)
HIDING = frozenset(
    ("code", "codeop", "imp", "importlib", "marshal", "pickle", "runpy", "shelve", "zipimport")
)
"""Modules by which code runs that this scan cannot read."""
REASONS = (
    (NETWORK, "reaches the network"),
    (PROCESSES, "starts processes or threads, or native code"),
    (HIDING, "runs code that no scan can read"),
)
OS_CALLS = ("exec", "fork", "kill", "popen", "posix_spawn", "spawn", "startfile", "system")
"""Beginnings of the names of `os` that start or end processes."""
CALLS = frozenset(("__import__", "breakpoint", "compile", "eval", "exec", "input"))
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
        problems.extend(_call_problems(node))
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
        names = [node.module or "."] if not node.level else ["."]
        if node.module == "os":
            for alias in node.names:
                yield from _os_problems(node.lineno, alias.name)
    for name in names:
        root = name.partition(".")[0]
        line = getattr(node, "lineno", 1)
        reason = next((reason for modules, reason in REASONS if root in modules), None)
        if name in PURE:
            continue
        if reason is not None:
            yield line, f"imports {name}, which {reason}", "do without it"
        elif not root:
            yield line, "imports a file beside it", "keep all of the code in one file"
        elif root not in PACKAGES and root not in sys.stdlib_module_names:
            allowed = f"the standard library, {', '.join(PACKAGES)}"
            way_out = f"use what the servers' images have: {allowed}"
            yield line, f"imports {name}, which the servers' images lack", way_out


def _call_problems(node: ast.AST) -> Iterator[Problem]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
        yield node.lineno, f"calls {node.func.id}(), which no scan can follow", "do without it"
    if (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
    ):
        yield from _os_problems(node.lineno, node.attr)


def _os_problems(line: int, name: str) -> Iterator[Problem]:
    if name.startswith(OS_CALLS):
        yield line, f"uses os.{name}, which starts or ends processes", "do without it"
