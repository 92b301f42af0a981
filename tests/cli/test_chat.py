"""`chat`: a conversation on a terminal, and in a pipe."""

import asyncio
import io
import os
import re
import signal
import sys
import termios
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.terminal import Terminal
from tests.forked import completed
from treadle import Agent, Runner, ScriptedModel, ToolContext, tool
from treadle.cli.chat import Chat
from treadle.cli.screen import Screen
from treadle.engine import in_flight
from treadle.llm.scripted import call, text

TALK = '''
import time
from pathlib import Path
from treadle import Agent, ScriptedModel, tool
from treadle.llm.scripted import call, text

LEDGER = Path(__file__).with_name("ledger")


def cancel_booking(booked, ctx):
    LEDGER.open("a").write(f"cancel {booked.output}\\n")


@tool(undo=cancel_booking)
def book(seat: str) -> str:
    """Book a seat."""
    LEDGER.open("a").write(f"book {seat}\\n")
    return seat


@tool
def pay(amount: int) -> str:
    """Pay; whether that happened is lost."""
    LEDGER.open("a").write(f"pay {amount}\\n")
    raise SystemError("the line went dead")


def answer(request):
    said = [message.text for message in request.messages if message.role == "user"]
    last = request.messages[-1]
    if last.role == "tool":
        return text(f"Done: {last.text or last.parts[0].text}.")
    if "book" in said[-1]:
        return call("book", seat="12A")
    if "slow" in said[-1]:
        return text("one two three four five six seven eight nine ten", chunk=4, pause=0.3)
    return text(f"{len(said)} messages, the last: {said[-1]}")


talker = Agent(ScriptedModel(answer), name="talker", tools=[book, pay])
'''


@pytest.fixture
def talk(project, monkeypatch):
    (project / "talk.py").write_text(TALK)
    monkeypatch.setenv("XDG_STATE_HOME", str(project / "state"))
    return project


@pytest.fixture
def piped(talk):
    """Write lines to a conversation, and return its exit code and what it printed."""

    def write(lines: str, *options: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "treadle", "chat", "talk:talker", *options]
        ended = completed(command, cwd=talk, input=lines, timeout=60)
        return ended.returncode, ended.stdout

    return write


@pytest.fixture
def chat(talk):
    """A conversation on a terminal of 80 columns."""
    with Terminal(talk, "chat", "talk:talker", columns=80) as terminal:
        terminal.wait_for("/help")
        yield terminal


def say(terminal: Terminal, text: str, answer: str) -> None:
    terminal.press(f"{text}\r")
    terminal.wait_for(answer)
    terminal.wait_for_prompt()


def test_a_conversation_goes_on_in_its_thread(chat, treadle):
    say(chat, "hello", "1 messages, the last: hello")
    say(chat, "and again", "2 messages, the last: and again")
    say(chat, "/cost", "2 turns")
    chat.press("\x04")
    chat.finished()
    assert chat.process.returncode == 0
    items = treadle("tasks", "--json").document["items"]
    assert [item["state"] for item in items] == ["completed", "completed"]
    assert len({item["thread_id"] for item in items}) == 1


def test_several_lines_are_one_message_and_history_comes_back(chat, talk):
    chat.press("first\x1b\rsecond")
    say(chat, "", "the last: first")
    chat.press("\x1b[A")
    chat.wait_for("first", 5)
    chat.press("\x03")
    history = talk / "state" / "treadle" / "chat-history"
    assert "first" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


def test_ctrl_c_interrupts_an_answer_and_the_conversation_goes_on(chat, treadle):
    chat.press("slow please\r")
    chat.wait_for("one two")
    chat.press("\x03")
    chat.wait_for("the last turn is interrupted")
    chat.wait_for_prompt()
    say(chat, "be quick", "the last: be quick")
    for times in (2, 3):  # also a second time
        chat.press("slow please\r")
        chat.wait_for("one two", times=times)
        chat.press("\x03")
        chat.wait_for("the last turn is interrupted", times=times)
        chat.wait_for_prompt()
    say(chat, "/undo", "taken back")
    chat.press("\x03\x04")
    chat.finished()
    assert chat.process.returncode == 0


