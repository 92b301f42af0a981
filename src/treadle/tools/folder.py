"""Files of one folder for tools. No path that a model writes leads out of it.

The text of a path does not prove its target: a part may be a symbolic link, or become one after a check. So paths are
opened part by part, each below the handle of the previous one. The system refuses symbolic links (O_NOFOLLOW). The
final handle is checked after it is open: it must be a regular file with a single name. A file with several hard links
may also exist outside the folder.

A file is written under a temporary name, then renamed over the old file. So a reader sees the old text or the new one.
A link, a pipe or a device at the target is refused. One that appears after the check is replaced, never followed.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from treadle.core.data import frozen
from treadle.errors import ConfigurationError, ToolError

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

MAX_BYTES: Final = 10_000_000
"""Default limit for reading or writing a file, in bytes."""

PATH_MAX: Final = 4_096
"""Most characters of a path."""

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a named pipe blocks until its other end is opened.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class PathRefused(ToolError):
    """The path does not lead to a file inside the tool's folder."""


class Folder:
    """A folder whose files a tool may use, as an argument's annotation: `path: Annotated[FolderPath, NOTES]`.

    Args:
        root: the folder. It must exist when a path in it is used, and its own path may contain symbolic links.
        writable: whether files may be written and removed, and folders made, in it.
        max_bytes: the largest file that may be read or written, in bytes.

    Raises:
        ConfigurationError: `root` is not a path, or `max_bytes` is not a whole number from 1 up.
    """

    __slots__ = ("max_bytes", "root", "writable")

    def __init__(
        self, root: str | os.PathLike[str], *, writable: bool = False, max_bytes: int = MAX_BYTES
    ) -> None:
        if not isinstance(root, (str, os.PathLike)) or root == "":  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"Folder: root must be the path of a folder, got {root!r}")
        if type(max_bytes) is not int or max_bytes < 1:
            raise ConfigurationError(f"Folder: max_bytes must be a whole number from 1 up, got {max_bytes!r}")
        self.root: str = str(Path(cast("Any", root)).absolute())
        self.writable = writable
        self.max_bytes = max_bytes

    def __repr__(self) -> str:
        return f"Folder({self.root!r}, writable={self.writable})"

    def path(self, text: str) -> FolderPath:
        """Return a path below this folder, without access to the file system.

        Args:
            text: the path, relative to the folder, with `/` between its parts. `.` is the folder itself.

        Raises:
            PathRefused: the text is absolute, has a part `..`, a control character, or more than 4,096 characters.
        """
        return FolderPath(self, _parts(text))

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import PydanticCustomError, core_schema

        if source is not FolderPath:
            raise ConfigurationError(
                f"{self!r} is the annotation of a FolderPath, not of {source!r}: Annotated[FolderPath, ...]"
            )

        def parsed(text: str) -> FolderPath:
            try:
                return self.path(text)
            except PathRefused as error:
                raise PydanticCustomError("path", "{why}", {"why": str(error)}) from None

        return core_schema.no_info_after_validator_function(parsed, core_schema.str_schema(strict=True))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": "string", "description": "A path relative to the folder of this tool."}


