"""Command lines that a tool may run. Each word needs a declared role; any other word is refused.

A program is allowed with its declared arguments and options. A word that begins with `-` must be a declared option. Any
other word has the role of its position.

    Command("git", OneOf("log", "diff"), rest=PATH, options={"--oneline": None, "-n": NUMBER})
    Command("curl", Url("api.example.com"), options={"--silent": None})

There is no shell: every word is a plain argument.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from treadle.core.data import frozen
from treadle.errors import ConfigurationError

WORDS: Final = 200
"""Most words in a command line."""

LENGTH: Final = 10_000
"""Most characters in a word."""

_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_HOST: Final = re.compile(r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_PLACE: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*(:[0-9]{1,5})?")
"""A host with its port, without characters that programs decode or that split hosts."""


@frozen
class Text:
    """Any text."""

    def __str__(self) -> str:
        return "TEXT"

    def problem(self, word: str) -> str | None:
        return None


@frozen
class Number:
    """A whole number from 0 on."""

    def __str__(self) -> str:
        return "NUMBER"

    def problem(self, word: str) -> str | None:
        return None if _NUMBER.fullmatch(word) else "is not a whole number"


@frozen
class RelativePath:
    """A path below the working folder. Only a sandbox checks the targets of its symbolic links."""

    def __str__(self) -> str:
        return "PATH"

    def problem(self, word: str) -> str | None:
        if word.startswith(("/", "~")):
            return "is not a path relative to the working folder"
        return "leads out of the working folder" if ".." in word.split("/") else None


@dataclass(frozen=True, init=False)
class OneOf:
    """One of several fixed words, such as subcommands."""

    words: tuple[str, ...]

    def __init__(self, *words: str) -> None:
        if not words or not all(word and not word.startswith("-") for word in words):
            raise ConfigurationError(
                f"OneOf: name words, none of which begins with '-', as that is an option: {words}"
            )
        object.__setattr__(self, "words", words)

    def __str__(self) -> str:
        return "|".join(self.words)

    def problem(self, word: str) -> str | None:
        return None if word in self.words else f"is none of {', '.join(self.words)}"


@dataclass(frozen=True, init=False)
class Url:
    """An HTTP URL on one of the hosts: `api.example.com`, or all subdomains of one, `*.example.org`."""

    hosts: tuple[str, ...]

    def __init__(self, *hosts: str) -> None:
        if not hosts or not all(_HOST.fullmatch(host) for host in hosts):
            raise ConfigurationError(
                f"Url: name hosts, such as `api.example.com` or `*.example.org`: {hosts}"
            )
        object.__setattr__(self, "hosts", hosts)

    def __str__(self) -> str:
        return f"URL of {', '.join(self.hosts)}"

    def problem(self, word: str) -> str | None:
        try:
            parts = urlsplit(word)
            host, _ = parts.hostname or "", parts.port
        except ValueError:
            return "is not a URL"
        # Programs parse these in different ways: a user name, a backslash, and characters that some of them strip.
        if (
            parts.scheme not in ("http", "https")
            or (parts.netloc and not _PLACE.fullmatch(parts.netloc))
            or re.search(r"[\\\s\x00-\x20\x7f]", word)
        ):
            return "is not a plain URL of http or https"
        for allowed in self.hosts:
            if host == allowed or (allowed.startswith("*.") and host.endswith(allowed[1:])):
                return None
        return f"is a URL of {host or 'no host'}, and those of {', '.join(self.hosts)} are allowed"


Role: TypeAlias = Text | Number | RelativePath | OneOf | Url

TEXT: Final = Text()
NUMBER: Final = Number()
PATH: Final = RelativePath()


@dataclass(frozen=True, init=False)
class Command:
    """A program that a tool may run, and the roles of its arguments.

    Args:
        program: its name on PATH, or its absolute path.
        arguments: the role of each argument; the model may leave out the last ones.
        rest: the role of all further arguments; None allows none.
        options: the allowed options, each with the role of its value; None for an option without a value. The value
            is the next word, or follows `=` in the same word.

    Raises:
        ConfigurationError: a name, a role or an option is not valid.
    """

    program: str
    arguments: tuple[Role, ...]
    rest: Role | None
    options: Mapping[str, Role | None]

    def __init__(
        self,
        program: str,
        *arguments: Role,
        rest: Role | None = None,
        options: Mapping[str, Role | None] | None = None,
    ) -> None:
        if not program or not isinstance(program, str) or program.startswith("-"):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"Command: {program!r:.80} is not the name of a program")
        label = f"Command({program!r})"
        for role in (*arguments, *(() if rest is None else (rest,))):
            _check_role(role, label)
        for name, role in (options or {}).items():
            if not name.startswith("-") or name in ("-", "--") or "=" in name:
                raise ConfigurationError(f"{label}: {name!r} is not an option such as '-n' or '--lines'")
            if role is not None:
                _check_role(role, f"{label}, option {name}")
        object.__setattr__(self, "program", program)
        object.__setattr__(self, "arguments", arguments)
        object.__setattr__(self, "rest", rest)
        object.__setattr__(self, "options", dict(options or {}))

    def __str__(self) -> str:
        """Return the usage line that the model reads."""
        options = [f"[{name}]" if role is None else f"[{name} {role}]" for name, role in self.options.items()]
        rest = () if self.rest is None else (f"[{self.rest} ...]",)
        return " ".join((self.program, *options, *(f"<{role}>" for role in self.arguments), *rest))

    def problem(self, words: Sequence[str]) -> str | None:
        """Return why the words after the program are refused; None if they are allowed."""
        places, following = iter(self.arguments), iter(words)
        for word in following:
            if word.startswith("-") and word != "-":
                problem = self._option_problem(word, following)
            else:
                role = next(places, self.rest)
                reason = "is one argument too many" if role is None else role.problem(word)
                problem = reason and f"{word!r:.200} {reason}"
            if problem:
                return problem
        return None

    def _option_problem(self, word: str, following: Any) -> str | None:
        name, equals, value = word.partition("=")
        if name not in self.options:
            return f"the option {name!r:.200} is not allowed"
        role = self.options[name]
        if role is None:
            return f"the option {name!r} takes no value" if equals else None
        if not equals:
            value = next(following, None)
            if value is None:
                return f"the option {name!r} lacks its value"
        if value.startswith("-"):
            return f"the value {value!r:.200} of {name!r} begins with '-'"
        problem = role.problem(value)
        return problem and f"the value {value!r:.200} of {name!r} {problem}"


def _check_role(role: Any, label: str) -> None:
    if not isinstance(role, (Text, Number, RelativePath, OneOf, Url)):
        raise ConfigurationError(
            f"{label}: {role!r:.80} is not a role: write TEXT, NUMBER, PATH, OneOf(...) or Url(...)"
        )


def command_problem(commands: Sequence[Command], words: Sequence[str]) -> str | None:
    """Return why every command refuses a command line; None if one allows it."""
    if not words:
        return "the command line is empty"
    if len(words) > WORDS or any(len(word) > LENGTH for word in words):
        return f"the command line has more than {WORDS} words, or one of more than {LENGTH:,} characters"
    if any("\0" in word for word in words):
        return "a word of the command line has a character of the number 0"
    candidates = [command for command in commands if command.program == words[0]]
    if not candidates:
        names = ", ".join(dict.fromkeys(command.program for command in commands))
        return f"the program {words[0]!r:.200} is not allowed; those allowed are {names}"
    problems = [command.problem(words[1:]) for command in candidates]
    return None if None in problems else f"{words[0]}: {problems[0]}"
