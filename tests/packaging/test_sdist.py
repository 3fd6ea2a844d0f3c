"""The source distribution: whoever has it can build the image and the package."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def test_it_has_all_of_deploy_and_all_that_the_image_is_made_of(tmp_path: Path):
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "-d", tmp_path]
    subprocess.run(command, cwd=PROJECT, check=True)

    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    for tree in ("deploy", "config", "docs", "monitoring", "pgflowd", "sql", "systemd"):
        files = [file for file in (PROJECT / tree).rglob("*") if file.is_file()]
        wanted = {str(file.relative_to(PROJECT)) for file in files if file.suffix != ".pyc"}
        assert wanted and wanted <= found, tree