def test_a_turn_is_taken_back_with_its_calls_and_its_text_can_be_edited(chat, talk, treadle):
    say(chat, "hello", "1 messages, the last: hello")
    say(chat, "book it", "Done: ")
    assert (talk / "ledger").read_text() == "book 12A\n"
    say(chat, "/undo", "taken back")
    assert (talk / "ledger").read_text() == "book 12A\ncancel 12A\n"
    chat.press("\x15")
    say(chat, "never mind", "2 messages, the last: never mind")


def test_a_fork_goes_on_beside_the_conversation(chat, treadle):
    say(chat, "hello", "1 messages, the last: hello")
    say(chat, "/fork", "in a copy now")
    say(chat, "what if", "2 messages, the last: what if")
    say(chat, "/undo", "taken back")
    chat.press("\x15")
    say(chat, "or else", "2 messages, the last: or else")
    threads = {item["thread_id"] for item in treadle("tasks", "--json").document["items"]}
    assert len(threads) == 2


def test_without_the_extra_a_terminal_reads_lines_as_they_are(talk, treadle):
    (talk / "prompt_toolkit.py").write_text("raise ImportError")
    with Terminal(talk, "chat", "talk:talker", columns=80) as terminal:
        terminal.wait_for_prompt()
        say(terminal, "hello", "1 messages, the last: hello")
        terminal.press("slow please\r")
        terminal.wait_for("one two")
        terminal.press("\x03")
        terminal.wait_for("the last turn is interrupted")
        terminal.wait_for_prompt()
        terminal.press("\x03")
        say(terminal, "/thread", "-")
        terminal.press("\x04")
        terminal.finished()
        assert terminal.process.returncode == 0


def test_in_a_pipe_each_line_is_a_message(piped):
    code, out = piped("hello\nfirst \\\nsecond\n/nothing\n/history\n/quit\nnot read\n")
    assert code == 0
    assert "1 messages, the last: hello" in out
    assert re.search(r"2 messages, the last: first\s+second", out)
    assert "there is no command /nothing" in out
    assert re.search("user: hello\nassistant: 1 messages", out)
    assert "not read" not in out


def test_a_conversation_is_continued(piped):
    piped("hello\n", "--thread", "talk")
    _, out = piped("again\n", "--last")
    assert "thread talk: 1 turn so far" in out
    assert "2 messages, the last: again" in out


def test_a_person_is_asked_what_a_turn_waits_for(talk, piped):
    source = (talk / "talk.py").read_text()
    source = source.replace('call("book", seat="12A")', 'call("pay", amount=5)')
    (talk / "talk.py").write_text(
        source.replace('raise SystemError("the line went dead")', "import os; os._exit(9)")
    )
    assert piped("book it\n", "--thread", "talk")[0] == 9
    _, out = piped('/resume\ny\n"paid"\n', "--thread", "talk")
    assert "did it take effect?" in out
    assert "Done: " in out
    assert (talk / "ledger").read_text() == "pay 5\n"


ASKING = """
from pathlib import Path
from treadle import Agent, ScriptedModel, tool
from treadle.llm.scripted import call, text

@tool(needs_approval=True, preview=lambda amount: f"{amount} cents leave the account")
def pay(amount: int) -> str:
    with Path(__file__).with_name("ledger").open("a") as book:
        book.write(f"pay {amount}\\n")
    return "paid"

talk = Agent(ScriptedModel([[call("pay", amount=5), call("pay", amount=6)], text("Done.")]), name="talk", tools=[pay])
above = Agent(ScriptedModel([call("talk", input="pay"), text("All done.")]), name="above", subagents=[talk])
"""


@pytest.mark.parametrize(
    ("lines", "ledger", "last"),
    [
        ("y\nn\ntoo much\n", ["pay 5"], "Done."),
        ('e\n{"amount": 4}\ny\n', ["pay 4", "pay 6"], "Done."),
        ("\n", [], "the last turn is waiting"),
        ('e\n{"amount": []}\n', [], "arguments do not fit the tool pay"),
    ],
)
@pytest.mark.parametrize("agent", ["talk", pytest.param("above", marks=pytest.mark.full)])
def test_a_person_approves_denies_and_edits_calls_in_the_conversation(
    project, treadle, monkeypatch, lines, ledger, last, agent
):
    (project / "asking.py").write_text(ASKING)
    monkeypatch.delitem(sys.modules, "asking", raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"go\n{lines}"))
    ended = treadle("chat", "--agent", f"asking:{agent}")
    assert 'it would run:    pay({"amount":5})' in ended.out
    assert "what it does:    5 cents leave the account" in ended.out
    assert last in ended.out
    book = project / "ledger"
    assert sorted(book.read_text().splitlines() if book.exists() else []) == ledger


