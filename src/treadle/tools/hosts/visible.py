"""Paths that every confined program can read: the machine's programs and libraries, and the tool's code."""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

_PROGRAMS: Final = ("/usr", "/bin", "/lib", "/lib32", "/lib64", "/sbin", "/nix/store", "/gnu/store")
_SETTINGS: Final = (
    # Parts of /etc without secrets, one by one: a driver that runs as root could read all of /etc.
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime"),
    *("/etc/timezone", "/etc/mime.types", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/ca-certificates"),
    *("/etc/pki/tls/certs", "/etc/pki/tls/cert.pem", "/etc/pki/ca-trust/extracted", "/etc/crypto-policies"),
)
_NETWORK: Final = (
    *(
        "/etc/resolv.conf",
        "/etc/hosts",
        "/etc/nsswitch.conf",
        "/etc/services",
        "/etc/protocols",
        "/etc/gai.conf",
    ),
    "/etc/host.conf",
)


def machine_paths(*, network: bool) -> list[str]:
    """Return the machine's existing programs, libraries and settings."""
    return [path for path in (*_PROGRAMS, *_SETTINGS, *(_NETWORK if network else ())) if Path(path).exists()]


@cache
def interpreter_paths() -> tuple[str, ...]:
    """Return the paths of this interpreter, its packages and its bytecode cache."""
    executable = os.path.realpath(sys.executable)
    paths = {sys.prefix, sys.base_prefix, sys.exec_prefix, executable, *site.getsitepackages()}
    paths.add(str(Path(__file__).parents[2]))  # this package: it may be an editable install
    paths.update({site.getusersitepackages()} & set(sys.path))
    paths |= {os.path.realpath(path) for path in paths}  # the links that lead there may be invisible
    paths = {
        path for path in paths if path != "/" and ".." not in path.split("/")
    }  # such an interpreter uses the machine's programs
    if sys.pycache_prefix is not None:
        paths |= {sys.pycache_prefix + path for path in paths}
    return tuple(outermost(path for path in paths if Path(path).exists()))


def code_paths(module: str, script: str | None) -> list[str]:
    """Return the files of a tool's module: its script, its file, or its whole top-level package.

    Args:
        module: the module's name.
        script: the path of the driver's script, if it defines the function.
    """
    if script is not None:
        return [script]
    loaded = sys.modules.get(module.partition(".")[0])
    packages = getattr(loaded, "__path__", None)
    files = list(packages) if packages is not None else [getattr(loaded, "__file__", None)]
    return [file for file in files if isinstance(file, str) and Path(file).exists()]


def loaded_from(code: Iterable[str]) -> list[str]:
    """Return the paths from which this process loads code, now and after a restart: modules and programs.

    Args:
        code: the files of a tool's module.
    """
    places = (*interpreter_paths(), *sys.path, *os.get_exec_path(), *code, *sorted(set(_loaded())))
    return [os.path.realpath(path) for path in places]


def _loaded() -> Iterator[str]:
    """Yield the folders of all loaded modules, and of files to which they link."""
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})  # not getattr: some modules compute attributes
        file, folders = names.get("__file__"), names.get("__path__")
        if isinstance(file, str):
            yield os.path.dirname(os.path.abspath(file))  # noqa: PTH100, PTH120  there may be thousands
            if os.path.islink(file):  # noqa: PTH114
                yield file
        if isinstance(folders, Iterable):
            yield from (str(folder) for folder in cast("Iterable[Any]", folders))


def outermost(paths: Iterable[str]) -> list[str]:
    """Return the paths that are not inside another of the paths."""
    outer_paths: list[str] = []
    for path in sorted({str(Path(path).absolute()) for path in paths}, key=len):
        if not any(
            path == outer or path.startswith(outer.rstrip("/") + "/") for outer in (*outer_paths, "/usr")
        ):
            outer_paths.append(path)
    return outer_paths
