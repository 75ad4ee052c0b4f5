"""Where code of the user's lies that a recipe names by import path, found without running any of it.

What a reward or an engine does is said by its module and by what that module takes from beside it, so imports are followed as
far as they lead to files of the same project; installed libraries are known by their versions.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

INSTALLED = ("site-packages", "dist-packages")
"""Folders of installed libraries: of those only the package that was named belongs to the user's code."""
OURS = "r1pipe"


def code_files(import_paths: Iterable[str]) -> dict[str, Path]:
    """The files behind import paths ("pkg.module:name"), by module; modules that are not found here are left out.

    r1pipe's own modules are left out as well: they are told by the revision of a step.
    """
    files: dict[str, Path] = {}
    waiting = [path.partition(":")[0] for path in import_paths]
    while waiting:
        module = waiting.pop()
        if module in files or module.partition(".")[0] == OURS or (found := _locate(module)) is None:
            continue
        path, root = found
        files[module] = path
        waiting += [other for other in _imported(path, module) if _belongs(other, module, root)]
    return dict(sorted(files.items()))


def is_there(import_path: str) -> bool:
    """Whether the module of an import path can be found here."""
    return _found(import_path.partition(":")[0]) is not None


def _locate(module: str) -> tuple[Path, Path] | None:
    """(a module's source file, the folder that its topmost package lies in); None when there is none."""
    spec = _found(module)
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return None
    path, levels = Path(spec.origin), module.count(".") + 1
    return path, path.parents[levels - 1 if path.name != "__init__.py" else levels]


def _found(module: str) -> ModuleSpec | None:
    """What Python would import under a dotted name; None when there is nothing."""
    search: Sequence[str] | None = None
    spec: ModuleSpec | None = None
    name = ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        spec = _spec(name, search)
        if spec is None:
            return None
        search = list(spec.submodule_search_locations or ())
    return spec


def _spec(name: str, search: Sequence[str] | None) -> ModuleSpec | None:
    """What Python would import under that name: as `importlib.util.find_spec`, but packages around it are not run."""
    for finder in sys.meta_path:
        try:
            spec: ModuleSpec | None = finder.find_spec(name, search, None)
        except KeyError:  # a folder without __init__.py asks for the package around it, which is not loaded
            spec = ModuleSpec(name, None, is_package=True)
            folders = [os.path.join(entry, name.rpartition(".")[2]) for entry in search or ()]
            spec.submodule_search_locations = [folder for folder in folders if os.path.isdir(folder)]
        if spec is not None:
            return spec
    return None


def _imported(path: Path, module: str) -> Iterator[str]:
    """Names of modules that a source file imports, also inside functions; what a package gives may be a module of it or not."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return  # whoever imports it is told
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield from _with_packages(name.name)
        elif isinstance(node, ast.ImportFrom):
            outer = package.split(".")[: len(package.split(".")) - (node.level - 1)] if node.level and package else []
            base = ".".join([*outer, *([node.module] if node.module else [])])
            if base:
                yield from _with_packages(base)
                yield from (f"{base}.{name.name}" for name in node.names)


def _with_packages(name: str) -> Iterator[str]:
    """A module and the packages around it, whose own code runs before it."""
    parts = name.split(".")
    yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _belongs(other: str, module: str, root: Path) -> bool:
    """Whether an imported module is code of the same project."""
    if other.partition(".")[0] == module.partition(".")[0]:
        return True
    if root.name in INSTALLED or other.partition(".")[0] in sys.stdlib_module_names:
        return False
    found = _locate(other)
    return found is not None and found[1] == root