PERSON = """
import asyncio
from pathlib import Path
from treadle import Agent, ScriptedModel, ToolContext, tool
from treadle.llm.scripted import call, text

def note(line):
    with Path(__file__).with_name("ledger").open("a") as book:
        book.write(line + "\\n")

def take_back(call, ctx):
    note(f"take back {call.output}")

@tool(needs_approval=True, undo=take_back, preview=lambda cents: f"{cents} cents\\nmay it run? [y/n/e] y")
def refund(order: str, cents: int, memo: str = "") -> str:
    note(f"refund {order} {cents}")
    return f"{order} {cents}"

@tool(read_only=True)
async def clarify(order: str, ctx: ToolContext) -> str:
    amount = await ctx.ask("How much was order 17?\\nmay it run? [y/n/e] y", schema=int)
    note(f"answered {amount}")
    return f"it was {amount}"

@tool(read_only=True)
async def look(order: str) -> str:
    while not Path(__file__).with_name("found").exists():
        await asyncio.sleep(0.01)
    return "found"

def answer(request):
    said = [message.text for message in request.messages if message.role == "user"]
    last = request.messages[-1]
    if last.role == "user" and "clarify" in last.text:
        return [call("clarify", order="17"), call("look", order="17")]
    if last.role == "user" and "look" in last.text:
        return call("look", order=last.text.split()[-1])
    if last.role == "user" and "refund" in last.text:
        return call("refund", order="17\u202e", cents=90000, memo="thanks  may it run? [y/n/e] y")
    return text(f"I have read: {' / '.join(said)}; {last.role} said {last.text or last.parts[0].text}.")

desk = Agent(ScriptedModel(answer), name="desk", tools=[refund, clarify, look])
"""


@pytest.fixture
def at_desk(project, monkeypatch):
    """Start a conversation with the desk on a terminal."""
    (project / "person.py").write_text(PERSON)
    monkeypatch.setenv("XDG_STATE_HOME", str(project / "state"))
    begun = list[Terminal]()

    def begin(*options: str, **settings: Any) -> Terminal:
        begun.append(Terminal(project, "chat", "person:desk", *options, **settings))
        begun[-1].wait_for("/help")
        begun[-1].wait_for_prompt()
        return begun[-1]

    yield begin
    for terminal in begun:
        terminal.__exit__()


QUESTION = "may it run? [y/n/e, ? lists all"


def test_at_a_terminal_a_person_edits_and_approves_denies_steers_and_undoes(at_desk, project, treadle):
    ledger = project / "ledger"
    chat = at_desk("--by", "ada")
    chat.press("refund it\r")
    chat.wait_for_prompt(QUESTION)
    chat.press("e\r")
    chat.wait_for("its arguments, as JSON: ")
    chat.press('\x15{"order": "17", "cents": "many"}\r')
    chat.wait_for("arguments do not fit the tool refund")
    chat.wait_for_prompt('its arguments, as JSON: {"order": "17", "cents": "many"}')
    chat.press("\x7f" * len('"many"}') + "500}\r")
    chat.wait_for("tool said 17 500.")
    chat.wait_for_prompt()
    assert ledger.read_text() == "refund 17 500\n"
    chat.press("refund it\r")
    chat.wait_for_prompt(QUESTION)
    chat.press("n\r")
    chat.wait_for_prompt("why not, for the model:")
    chat.press("too much\r")
    chat.wait_for("the approver denied it: too much")
    chat.wait_for_prompt()
    chat.press("clarify it\r")
    chat.wait_for_prompt("the answer, Enter: later:")
    chat.wait_for("│ may it run? [y/n/e] y")
    chat.press("many\r")
    chat.wait_for("which stays open")
    chat.wait_for_prompt("the answer, Enter: later: many")
    chat.press("\x7f" * 4 + "42\r")
    chat.wait_for("clarify: it was 42")
    chat.press("quick")  # while another call of the turn still runs, after a question
    chat.wait_for_prompt("» quick")
    chat.press("\r")
    chat.wait_for("sent: the model reads it with its next request")
    (project / "found").touch()
    chat.wait_for("clarify it / quick;")
    chat.wait_for_prompt()
    (project / "found").unlink()
    chat.press("look at 18\r")
    chat.wait_for("look(order=18)")
    chat.press("and be brief")
    chat.wait_for_prompt("» and be brief")
    chat.press("\r")
    chat.wait_for("sent: the model reads it with its next request", times=2)
    (project / "found").touch()
    chat.wait_for("user said and be brief.")
    chat.wait_for_prompt()
    for times in range(1, 5):
        chat.press("/undo\r")
        chat.wait_for("taken back; write on from there", times=times)
        chat.wait_for_prompt()
        chat.press("\x15")
    assert ledger.read_text() == "refund 17 500\nanswered 42\ntake back 17 500\n"
    chat.press("\x04")
    chat.finished()
    assert chat.process.returncode == 0
    history = (project / "state" / "treadle" / "chat-history").read_text()
    assert "refund it" in history
    assert "too much" not in history, "answers to questions are no messages"


