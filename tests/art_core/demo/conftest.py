"""The real corpus of this machine's Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from art_core.demo.corpus import Corpus, load_corpus


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    return load_corpus()


@pytest.fixture(scope="session")
def corpus_index(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "index.sqlite"
    corpus.write_index(path)
    return path
