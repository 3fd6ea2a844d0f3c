"""
Imports the module of an entry of the config, and finds its flows.

Discovery and zygote both use it, so a flow that was found can be loaded. An entry is "module"
for every flow in it, or "module:name" for one flow or job. Every failure is a FlowError with code
and place: E210 with the user's own line for an import that fails, E212 for no flow. It executes
user code; never call it in supervisor or worker.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import marshal
import os
import re
import sys
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from pgflowd.core.json import Encoder
from pgflowd.core.redact import one_line
from pgflowd.core.settings.sections import Settings
from pgflowd.core.text import did_you_mean, with_article
from pgflowd.errors import FlowError, Problem
from pgflowd.flow import Flow

# Lets the users' own modules never be older than their source.
#
# Python takes the bytecode in `__pycache__` if the source has the size and the second that it had,
# so of two saves within a second it may load the first. Here the hash of the source decides, as in
# PEP 552; bytecode without a hash is made anew, once. Libraries are loaded as ever.
#
# the bytes before the code: the version of Python, flags, the hash of the source
_MAGIC = importlib.util.MAGIC_NUMBER
_CHECKED = (0b11).to_bytes(4, "little")  # it has a hash, which others shall compare, too
_HEAD = 16
_LIBRARIES = f"{Path(os.__file__).parent}/", f"{Path(__file__).parent.parent}/"


def is_library(filename: str) -> bool:
    """Whether a file is Python's, ours, or was installed; all others are the users' own."""
    outside = any(part in {"site-packages", "dist-packages"} for part in Path(filename).parts)
    return outside or filename.startswith(("<", *_LIBRARIES))


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


_dumps = Encoder(sort_keys=True, default=str)
_SECRET = ("PGPASSWORD", "PGPASSFILE", "NOTIFY_SOCKET", "CREDENTIALS_DIRECTORY")
_SECRET_PREFIXES = ("PGFLOWD__", "WATCHDOG_", "LISTEN_")
_hidden: set[str] = set()  # variables that were removed from this process's environment


def secret_variables(settings: Settings) -> tuple[str, ...]:
    """Return the variables in which the config has its secrets: "env:NAME"."""
    refs = (settings.database.url, settings.database.listen_url, settings.http.token)
    return tuple(ref.target for ref in refs if ref.scheme == "env")


def prepare(python_path: Iterable[str], named: Iterable[str]) -> None:
    """Prepare for user code: set the import path, load no old bytecode, and remove secrets from the
    environment, also the variables named here."""
    named = set(named)
    for name in list(os.environ):
        if name in named or name in _SECRET or name.startswith(_SECRET_PREFIXES):
            del os.environ[name]
            _hidden.add(name)
    here = _directory()
    wanted = [*python_path, *([] if "" in sys.path else here)]
    sys.path[:0] = [path for path in wanted if path not in sys.path]
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(sys.meta_path.index(PathFinder), _Finder)


def load(entry: str) -> list[Flow]:
    """Return the flows that an entry names, imported and not yet checked; after each its undo flow,
    if it has one and is valid."""
    name, _, attribute = entry.partition(":")
    module = _import(name)
    if attribute:
        written = [_flow_named(module, attribute)]
    else:
        flows = {id(flow): flow for flow in map(_as_flow, vars(module).values()) if flow}
        written = list(flows.values())
    if not written:
        text, remedy = f"there is no flow in {name}", 'write one: flow = Flow("…"), or @job'
        raise _error("E212", text, _file_of(module), remedy)
    found = []
    for flow in written:
        found.append(flow)
        with suppress(FlowError):  # which its check reports
            if undo_flow := flow.undo_flow:
                found.append(undo_flow)
    return found


def load_flow(entry: str, slug: str) -> Flow:
    """Return the flow with this slug, as discovery found it in this entry."""
    for flow in load(entry):
        if flow.slug == slug:
            return flow
    raise _error("E212", f"there is no flow {slug} in {entry} any more", None)


def fingerprint(flow: Flow, before: set[str]) -> str:
    """Return a text that changes with the flow's definition and with the files it came from:
    all modules imported since `before`, except libraries."""
    digest = hashlib.sha256(_dumps(flow.shape()).encode())
    imported = [module for name, module in list(sys.modules.items()) if name not in before]
    files = [getattr(module, "__file__", None) for module in imported]
    own = {Path(file) for file in files if isinstance(file, str) and not is_library(file)}
    for path in sorted(own):
        digest.update(str(path).encode())
        try:
            digest.update(path.read_bytes())
        except OSError:
            digest.update(b"?")
    return digest.hexdigest()[:16]


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except SystemExit as error:
        raise _failed(name, error, "it calls sys.exit()") from None
    except SyntaxError as error:
        place = f"{_relative(error.filename or name)}:{error.lineno or 0}"
        raise _error("E210", f"cannot be imported: {_error_text(error)}", place) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _failed(name, error, _error_text(error)) from None


def _failed(name: str, error: BaseException, why: str) -> FlowError:
    remedy = None
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not is_library(frame.filename)]
    place = f"{_relative(own[-1].filename)}:{own[-1].lineno}" if own else name
    text = "\n".join([_error_text(error), *(frame.line or "" for frame in own)])
    hidden = [each for each in sorted(_hidden) if re.search(rf"\b{each}\b", text)]
    if isinstance(error, ModuleNotFoundError) and error.name:
        is_own = name == error.name or name.startswith(f"{error.name}.")
        remedy = (
            "see flows and python_path in [pgflowd]"
            if is_own
            else "install it in the Python environment of pgflowd"
        )
    elif hidden:
        why += f"; the variable {hidden[0]} is a secret of the daemon, hidden from flows"
        remedy = "use ctx.conn() or Client() in handlers, or set another variable"
    elif isinstance(error, KeyError):
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__") == os.__name__:  # `os.environ` raised it
            remedy = f"set the variable {error.args[0]} where the daemon starts"
    return _error("E210", f"cannot be imported: {why}", place, remedy)


def _flow_named(module: ModuleType, attribute: str) -> Flow:
    if not hasattr(module, attribute):
        remedy = did_you_mean(attribute, [k for k, v in vars(module).items() if _as_flow(v)])
        text = f"{module.__name__} has no '{attribute}'"
        raise _error("E212", text, _file_of(module), remedy)
    flow = _as_flow(getattr(module, attribute))
    if flow is None:
        kind = type(getattr(module, attribute)).__name__
        text = f"{module.__name__}:{attribute} is {with_article(kind)}, not a flow or job"
        raise _error("E212", text, _file_of(module))
    return flow


def _as_flow(value: object) -> Flow | None:
    """Return the flow that a module's attribute is, or the flow of a job."""
    if isinstance(value, type):
        return None
    try:
        flow = value if isinstance(value, Flow) else getattr(value, "flow", None)
    except Exception:  # a property of user code may raise anything
        return None
    return flow if isinstance(flow, Flow) else None


def _error(code: str, text: str, place: str | None, remedy: str | None = None) -> FlowError:
    return FlowError([Problem(code, one_line(text, 1000), place, remedy)])


def _error_text(error: BaseException) -> str:
    try:
        text = error.msg if isinstance(error, SyntaxError) else str(error)
    except Exception:
        text = "(its text cannot be read)"
    return f"{type(error).__name__}: {text}"


def _file_of(module: ModuleType) -> str | None:
    file = getattr(module, "__file__", None)
    return _relative(file) if file else None


def _relative(filename: str) -> str:
    path = Path(filename)
    for here in _directory():
        path = path.relative_to(here) if path.is_relative_to(here) else path
    return str(path)


def _directory() -> list[str]:
    """Return the working directory; none if it was deleted."""
    try:
        return [str(Path.cwd())]
    except OSError:
        return []
