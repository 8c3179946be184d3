"""The corpus: documentation that is really on this machine."""

from __future__ import annotations

import inspect
import sqlite3
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from art_core.demo.corpus import INDEXED_CHARACTERS, Corpus, load_corpus
from art_core.errors import ConfigError


class TestStandardLibrary:
    def test_has_functions_and_language_topics(self, corpus: Corpus) -> None:
        pages = {page.name: page for page in corpus.pages}
        assert pages["textwrap.shorten"].text == inspect.getdoc(textwrap.shorten)
        assert pages["os.path.join"].kind == "function"
        assert pages["builtins.sorted"].kind == "function"
        assert pages["lambda"].kind == "topic"
        assert len(corpus.functions) > 500

    def test_each_name_once_and_in_order(self, corpus: Corpus) -> None:
        names = [page.name for page in corpus.pages]
        assert names == sorted(set(names))

    def test_no_classes_aliases_and_private_names(self, corpus: Corpus) -> None:
        names = {page.name for page in corpus.functions}
        assert not names & {"typing.List", "typing.Match", "collections.Counter", "builtins.int"}
        assert not [name for name in names if any(p.startswith("_") for p in name.split("."))]

    def test_is_the_same_every_time(self) -> None:
        assert load_corpus() == load_corpus()


class TestPackage:
    def test_documents_the_package_and_its_submodules(self) -> None:
        corpus = load_corpus("numpy")
        names = {page.name for page in corpus.functions}
        assert corpus.title == "numpy"
        assert {"numpy.argsort", "numpy.linalg.inv", "numpy.sin"} <= names
        assert all(name.startswith("numpy.") for name in names)

    def test_leaves_out_submodules_that_fail_to_import(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        package = tmp_path / "halfbroken"
        package.mkdir()
        (package / "__init__.py").write_text('def good():\n    """Does something good."""\n')
        (package / "bad.py").write_text("raise RuntimeError('needs a display')\n")
        (package / "tests.py").write_text("raise AssertionError('tests are never imported')\n")
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
        assert [page.name for page in load_corpus("halfbroken").pages] == ["halfbroken.good"]

    def test_not_installed(self) -> None:
        with pytest.raises(ConfigError, match=r"'no_such_package' can't be imported.*import name"):
            load_corpus("no_such_package")

    def test_without_documented_functions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "bare", ModuleType("bare"))
        with pytest.raises(ConfigError, match="'bare' has no public function with a docstring"):
            load_corpus("bare")


class TestIndex:
    def test_holds_the_beginning_of_every_page(self, corpus: Corpus, corpus_index: Path) -> None:
        with sqlite3.connect(corpus_index) as connection:
            rows = connection.execute("SELECT name, text FROM pages ORDER BY rowid").fetchall()
        connection.close()
        assert rows == [(page.name, page.text[:INDEXED_CHARACTERS]) for page in corpus.pages]

    def test_is_replaced_by_a_new_one(self, corpus: Corpus, tmp_path: Path) -> None:
        path = tmp_path / "deep" / "index.sqlite"
        corpus.write_index(path)
        small = Corpus(title="Python", pages=corpus.pages[:3])
        small.write_index(path)
        connection = sqlite3.connect(path)
        assert connection.execute("SELECT count(*) FROM pages").fetchone() == (3,)
        connection.close()