@frozen
class FolderPath:
    """A path below a folder, made by `Folder.path` or from a tool's argument.

    Its methods raise `PathRefused` if a part of the path is a symbolic link. They also raise it if the target has
    several hard links, or is a device, pipe or socket. They raise `ToolError` if the file is missing or too large.
    """

    folder: Folder
    parts: tuple[str, ...]

    def __str__(self) -> str:
        return "/".join(self.parts) or "."

    @property
    def name(self) -> str:
        """The last part; empty for the folder itself."""
        return self.parts[-1] if self.parts else ""

    def __truediv__(self, text: str) -> FolderPath:
        return FolderPath(self.folder, (*self.parts, *_parts(text)))

    def exists(self) -> bool:
        """Return whether the path is a file or a folder; False for links."""
        try:
            with self._parent() as parent:
                mode = os.stat(self.name or ".", dir_fd=parent, follow_symlinks=False).st_mode
        except (PathRefused, OSError):
            return False
        return stat.S_ISREG(mode) or stat.S_ISDIR(mode)

    def read_bytes(self) -> bytes:
        """Return the content of a file."""
        with self._errors("read"), self._parent() as parent:
            file = self._opened(parent)
            with os.fdopen(file, "rb") as opened:
                data = opened.read(self.folder.max_bytes + 1)
        if len(data) > self.folder.max_bytes:
            raise ToolError(f"{self} has more than {self.folder.max_bytes} bytes, which is all that is read")
        return data

    def read_text(self) -> str:
        """Return the content of a file as UTF-8. Invalid bytes are replaced."""
        return self.read_bytes().decode("utf-8", "replace")

    def write_bytes(self, data: bytes) -> int:
        """Write or replace a file, and return its size in bytes."""
        self._check_writable(len(data))
        with self._errors("write"), self._parent() as parent:
            self._check_place(parent)
            new = f".{secrets.token_hex(8)}.new"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(new, flags, 0o666, dir_fd=parent)
            try:
                with os.fdopen(file, "wb") as opened:
                    opened.write(data)
                os.replace(new, self.name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(new, dir_fd=parent)
                raise
        return len(data)

    def write_text(self, text: str) -> int:
        """Write or replace a file as UTF-8, and return its size in bytes."""
        return self.write_bytes(text.encode("utf-8", "replace"))

    def mkdir(self) -> None:
        """Make a folder, unless it exists."""
        self._check_writable(0)
        with self._errors("make"), self._parent() as parent:
            if not self._is_directory(parent):
                os.mkdir(self.name, dir_fd=parent)

    def unlink(self) -> None:
        """Remove a file, or a link itself."""
        self._check_writable(0)
        with self._errors("remove"), self._parent() as parent:
            os.unlink(self.name, dir_fd=parent)

    def names(self) -> list[str]:
        """Return the names in a folder in alphabetical order, without links."""
        with self._errors("list"), self._parent() as parent:
            directory = os.open(self.name or ".", _DIRECTORY, dir_fd=parent)
            try:
                with os.scandir(directory) as entries:
                    return sorted(entry.name for entry in entries if not entry.is_symlink())
            finally:
                os.close(directory)

    @contextmanager
    def _parent(self) -> Generator[int]:
        """Open the parent folder of the last part, part by part."""
        try:
            handle = os.open(self.folder.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ToolError(f"the folder of this tool cannot be opened: {error.strerror}") from None
        try:
            for part in self.parts[:-1]:
                try:
                    inner = os.open(part, _DIRECTORY, dir_fd=handle)
                except OSError as error:
                    raise self._open_error(error, part, handle) from None
                os.close(handle)
                handle = inner
            yield handle
        finally:
            os.close(handle)

    def _opened(self, parent: int) -> int:
        """Open the file for reading; raise unless it is a regular file with a single name."""
        try:
            file = os.open(self.name or ".", _FILE, dir_fd=parent)
        except OSError as error:
            raise self._open_error(error, self.name, parent) from None
        status = os.fstat(file)
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            return file
        os.close(file)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError
        if stat.S_ISREG(status.st_mode):
            raise PathRefused(
                f"{self} has {status.st_nlink} hard links: it may be a file outside of the folder"
            )
        raise PathRefused(f"{self} is neither a file nor a folder")

    def _check_place(self, parent: int) -> None:
        """Raise unless the path is free or a regular file, which may be replaced."""
        if self._is_directory(parent):
            raise IsADirectoryError
        with suppress(FileNotFoundError):
            mode = os.stat(self.name, dir_fd=parent, follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                raise PathRefused(f"{self} is a symbolic link, and links are not replaced by files")
            if not stat.S_ISREG(mode):
                raise PathRefused(f"{self} is neither a file nor a folder")

    def _is_directory(self, parent: int) -> bool:
        if not self.parts:
            return True
        try:
            return stat.S_ISDIR(os.stat(self.name, dir_fd=parent, follow_symlinks=False).st_mode)
        except FileNotFoundError:
            return False

    def _open_error(self, error: OSError, part: str, handle: int) -> Exception:
        """Return the error for a part that could not be opened. It is `PathRefused` for a symbolic link."""
        with suppress(OSError):
            if stat.S_ISLNK(os.stat(part, dir_fd=handle, follow_symlinks=False).st_mode):
                return PathRefused(f"{self}: {part!r} is a symbolic link, and links are not followed")
        return error

    def _check_writable(self, size: int) -> None:
        if not self.folder.writable:
            raise PathRefused(f"{self} cannot be changed: the folder of this tool is read-only")
        if size > self.folder.max_bytes:
            raise ToolError(f"{self} would have {size} bytes; at most {self.folder.max_bytes} are written")

    @contextmanager
    def _errors(self, verb: str) -> Generator[None]:
        """Translate errors for the model, without the path of the folder itself."""
        try:
            yield
        except FileNotFoundError:
            raise ToolError(f"cannot {verb} {self}: there is no such file or folder") from None
        except IsADirectoryError:
            raise ToolError(f"cannot {verb} {self}: it is a folder") from None
        except NotADirectoryError:
            raise ToolError(f"cannot {verb} {self}: a part of it is not a folder") from None
        except OSError as error:
            raise ToolError(f"cannot {verb} {self}: {os.strerror(error.errno or 0)}") from None


def _parts(text: str) -> tuple[str, ...]:
    if len(text) > PATH_MAX:
        raise PathRefused(f"the path has {len(text)} characters; at most {PATH_MAX} are taken")
    if any(ord(sign) < 32 or ord(sign) == 127 for sign in text) or not _is_encodable(text):
        raise PathRefused("the path has a control character, or a code point that is not a character")
    if not text or text.startswith("/"):
        raise PathRefused(f"{text!r} is not a path relative to the folder")
    parts = tuple([part for part in text.split("/") if part not in ("", ".")])
    if ".." in parts:
        raise PathRefused(f"{text!r} leads out of the folder: a path has no part '..'")
    return parts


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
