"""Fixtures of the core's tests; a test module asks for them by `pytest_plugins = ("core_fixtures",)`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from core_helpers import Toy, make_toy, open_toy


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    """A fresh run called "demo" of the toy pipeline."""
    return make_toy(tmp_path, monkeypatch)


@pytest.fixture(scope="session")
def finished_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run, made once by real processes."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        make_toy(folder, patch).execute()
    return folder


@pytest.fixture
def finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished_folder: Path) -> Toy:
    """A finished run called "demo"."""
    shutil.copytree(finished_folder, tmp_path, dirs_exist_ok=True)
    return open_toy(tmp_path, monkeypatch)
