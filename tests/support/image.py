"""
The image of deploy/Dockerfile, really built, and containers of it. For root only.

buildah builds it on the Debian of `debian_base`, with the index that pip has on this machine. It is
kept beside that Debian as long as nothing that it is made of changes, so that all processes of the
tests share it. runc, as under Docker and Kubernetes, starts a container from what the image says.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.debian_base import base_tree, made_once

PROJECT = Path(__file__).parents[2]
DOCKERFILE = PROJECT / "deploy/Dockerfile"
RUNTIME = "/run/pgflowd"


@dataclass(frozen=True)
class Image:
    """The files of an image, and what it says about itself, as `docker inspect` shows it."""

    root: Path
    config: Mapping[str, Any]


def image() -> Image:
    """Return the image of this tree."""
    base = base_tree()
    place = made_once(f"image-{_digest(base)}", lambda place: _build(base, place))
    return Image(place / "root", json.loads((place / "config.json").read_text()))


class Container:
    """A container with a read-only root, no capabilities, and a tmpfs, as from `docker run`."""

    def __init__(
        self,
        image: Image,
        place: Path,
        *args: str,
        environ: Mapping[str, str],
        mounts: Mapping[str, Path],
    ) -> None:
        self.image, self._place, self._id = image, place, f"pgflowd-{uuid.uuid4().hex}"
        place.mkdir()
        self.log = place / "log"
        self._write_bundle([*image.config["Entrypoint"], *args], environ, mounts)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*self._runc, "run", "--bundle", str(place), self._id],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def _runc(self) -> list[str]:
        return ["runc", "--root", str(self._place / "runc")]

    def _write_bundle(
        self, args: Sequence[str], environ: Mapping[str, str], mounts: Mapping[str, Path]
    ) -> None:
        """Write what runc is to start: its own defaults, then the image's word, then the test's."""
        subprocess.run(["runc", "spec"], cwd=self._place, check=True)
        file = self._place / "config.json"
        spec = json.loads(file.read_text())
        user, _, group = self.image.config["User"].partition(":")
        process = spec["process"]
        process["terminal"] = False
        process["args"] = list(args)
        process["cwd"] = self.image.config["WorkingDir"]
        process["user"] = {"uid": int(user), "gid": int(group)}
        process["env"] = [
            *self.image.config["Env"],
            *(f"{name}={value}" for name, value in environ.items()),
        ]
        process["capabilities"] = {kind: [] for kind in process["capabilities"]}
        spec["root"] = {"path": str(self.image.root), "readonly": True}
        spec["linux"]["namespaces"] = [
            each for each in spec["linux"]["namespaces"] if each["type"] != "network"
        ]  # as with `--network host`: no bridge is needed to reach the tests' server
        spec["mounts"].append(_mount(RUNTIME, "tmpfs", "tmpfs", "nosuid", "nodev"))
        for where, source in mounts.items():
            spec["mounts"].append(_mount(where, "bind", str(source), "bind", "rw"))
        file.write_text(json.dumps(spec))

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Execute a command in it, as `docker exec` and health checks do."""
        return subprocess.run(
            [*self._runc, "exec", self._id, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )

    def is_healthy(self) -> bool:
        """Execute the image's health check."""
        kind, *command = self.image.config["Healthcheck"]["Test"]
        assert kind == "CMD"
        return self.execute(*command).returncode == 0

    def pid(self) -> int:
        """The pid outside of the process that has pid 1 inside."""
        told = subprocess.run([*self._runc, "state", self._id], stdout=subprocess.PIPE, check=True)
        return int(json.loads(told.stdout)["pid"])

    def stop(self) -> None:
        """Send pid 1 the signal that `docker stop` sends."""
        name = self.image.config["StopSignal"]
        subprocess.run([*self._runc, "kill", self._id, name], check=True)

    def ended(self, within_s: float = 30) -> int:
        """Wait for its end; return the exit code."""
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it has not ended\n{self.log.read_text()[-6000:]}") from None

    def close(self) -> None:
        """Kill it, if it has not ended; its pid namespace takes all its processes along."""
        if self.process.poll() is None:
            subprocess.run([*self._runc, "kill", self._id, "KILL"], check=False)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGKILL)
                self.process.wait()
        subprocess.run(
            [*self._runc, "delete", "--force", self._id], stderr=subprocess.DEVNULL, check=False
        )


def _mount(where: str, kind: str, source: str, *options: str) -> dict[str, Any]:
    return {"destination": where, "type": kind, "source": source, "options": list(options)}


def _digest(base: Path) -> str:
    """A hash of all that an image is made of."""
    found = hashlib.sha256(str(base).encode() + Path(__file__).read_bytes())
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", DOCKERFILE.read_text(), re.MULTILINE)
    for name in ["deploy/Dockerfile", *" ".join(copied).split()]:
        place = PROJECT / name
        for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if file.is_file() and "__pycache__" not in file.parts:
                found.update(f"{file.relative_to(PROJECT)}\n".encode() + file.read_bytes())
    return found.hexdigest()[:16]


def _build(base: Path, place: Path) -> None:
    """Build the image, and unpack it in this place."""
    with _storage(place) as buildah:
        empty = buildah("from", "scratch")
        buildah("add", "--quiet", empty, str(base), "/")
        buildah("commit", "--quiet", "--rm", empty, "base")
        buildah(
            *("build", "--isolation=chroot", "--format=docker", "--build-arg=BASE=localhost/base"),
            *(f"--volume={volume}" for volume in _volumes_for_pip(buildah.place)),
            *(f"--output=type=local,dest={place / 'root'}", f"--file={DOCKERFILE}"),
            *("--tag=pgflowd", str(PROJECT)),
        )
        (place / "root").chmod(0o755)  # buildah has made it private
        told = json.loads(buildah("inspect", "--type=image", "localhost/pgflowd"))
        (place / "config.json").write_text(json.dumps(told["Docker"]["config"]))


class _Buildah:
    """buildah with a storage of its own: `buildah("from", "scratch")` returns what it prints."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._options = ["--root", str(place / "root"), "--runroot", str(place / "run")]

    def __call__(self, *args: str) -> str:
        ended = subprocess.run(
            ["buildah", *self._options, "--storage-driver=vfs", *args],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        shown = f"{ended.stdout[-4000:]}{ended.stderr[-4000:]}"
        assert ended.returncode == 0, f"buildah {' '.join(args)}: {shown}"
        return ended.stdout.strip()


@contextmanager
def _storage(above: Path) -> Iterator[_Buildah]:
    place = above / "storage"
    place.mkdir()
    buildah = _Buildah(place)
    try:
        yield buildah
    finally:
        shutil.rmtree(place)


def _volumes_for_pip(place: Path) -> list[str]:
    """Let pip in the build ask the index that pip has here, by a file of our own making."""
    told = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    settings = {}
    for line in told.stdout.splitlines():
        key, _, value = line.partition("=")
        settings[key.rpartition(".")[2]] = str(ast.literal_eval(value))
    file = place / "pip.conf"
    lines = [f"{name} = {' '.join(value.split())}\n" for name, value in settings.items()]
    file.write_text("".join(["[global]\n", *lines]))
    volumes = [f"{file}:/etc/pip.conf:ro"]
    for word in " ".join(settings.values()).split():
        path = Path(word.removeprefix("file://"))
        if path.is_absolute() and path.exists():
            seen = path.parent if word.startswith("file://") else path  # its index refers upwards
            volumes.append(f"{seen}:{seen}:ro")
    return sorted(set(volumes))
