"""
Builds a Debian package of this checkout, for the Debian release that it is built on.

`python build.py DIRECTORY` writes `pgflowd_VERSION_ARCHITECTURE.deb` there. The compiled wheels in
it were chosen for one minor version of Python, and the units for a version of systemd, so the
package demands them. Its files belong to root, whoever builds it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import time
from typing import Any

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
PYTHON = "/usr/bin/python3"  # Debian's, whatever Python builds
EXTRAS = "otel,top,typed,web"
PLACE = "opt/pgflowd"
CONFIG = "etc/pgflowd/pgflowd.toml"
PAGES = "usr/share/man/man1"
DOCUMENTS = "usr/share/doc/pgflowd"
COPIED = {  # from the checkout
    CONFIG: HERE / "pgflowd.toml",
    "usr/lib/sysusers.d/pgflowd.conf": HERE / "pgflowd.sysusers",
    f"{DOCUMENTS}/copyright": HERE / "copyright",
    f"{DOCUMENTS}/README.Debian": PROJECT / "docs/operate/debian.md",
    f"{DOCUMENTS}/pgflowd.toml": PROJECT / "config/pgflowd.toml",
    f"{DOCUMENTS}/changelog": PROJECT / "CHANGELOG.md",
}
COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/pgflowd",
    "zsh": "usr/share/zsh/vendor-completions/_pgflowd",
    "fish": "usr/share/fish/vendor_completions.d/pgflowd.fish",
}
SCRIPTS = ("postinst", "prerm", "postrm")
FACTS = """
import json, sys
from pgflowd import __version__
from pgflowd.host.systemd import systemd_version
major, minor = sys.version_info[:2]
print(json.dumps({"version": __version__, "systemd": systemd_version() or 0,
                  "python": f"{major}.{minor}", "next_python": f"{major}.{minor + 1}"}))
"""


def main(directory: Path) -> None:
    if not (Path(PYTHON).exists() and shutil.which("dpkg-deb")):
        sys.exit(f"a Debian package is built on Debian, with dpkg-deb and {PYTHON}")
    os.umask(0o022)
    os.environ.setdefault("SOURCE_DATE_EPOCH", commit_time())
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # it would know the paths of this build
    with tempfile.TemporaryDirectory(prefix="pgflowd-deb-") as made:
        root = Path(made, "root")
        install_environment(root)
        install_files(root)
        settle(root)
        write_control(root)
        directory.mkdir(parents=True, exist_ok=True)
        sys.stdout.write(
            run("dpkg-deb", "--root-owner-group", "-Zzstd", "-z3", "--build", root, directory)
        )


def commit_time() -> str:
    """When the checkout was committed; now, where that is not known."""
    asked = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=PROJECT, capture_output=True, text=True
    )
    return asked.stdout.strip() or str(int(time()))


def install_environment(root: Path) -> None:
    """Make the virtual environment, whose programs work in place, too."""
    place = root / PLACE
    run(PYTHON, "-m", "venv", "--without-pip", place)
    run(
        sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check",
        "--python", place / "bin/python", "install", "--no-compile", f"{PROJECT}[{EXTRAS}]",
    )  # fmt: skip
    for program in (place / "bin").iterdir():
        if not program.name.startswith(("python", "pgflowd")):
            program.unlink()  # those of dependencies, and those that change a shell's PATH


def install_files(root: Path) -> None:
    """Write what lies outside of the environment."""
    pgflowd, python = root / PLACE / "bin/pgflowd", root / PLACE / "bin/python"
    for place, source in COPIED.items():
        write(root / place, source.read_text("utf-8"))
    for shell, place in COMPLETIONS.items():
        write(root / place, run(pgflowd, "completion", shell))
    for unit in json.loads(run(pgflowd, "systemd", "show", "--json"))["files"]:
        place = unit["path"].replace("/etc/", "usr/lib/", 1)  # where packages have their units
        write(root / place, unit["text"].replace(str(root), ""))
    (root / PAGES).mkdir(parents=True)
    run(python, HERE / "manual_pages.py", root / PAGES)
    for path in [root / DOCUMENTS / "changelog", *(root / PAGES).iterdir()]:
        packed = path.with_name(f"{path.name}.gz")
        packed.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        path.unlink()
    (root / "usr/bin").mkdir()
    (root / "usr/bin/pgflowd").symlink_to(f"/{PLACE}/bin/pgflowd")


def settle(root: Path) -> None:
    """Replace the paths of this build by those of the installed package, and compile the code."""
    place = root / PLACE
    for path in (place / "pyvenv.cfg", place / "bin/pgflowd"):
        path.write_text(path.read_text("utf-8").replace(str(root), ""), "utf-8")
    for origin in place.rglob("direct_url.json"):
        origin.unlink()  # says where the checkout was
    at = int(os.environ["SOURCE_DATE_EPOCH"])
    for path in root.rglob("*"):
        os.utime(
            path, (at, at), follow_symlinks=False
        )  # compiled code knows the time of its source
    run(
        place / "bin/python", "-m", "compileall", "-q", "-j", "0",
        "--invalidation-mode", "timestamp", "-s", root, "-p", "/", place / "lib",
    )  # fmt: skip


def write_control(root: Path) -> None:
    """Write what dpkg reads: the description, checksums, configuration files and scripts."""
    control = root / "DEBIAN"
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    facts: dict[str, Any] = json.loads(run(root / PLACE / "bin/python", "-c", FACTS))
    facts["version"] = debian_version(facts["version"], platform.freedesktop_os_release())
    facts["architecture"] = run("dpkg", "--print-architecture").strip()
    facts["size"] = sum(path.stat().st_size for path in files) // 1024
    write(control / "control", (HERE / "control").read_text("utf-8").format(**facts))
    sums = [
        f"{hashlib.md5(file.read_bytes()).hexdigest()}  {file.relative_to(root)}\n"
        for file in files
    ]
    write(control / "md5sums", "".join(sums))
    write(control / "conffiles", f"/{CONFIG}\n")
    for name in SCRIPTS:
        write(control / name, (HERE / name).read_text("utf-8"))
        (control / name).chmod(0o755)


def debian_version(version: str, release: dict[str, str]) -> str:
    """
    The version as Debian orders it, with the release that the package is for.

    An alpha, a candidate or a version of development comes before the version itself.
    """
    name = release["ID"].replace("debian", "deb") + release.get("VERSION_ID", "")
    return re.sub(r"\.?(a|b|rc|dev)(?=\d)", r"~\1", version) + f"+{name}"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def run(*command: str | Path) -> str:
    """Run a program away from the checkout, without pgflowd's variables; return what it prints."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PGFLOWD")}
    return subprocess.run(
        command, cwd="/", env=clean, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
