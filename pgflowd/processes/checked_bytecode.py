"""
Lets the users' own modules never be older than their source.

Python takes the bytecode in `__pycache__` if the source has the size and the second that it had,
so of two saves within a second it may load the first. Here the hash of the source decides, as in
PEP 552; bytecode without a hash is made anew, once. Libraries are loaded as ever.
"""

from __future__ import annotations

import functools
import importlib.util
import marshal
import sys
import sysconfig
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

# the bytes before the code: the version of Python, flags, the hash of the source
_MAGIC = importlib.util.MAGIC_NUMBER
_CHECKED = (0b11).to_bytes(4, "little")  # it has a hash, which others shall compare, too
_HEAD = 16


def install() -> None:
    """Load the users' own modules so, from now on, in this process and its forks."""
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(sys.meta_path.index(PathFinder), _Finder)


def is_library(filename: str) -> bool:
    """Whether a file is Python's, ours, or was installed; all others are the users' own."""
    outside = any(part in {"site-packages", "dist-packages"} for part in Path(filename).parts)
    return outside or filename.startswith(("<", *_libraries()))


@functools.cache
def _libraries() -> tuple[str, ...]:
    return f"{sysconfig.get_path('stdlib')}/", f"{Path(__file__).parent.parent}/"


class _Finder(PathFinder):
    @classmethod
    def find_spec(
        cls,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target)
        if spec and type(spec.loader) is SourceFileLoader and not is_library(spec.loader.path):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType | None:
        source = self.get_data(self.path)
        head = _MAGIC + _CHECKED + importlib.util.source_hash(source)
        place = importlib.util.cache_from_source(self.path)
        with suppress(OSError, EOFError, ValueError, TypeError):  # there is none, or half of it
            found = self.get_data(place)
            if found[:_HEAD] == head and isinstance(code := marshal.loads(found[_HEAD:]), CodeType):
                return code
        compiled: CodeType = self.source_to_code(source, self.path)
        if not sys.dont_write_bytecode:
            may = Path(self.path).stat().st_mode & 0o666 | 0o200
            self.set_data(place, head + marshal.dumps(compiled), _mode=may)
        return compiled
