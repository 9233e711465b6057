"""The distribution holds the whole tree: every package, and every file that code reads."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SHIPPED_FOLDERS = ("comfy_nodes", "runtime")


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def packages_in_tree() -> list[str]:
    inits = (path for folder in SHIPPED_FOLDERS for path in (ROOT / folder).rglob("__init__.py"))
    return sorted(["omnistage", *(dotted_name(path.parent) for path in inits)])


def dotted_name(folder: Path) -> str:
    return ".".join(["omnistage", *folder.relative_to(ROOT).parts])


def is_readme(path: Path) -> bool:
    return path.name == "README.md"


def test_package_list_matches_the_tree(project):
    assert sorted(project["tool"]["setuptools"]["packages"]) == packages_in_tree()


def test_every_folder_with_code_is_a_package():
    packages = set(packages_in_tree())
    code = (path for folder in SHIPPED_FOLDERS for path in (ROOT / folder).rglob("*.py"))
    assert {dotted_name(path.parent) for path in code} <= packages


def test_every_other_file_is_package_data(project):
    patterns = project["tool"]["setuptools"]["package-data"]
    declared = {
        path
        for package, globs in patterns.items()
        for pattern in globs
        for path in ROOT.joinpath(*package.split(".")[1:]).glob(pattern)
    }
    folders = (*SHIPPED_FOLDERS, "workflows")
    files = {path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()}
    not_data = {path for path in files if path.suffix in {".py", ".pyc"} or is_readme(path)}
    assert files - not_data <= declared


def test_comfyui_gets_no_dependencies(project):
    assert project["project"]["dependencies"] == []
