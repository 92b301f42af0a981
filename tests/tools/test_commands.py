"""Command lines and the roles of their words."""

from typing import Any

import pytest

from treadle.errors import ConfigurationError
from treadle.tools.commands import NUMBER, PATH, TEXT, Command, OneOf, Url, command_problem

GIT = Command(
    "git", OneOf("log", "diff"), rest=PATH, options={"--oneline": None, "-n": NUMBER, "--author": TEXT}
)
COMMANDS = [
    GIT,
    Command("curl", Url("api.example.com", "*.example.org"), options={"-s": None}),
    Command("echo", rest=TEXT),
]


@pytest.mark.parametrize(
    "line",
    [
        "git log",
        "git log --oneline -n 5 src/a.py b",
        "git log -n=5",
        "git --author=ann diff ./src",
        "curl -s https://api.example.com/x?y=1",
        "curl http://a.example.org:8080/",
        "echo ../x /etc/passwd ; rm",
        "echo $(id) `id` | > x",
        "echo -",
    ],
)
def test_a_declared_command_line_is_allowed(line: str) -> None:
    assert command_problem(COMMANDS, line.split()) is None


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "the command line is empty"),
        ("rm x", "the program 'rm' is not allowed; those allowed are git, curl, echo"),
        ("/bin/git log", "the program '/bin/git' is not allowed"),
        ("git push", "git: 'push' is none of log, diff"),
        ("git log ../x", "'../x' leads out of the working folder"),
        ("git log a/../../x", "leads out of the working folder"),
        ("git log /etc/passwd", "is not a path relative to the working folder"),
        ("git log ~/x", "is not a path relative"),
        ("git log --output=x", "the option '--output' is not allowed"),
        ("git log -nx", "the option '-nx' is not allowed"),
        ("git log -n x", "the value 'x' of '-n' is not a whole number"),
        ("git log -n --output", "the value '--output' of '-n' begins with '-'"),
        ("git log -n", "lacks its value"),
        ("git log --author=-x", "begins with '-'"),
        ("git log --oneline=1", "takes no value"),
        ("git log --", "the option '--' is not allowed"),
        (
            "curl https://evil.test/",
            "is a URL of evil.test, and those of api.example.com, *.example.org are allowed",
        ),
        ("curl https://api.example.com@evil.test/", "is not a plain URL"),
        ("curl https://evil.test\\@api.example.com/", "is not a plain URL"),
        ("curl https://example.org/", "is a URL of example.org"),
        ("curl https://xapi.example.com/", "is a URL of xapi.example.com"),
        ("curl https://xexample.org/", "is a URL of xexample.org"),
        ("curl file:///etc/passwd", "is not a plain URL"),
        ("curl api.example.com", "is not a plain URL"),
        ("curl https://api.example.com:x/", "is not a URL"),
        ("curl -s -o x https://api.example.com", "the option '-o' is not allowed"),
        ("curl https://api.example.com x", "is one argument too many"),
        ("echo " + "x " * 200, "more than 200 words"),
        ("echo a\0b", "a character of the number 0"),
    ],
)
def test_what_no_command_allows_is_refused_with_the_word(line: str, problem: str) -> None:
    found = command_problem(COMMANDS, line.split(" ")[:300] if line else [])
    assert found is not None
    assert problem in found


def test_of_several_commands_of_one_program_one_has_to_allow_a_line() -> None:
    commands = [Command("git", OneOf("log")), Command("git", OneOf("show"), TEXT)]
    assert command_problem(commands, ["git", "show", "HEAD"]) is None
    assert command_problem(commands, ["git", "log", "HEAD"]) == "git: 'HEAD' is one argument too many"


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Command(""), "is not the name of a program"),
        (lambda: Command("git", "log"), "'log' is not a role: write TEXT"),  # pyright: ignore[reportArgumentType]
        (lambda: Command("git", options={"n": None}), "'n' is not an option"),
        (lambda: Command("git", options={"--": None}), "is not an option"),
        (lambda: Command("git", options={"-n": int}), "is not a role"),  # pyright: ignore[reportArgumentType]
        (OneOf, "name words"),
        (lambda: OneOf("--all"), "as that is an option"),
        (Url, "name hosts"),
        (lambda: Url("https://x"), "name hosts"),
    ],
)
def test_a_declaration_that_means_nothing_is_refused(make: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        make()
    assert problem in str(error.value)


def test_a_command_is_told_to_the_model_as_a_line() -> None:
    assert str(GIT) == "git [--oneline] [-n NUMBER] [--author TEXT] <log|diff> [PATH ...]"


@pytest.mark.parametrize(
    "host",
    ["{evil.com%2f,a}.example.org", "evil.com;.example.org", "evil.com%00.example.org", ".example.org"],
)
def test_a_host_that_a_program_reads_as_another_was_allowed(host: str) -> None:
    allowed = [Command("curl", Url("*.example.org"))]
    assert "is not a plain URL" in str(command_problem(allowed, ["curl", f"https://{host}/"]))
    assert command_problem(allowed, ["curl", "https://A.example.org:8443/{x,y}"]) is None