@pytest.mark.full
@pytest.mark.parametrize("kind", ["without the extra", "dumb"])
def test_a_plain_terminal_asks_for_lines_and_ctrl_c_leaves_a_question_open(at_desk, project, kind):
    if kind == "without the extra":
        (project / "prompt_toolkit.py").write_text("raise ImportError")
    chat = at_desk(**({"TERM": "dumb"} if kind == "dumb" else {}))
    chat.press("refund it\r")
    chat.wait_for_prompt(QUESTION)
    chat.press("e\r")
    chat.wait_for("    now: {")
    chat.wait_for_prompt("its arguments, as JSON:")
    chat.press("\x03")
    chat.wait_for("the last turn is waiting")
    assert "\n● waiting" in chat.screen.text
    chat.wait_for_prompt()
    chat.press("/resume\r")
    chat.wait_for_prompt(QUESTION)
    chat.press("stop it is too much\r")
    chat.wait_for("● cancelled")
    chat.wait_for_prompt()
    chat.press("look at 18\r")
    chat.wait_for("look(order=18)")
    chat.press("be brief\r")  # a line is sent as a whole
    chat.wait_for("sent: the model reads it")
    (project / "found").touch()
    chat.wait_for("be brief; user said be brief.")
    chat.wait_for_prompt()
    chat.press("\x04")
    chat.finished()
    assert chat.process.returncode == 0
    assert not (project / "ledger").exists()


@pytest.mark.full
def test_the_terminal_is_left_as_it_was(at_desk):
    chat = at_desk()
    chat.press("look at 18\r")
    chat.wait_for("look runs")
    assert not termios.tcgetattr(chat._master)[3] & termios.ECHO, "keys do not stand amid the answer"
    chat.press("\x03")
    chat.wait_for("the last turn is interrupted")
    chat.wait_for_prompt()
    chat.press("\x04")
    chat.finished()
    assert termios.tcgetattr(chat._master)[3] & termios.ECHO
    assert termios.tcgetattr(chat._master)[3] & termios.ICANON


def test_chat_prints_no_json(treadle):
    ended = treadle("chat", "math", "--json")
    assert ended.code == 2
    assert "run --thread ID --json" in ended.document["error"]["detail"]


# ------------------------------------------------------------------------------------- in this process


class Lines:
    """A person who writes lines; a line may be a function, which is called in place of what it returns."""

    def __init__(self, *lines: str | Callable[[], str]) -> None:
        self._lines = [*lines]

    async def ask(self, mark: str, default: str = "") -> str:
        if not self._lines:
            raise EOFError
        line = self._lines.pop(0)
        return line if isinstance(line, str) else line()

    async def answer(self, mark: str, default: str = "") -> str:
        return await self.ask(mark, default)

    is_interactive = False

    def quiet(self) -> nullcontext[None]:
        return nullcontext()

    async def typed(self) -> None:
        await asyncio.Event().wait()

    def interrupt(self) -> bool:
        return False


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


