"""The pages that the demo's agent searches: the documentation installed on this machine.

Either the Python standard library's own (functions' docstrings and the language
topics of ``pydoc``), or the functions of any installed package.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sqlite3
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal

from art_core.errors import ConfigError

STANDARD_LIBRARY = "Python"
"""The title of the default corpus."""

INDEXED_CHARACTERS = 300
"""Of each page. What a page is about stands at its beginning; whole language topics are
so long that they would match every query."""

# Modules that import the same way on every platform, so that a corpus is the same
# wherever the same Python runs; `os` itself isn't (its functions differ by system).
# fmt: off
STANDARD_MODULES = (
    "ast", "asyncio", "base64", "binascii", "bisect", "builtins", "calendar", "cmath", "codecs",
    "collections", "colorsys", "compileall", "contextlib", "copy", "csv", "dataclasses",
    "difflib", "dis", "email", "enum", "fileinput", "filecmp", "fnmatch", "functools", "gc",
    "getopt", "getpass", "glob", "gzip", "hashlib", "heapq", "hmac", "html", "imaplib",
    "importlib", "inspect", "io", "ipaddress", "itertools", "json", "keyword", "linecache",
    "locale", "logging", "lzma", "marshal", "math", "mimetypes", "multiprocessing", "operator",
    "os.path", "pickle", "pickletools", "pkgutil", "platform", "plistlib", "pprint",
    "py_compile", "pyclbr", "random", "re", "reprlib", "runpy", "secrets", "shelve", "shlex",
    "shutil", "signal", "socket", "ssl", "statistics", "string", "struct", "subprocess",
    "symtable", "sys", "sysconfig", "tarfile", "tempfile", "textwrap", "threading", "time",
    "timeit", "tokenize", "tomllib", "traceback", "tracemalloc", "types", "typing",
    "unicodedata", "unittest", "uuid", "warnings", "weakref", "webbrowser", "zipapp", "zlib",
    "zoneinfo",
)
# fmt: on

_SKIPPED_SUBMODULES = re.compile(r"(^|\.)(_|tests?$|testing$|conftest$|setup$)")


@dataclass(frozen=True, slots=True)
class Page:
    """One page of documentation."""

    name: str
    """What the page is about, as one would write it in code: ``textwrap.shorten``."""
    text: str
    kind: Literal["function", "topic"]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Pages in the order of their names, each name once."""

    title: str
    """What the pages document: ``Python``, or a package's name."""
    pages: tuple[Page, ...]

    @property
    def functions(self) -> tuple[Page, ...]:
        return tuple(page for page in self.pages if page.kind == "function")

    def write_index(self, path: Path) -> None:
        """Write the beginnings of the pages to an SQLite full-text index: a table
        ``pages(name, text)``."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        connection = sqlite3.connect(path)
        try:
            with connection:
                connection.execute("CREATE VIRTUAL TABLE pages USING fts5(name, text)")
                connection.executemany(
                    "INSERT INTO pages VALUES (?, ?)",
                    [(page.name, page.text[:INDEXED_CHARACTERS]) for page in self.pages],
                )
        finally:
            connection.close()


def load_corpus(package: str | None = None) -> Corpus:
    """The documentation of ``package``, or of the standard library.

    Raises:
        ConfigError: the package isn't installed, fails to import, or documents no function.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated modules and names warn when touched
        if package is None:
            functions = _function_pages(map(importlib.import_module, STANDARD_MODULES))
        else:
            functions = _function_pages(_package_modules(package))
    topics = _topic_pages() if package is None else []
    if not functions:
        raise ConfigError(
            f"package {package!r} has no public function with a docstring",
            "Choose a package with documented functions, numpy for instance.",
        )
    pages = sorted([*functions, *topics], key=lambda page: page.name)
    return Corpus(title=package or STANDARD_LIBRARY, pages=tuple(pages))


def _topic_pages() -> list[Page]:
    from pydoc_data.topics import topics

    return [Page(name, text, "topic") for name, text in topics.items()]


def _package_modules(package: str) -> Iterator[ModuleType]:
    """The package and its public submodules; those that fail to import are left out."""
    try:
        root = importlib.import_module(package)
    except ImportError as error:
        raise ConfigError(
            f"package {package!r} can't be imported: {error}",
            "Name an importable package (its import name: 'yaml', not 'pyyaml'), "
            "installed in this environment.",
        ) from error
    yield root
    for found in pkgutil.iter_modules(getattr(root, "__path__", [])):
        name = f"{package}.{found.name}"
        if _SKIPPED_SUBMODULES.search(name):
            continue
        try:
            yield importlib.import_module(name)
        except Exception:  # noqa: BLE001  any module may fail for reasons of its own
            continue


def _function_pages(modules: Iterable[ModuleType]) -> list[Page]:
    seen: set[int] = set()
    pages: dict[str, Page] = {}
    for module in modules:
        for attribute, function in _public_functions(module):
            documentation = inspect.getdoc(function)
            if documentation and id(function) not in seen:
                seen.add(id(function))
                name = f"{_spelling(module)}.{attribute}"
                pages[name] = Page(name, documentation, "function")
    return list(pages.values())


def _public_functions(module: ModuleType) -> Iterator[tuple[str, object]]:
    exported = getattr(module, "__all__", None)
    for attribute in sorted(exported if exported is not None else vars(module)):
        if attribute.startswith("_"):
            continue
        value = getattr(module, attribute, None)
        if not _is_function(value):
            continue
        home = getattr(value, "__module__", None)
        if exported is None and home is not None and home != module.__name__:
            continue
        yield attribute, value


def _is_function(value: object) -> bool:
    """Functions of any kind (ufuncs and cached ones too), but no classes and type aliases."""
    alias = type(value).__module__ in ("typing", "types")
    return callable(value) and not inspect.isclass(value) and not alias


def _spelling(module: ModuleType) -> str:
    """The module's name as one writes it in code."""
    return "os.path" if module.__name__ in ("posixpath", "ntpath") else module.__name__