async def held(agent: Agent[Any], *lines: str | Callable[[], str], store: str = "memory:") -> None:
    """Hold a conversation."""
    async with Runner(store, agents=[agent]) as runner:
        chat = Chat(Screen(json=False), runner, agent, "talk", None)
        await chat.open()
        await chat.run(Lines(*lines))


@pytest.mark.anyio
async def test_ctrl_c_tells_how_each_call_ended_also_one_that_does_not_stop(capfd, monkeypatch):
    monkeypatch.setattr(in_flight, "GRACE", 0.02)
    monkeypatch.setattr(in_flight, "INSIST", 0.02)
    end = asyncio.Event()

    @tool
    async def stubborn() -> str:
        """Run on."""
        press_ctrl_c()
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                press_ctrl_c()  # once more, while it is being stopped
        return "too late"

    @tool(read_only=True)
    async def nap() -> str:
        """Sleep."""
        await asyncio.sleep(60)
        return "rested"

    def answer(request):
        said = [message.text for message in request.messages if message.role == "user"]
        return [text("Hello."), call("nap") if "nap" in said[-1] else call("stubborn")][len(said) > 1]

    agent = Agent(ScriptedModel(answer), name="talker", tools=[stubborn, nap])
    await held(agent, "hello", "go\non", "", "/history")
    end.set()
    out = capfd.readouterr().out
    assert "running" not in out
    assert "stubborn was stopped (abandoned)" in out
    assert "● interrupted" in out
    assert "the last turn is interrupted" in out
    assert "user: hello\nassistant: Hello.\nuser: go\n  on\n" in out, (
        "the history holds the turn that was cut off"
    )


@pytest.mark.anyio
async def test_a_call_that_ctrl_c_stops_is_named(capfd):
    @tool(read_only=True)
    async def nap() -> str:
        """Sleep."""
        press_ctrl_c()
        await asyncio.sleep(60)
        return "rested"

    agent = Agent(ScriptedModel([call("nap"), text("Rested.")]), name="talker", tools=[nap])
    await held(agent, "go", "/cost")
    out = capfd.readouterr().out
    assert "■ interrupted" in out
    assert "nap was stopped" in out
    assert "1 turn" in out


@pytest.mark.anyio
async def test_a_message_that_made_no_task_leaves_nothing_unfinished(capfd):
    @tool(read_only=True)
    def whoami(ctx: ToolContext[Runner]) -> str:
        """Tell who asks."""
        return "nobody"

    agent = Agent(ScriptedModel(["Hi."] * 3), name="talker", tools=[whoami])
    await held(agent, "hello", "hello again", "/resume", "/history")
    out = capfd.readouterr().out
    assert out.count("its tool 'whoami' needs a context") == 2
    assert "nothing is unfinished" in out
    assert "nothing was said yet" in out


@pytest.mark.anyio
async def test_a_call_whose_request_was_shown_sooner_was_asked_about_before_an_earlier_one(monkeypatch):
    """A question waited until its request was on the screen, and a later one could find its own there at once."""
    agent: Agent[Any] = Agent(ScriptedModel([text("Hi.")]), name="talk")
    asked, shown = list[str](), set[str]()

    class Asks:
        async def decide(self, items: list[Any]) -> None:
            asked.extend(item.request_id for item in items)

    async with Runner("memory:", agents=[agent]) as runner:
        chat = Chat(Screen(json=False), runner, agent, "talk", None)
        monkeypatch.setattr(chat, "_unfinished", "t1")
        monkeypatch.setattr(chat, "_timeline", SimpleNamespace(requests=shown))
        monkeypatch.setattr(chat, "_steering", SimpleNamespace(question=nullcontext))
        monkeypatch.setattr(chat, "_dialogue", Asks)
        requests = [SimpleNamespace(task_id="t1", request_id=f"s1-{number}-ask1") for number in range(2)]
        first = asyncio.ensure_future(chat.decide(requests[0]))
        await asyncio.sleep(0)  # it looks at the screen, and its request is not there yet
        shown.update(item.request_id for item in requests)
        await asyncio.gather(chat.decide(requests[1]), first)
    assert asked == ["s1-0-ask1", "s1-1-ask1"]
