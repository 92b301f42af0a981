"""`ToolIndex`: of very many tools a request holds the few that fit."""

import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

import pytest

from tests.tools.catalogue import tools
from tests.tools.requests_in_words import MORE_REQUESTS, REQUESTS
from tests.tools.untuned_requests import UNTUNED_REQUESTS
from treadle import Agent, RequestContext, Runner, ScriptedModel, ToolIndex, tool
from treadle.core.events import ModelStarted
from treadle.core.messages import Message, Reasoning, Text, ToolCall, ToolResult, user
from treadle.errors import ConfigurationError, MissingExtra
from treadle.llm.scripted import call, fail, turn
from treadle.replay.recording import journal_of
from treadle.testing.audit import Evidence, audit_store

MANY = tuple(tools())
NAMES = [spec_of.spec.name for spec_of in MANY]


def asking(*messages: Message | str, tools: Sequence[Any] = MANY) -> RequestContext[Any]:
    """A request after these messages, of a task that was begun with the first of them."""
    conversation = [user(message) if isinstance(message, str) else message for message in messages]
    return RequestContext("t1", "talk", (Text(conversation[0].text),), None, 1, conversation, tuple(tools))


def offered(index: ToolIndex, *messages: Message | str, tools: Sequence[Any] = MANY) -> set[str]:
    return set(index(asking(*messages, tools=tools)))  # type: ignore[arg-type]


def score(index: ToolIndex, requests: Mapping[str, Any]) -> int:
    hits = 0
    for message, right in requests.items():
        names = offered(index, message)
        assert len(names) <= 8
        hits += not names.isdisjoint({right} if isinstance(right, str) else right)
    return hits


def test_each_request_offers_the_fitting_few_of_over_six_hundred_tools() -> None:
    assert len(set(NAMES)) == len(NAMES) == 621
    assert len(REQUESTS) == 50
    assert score(ToolIndex(top=8), REQUESTS) >= 43


def test_most_requests_that_paraphrase_the_description_find_their_tool() -> None:
    assert len(MORE_REQUESTS) == 70
    assert score(ToolIndex(top=8), MORE_REQUESTS) >= 57


def test_half_of_the_requests_on_which_nothing_was_tuned_find_their_tool() -> None:
    assert len(UNTUNED_REQUESTS) == 40
    assert score(ToolIndex(top=8), UNTUNED_REQUESTS) >= 20


def test_a_request_over_all_of_them_costs_little() -> None:
    index = ToolIndex()
    began = time.perf_counter()
    offered(index, "the first one builds the index")
    built = time.perf_counter() - began
    seconds: list[float] = []
    for request in REQUESTS:
        began = time.perf_counter()
        offered(index, request, Message("assistant", (Text("I look for it. " * 20),)))
        seconds.append(time.perf_counter() - began)
    assert built < 1.0  # 0.01 s on an idle machine
    assert median(seconds) < 0.02  # 0.5 ms


# ------------------------------------------------------------------------------------- what it looks at


def test_the_text_of_the_model_selects_the_tool_it_plans_to_call() -> None:
    index = ToolIndex(top=4)
    message = "Look after ticket 17."
    assert "billing_refund_payment" not in offered(index, message)
    for part in (Text("I will refund the payment."), Reasoning("They want a refund of their payment.")):
        names = offered(index, message, Message("assistant", (part,)))
        assert "billing_refund_payment" in names


def test_a_result_selects_the_tool_that_it_mentions() -> None:
    call_message = Message("assistant", (ToolCall("s1-0", "helpdeskFetchTicket", {"id": "17"}),))
    result = ToolResult("s1-0", "helpdeskFetchTicket", (Text("Where is my parcel? When does it arrive?"),))
    index = ToolIndex(top=6)
    assert "shop_track_shipment" not in offered(index, "Look after ticket 17.")
    assert "shop_track_shipment" in offered(
        index, "Look after ticket 17.", call_message, Message("tool", (result,))
    )


def test_a_newer_message_of_the_user_counts_more_than_the_input_of_the_task() -> None:
    index = ToolIndex(top=3)
    names = offered(index, "Pause the subscription of Acme.", "No, send a payment reminder for the invoice.")
    assert "billing_send_payment_reminder" in names


def test_a_message_without_significant_words_leaves_the_input_of_the_task() -> None:
    assert "billing_pause_subscription" in offered(ToolIndex(), "Pause the subscription of Acme.", "Hurry!")


def test_an_answer_before_the_message_does_not_outweigh_the_message() -> None:
    before = Message("assistant", (Text("The door is open and the room is warmer."),))
    index = ToolIndex(top=3)
    message = "Void the invoice."
    assert offered(index, message, before, message) == offered(index, message)
    index = ToolIndex()
    yes = offered(
        index, "Hm.", Message("assistant", (Text("Shall I void the invoice?"),)), "Yes please, do it."
    )
    assert "billing_void_invoice" in yes


def test_results_before_the_last_answer_do_not_count() -> None:
    call_message = Message("assistant", (ToolCall("s1-0", "helpdeskFetchTicket", {}),))
    result = Message("tool", (ToolResult("s1-0", "helpdeskFetchTicket", (Text("Where is my parcel?"),)),))
    later_message = Message("assistant", (Text("Hm."), ToolCall("s2-0", "helpdeskEscalateTicket", {})))
    done = Message("tool", (ToolResult("s2-0", "helpdeskEscalateTicket", (Text("ok"),)),))
    names = offered(ToolIndex(), "Look after ticket 17.", call_message, result, later_message, done)
    assert "shop_track_shipment" not in names
    assert {"helpdeskFetchTicket", "helpdeskEscalateTicket"} <= names


def test_the_head_and_the_tail_of_a_long_message_are_read() -> None:
    padding = "lorem ipsum dolor " * 1_000
    for message in (f"Void the invoice. {padding}", f"{padding} Void the invoice."):
        assert "billing_void_invoice" in offered(ToolIndex(), message)
    assert offered(ToolIndex(), f"{padding} Void the invoice. {padding}") == set()


def test_a_word_in_a_name_counts_more_than_a_word_in_a_description() -> None:
    described = tool(lambda: None, name="first", description="Say what the weather is.")
    named = tool(lambda: None, name="weather", description="Say what it is like.")
    assert offered(ToolIndex(top=1), "the weather", tools=[described, named]) == {"weather"}


def test_a_tool_that_was_called_a_moment_ago_stays_whether_it_was_offered_or_not() -> None:
    index = ToolIndex(top=2)
    call_message = Message(
        "assistant", (ToolCall("s1-0", "fleet_open_door", {}), ToolCall("s1-1", "nobody", {}))
    )
    results = Message("tool", (ToolResult("s1-0", "fleet_open_door", ()), ToolResult("s1-1", "nobody", ())))
    names = offered(index, "Void invoice 5.", call_message, results)
    assert "fleet_open_door" in names
    assert "nobody" not in names
    assert len(names) == 3, "besides the best two"
    filler = [Message("assistant", (Text("I think."),)), user("Go on.")] * 12
    assert "fleet_open_door" not in offered(index, "Void invoice 5.", call_message, results, *filler)


def test_names_in_humps_and_inflected_words_are_found() -> None:
    @tool(read_only=True)
    def getHTTPStatus(pageURL: str) -> str:  # noqa: N802, N803
        """Probe."""
        return ""

    @tool(read_only=True)
    def other(n: int) -> str:
        """Do whatever else.

        Args:
            n: number of ballots counted
        """
        return ""

    index = ToolIndex(top=1)
    assert offered(index, "the status over HTTP", tools=[other, getHTTPStatus]) == {"getHTTPStatus"}
    assert offered(index, "a url", tools=[other, getHTTPStatus]) == {"getHTTPStatus"}
    assert offered(index, "counting a ballot", tools=[getHTTPStatus, other]) == {"other"}


@pytest.mark.parametrize(
    "message", ["", "!?", 'NEAR("x" OR * AND', "the of and", "会议室", "\x00", "\ud800", "x" * 100_000]
)
def test_a_message_that_finds_nothing_offers_nothing(message: str) -> None:
    assert offered(ToolIndex(), message) == set()
    assert offered(ToolIndex(always=["fleet_open_door"]), message) == {"fleet_open_door"}


def test_an_agent_with_no_more_tools_than_that_offers_them_all() -> None:
    assert offered(ToolIndex(top=8), "Hello.", tools=MANY[:8]) == set(NAMES[:8])
    assert offered(ToolIndex(top=8), "Hello.", tools=MANY[:9]) == set()
    assert offered(ToolIndex(top=8), "Hello.", tools=[]) == set()


def test_of_tools_with_equal_scores_the_first_ones_are_offered() -> None:
    twins = [
        tool(lambda: None, name=f"t{n}", description="Tell the time.", read_only=True) for n in range(20)
    ]
    assert offered(ToolIndex(top=3), "the time", tools=twins) == {"t0", "t1", "t2"}
    assert offered(ToolIndex(top=3, embed=lambda texts: [[1.0] for _ in texts]), "the time", tools=twins) == {
        "t0",
        "t1",
        "t2",
    }


def test_two_indexes_offer_the_same_and_threads_may_share_one() -> None:
    shared, first = ToolIndex(), ToolIndex()
    expected = {request: offered(first, request) for request in REQUESTS}
    seen: list[bool] = []

    def ask(messages: Iterable[str]) -> None:
        seen.extend(offered(shared, message) == expected[message] for message in messages)

    threads = [
        threading.Thread(target=ask, args=(list(REQUESTS)[n:] + list(REQUESTS)[:n],)) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 200
    assert all(seen)


def test_one_index_serves_agents_with_other_tools() -> None:
    index = ToolIndex(top=1)
    for _ in range(2):
        for half in (MANY[:300], MANY[300:]):
            names = offered(index, "Void the invoice, open the door.", tools=half)
            assert names == ({"billing_void_invoice"} if half is MANY[:300] else names)
            assert names <= {each.spec.name for each in half}
    for n in range(20):
        offered(index, "Void the invoice.", tools=MANY[n : n + 5])
    assert len(index._built) <= 8, "it does not hold on to agents that are gone"


# -------------------------------------------------------------------------------------------- by meaning


class Meaning:
    """An embedding by hand: one dimension for each thing, whichever of its names a text uses."""

    THINGS = (("tür", "door"), ("rechnung", "invoice"), ("urlaub", "leave", "vacation"))

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        self.batches.append(list(texts))
        return [
            [float(any(w in text.lower() for w in synonyms)) for synonyms in self.THINGS] for text in texts
        ]


def test_an_embedding_finds_tools_that_words_do_not() -> None:
    meaning = Meaning()
    message = "Mach bitte die Tür auf!"
    assert "fleet_open_door" not in offered(ToolIndex(), message)
    by_meaning = ToolIndex(top=3, embed=meaning, lexical=False)
    assert "fleet_open_door" in offered(by_meaning, message)
    assert "fleet_open_door" in offered(ToolIndex(top=3, embed=meaning), message)


def test_the_vectors_of_tools_are_computed_once_in_batches() -> None:
    meaning = Meaning()
    index = ToolIndex(embed=meaning)
    for message in ("Die Tür", "Urlaub", "Rechnung"):
        offered(index, message)
    offered(index, "Die Tür", tools=MANY[:100])
    assert [len(batch) for batch in meaning.batches] == [64] * 9 + [45, 1, 1, 1, 1]


def test_without_its_extra_an_embedding_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    monkeypatch.delitem(sys.modules, "treadle.tools.meaning", raising=False)
    with pytest.raises(MissingExtra, match=r"pip install '/path/to/treadle\[index\]'"):
        ToolIndex(embed=Meaning())
    assert "fleet_open_door" in offered(ToolIndex(), "Open the door.")


def test_a_message_unlike_any_tool_offers_nothing() -> None:
    assert offered(ToolIndex(embed=Meaning(), lexical=False), "Guten Tag!") == set()


def test_both_rankings_take_part() -> None:
    index = ToolIndex(top=4, embed=Meaning())
    names = offered(index, "convert a currency; Tür")
    assert {"financeConvertCurrency", "fleet_open_door"} <= names


@pytest.mark.parametrize(
    ("embed", "why"),
    [
        (lambda texts: [[1.0]], "shape .1, 1. for 64 texts"),
        (lambda texts: [[1.0] * (1 + (len(texts) == 1)) for _ in texts], "different lengths"),
        (lambda texts: [[1.0] * len(texts) for _ in texts], "different lengths"),
        (lambda texts: [[1.0] * n for n, _ in enumerate(texts)], "list of numbers for each text"),
        (lambda texts: None, "list of numbers for each text"),
        (lambda texts: [["x"] for _ in texts], "list of numbers for each text"),
        (lambda texts: [[float("nan")] for _ in texts], "not finite"),
    ],
)
def test_an_embedding_that_returns_something_else_is_named(embed: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        offered(ToolIndex(embed=embed), "door")


# --------------------------------------------------------------------------------------------- in agents


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"top": 0}, "top"),
        ({"top": True}, "top"),
        ({"always": "fleet_open_door"}, "always"),
        ({"always": [5]}, "always"),
        ({"always": 5}, "always"),
        ({"always": ["fleet_open_dor"]}, "did you mean 'fleet_open_door'"),
        ({"embed": 5}, "embed"),
        ({"lexical": False}, "lexical"),
    ],
)
def test_a_wrong_argument_is_named_before_anything_runs(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        agent("Hello.", **wrong)


def agent(*script: Any, worker: Any = "function_calling", **more: Any) -> Agent[Any]:
    return Agent(
        ScriptedModel(list(script)), name="clerk", tools=MANY, offer=ToolIndex(**more), worker=worker
    )


def test_the_settings_of_an_index_make_versions_of_an_agent() -> None:
    versions = [
        agent("Hi."),
        agent("Hi.", top=9),
        agent("Hi.", always=NAMES[:1]),
        agent("Hi.", embed=Meaning()),
    ]
    assert len({version.fingerprint for version in versions}) == 4
    assert agent("Hi.").fingerprint == versions[0].fingerprint


async def offers(runner: Runner, task_id: str) -> list[Any]:
    return [
        event.offered for event in await journal_of(runner.store, task_id) if isinstance(event, ModelStarted)
    ]


@pytest.mark.anyio
async def test_a_task_finds_its_tools_and_its_journal_names_the_offered_tools() -> None:
    clerk = agent(
        call("billing_void_invoice", id="4711"),
        call("mailSendEmail", id="x"),
        turn("I email the customer.", call("mailSendEmail", id="x")),
        "Done.",
    )
    async with Runner("memory:") as runner:
        result = await runner.run(clerk, "Void invoice 4711.")
        names = await offers(runner, result.task_id)
        assert await audit_store(runner.store, Evidence(ended=True)) == []
    assert [(run.name, run.outcome) for run in result.tool_executions] == [
        ("billing_void_invoice", "ok"),
        ("mailSendEmail", "invalid"),
        ("mailSendEmail", "ok"),
    ], "what was called, and not offered, is offered next"
    assert [len(name) for name in names] == [8, 9, 10, 10]
    assert [tuple(spec.name for spec in request.tools) for request in clerk.model.requests] == names
    assert all(list(name) == sorted(name, key=NAMES.index) for name in names)


@pytest.mark.anyio
async def test_a_request_made_again_by_another_runner_does_not_ask_the_index(tmp_path: Any) -> None:
    meaning = Meaning()
    first, second = (agent(fail(500), "Done.", embed=meaning) for _ in range(2))
    async with Runner(tmp_path / "journal.db") as runner:
        failed = await runner.run(first, "Open the door.")
        assert failed.state == "failed"
    batches_before = len(meaning.batches)
    async with Runner(tmp_path / "journal.db", agents=[second]) as runner:
        await runner.resume(failed.task_id)
        names = await offers(runner, failed.task_id)
    assert len(names) == 2
    assert names[0] == names[1]
    assert len(meaning.batches) == batches_before


@pytest.mark.anyio
async def test_a_model_that_writes_its_calls_reads_of_the_few_only() -> None:
    answer = 'Thought: The door first.\nAction: fleet_open_door\nAction Input: {"id": "5"}'
    clerk = agent(answer, "Thought: Done.\nAnswer: It is open.", worker="react", top=5)
    async with Runner("memory:") as runner:
        result = await runner.run(clerk, "Let the courier in, open the door please.")
    assert (result.final_text, [run.outcome for run in result.tool_executions]) == ("It is open.", ["ok"])
    instructions = clerk.model.requests[0].instructions
    assert "Unlock a door of the building" in instructions
    assert sum(f"- {name}:" in instructions for name in NAMES) == 5


@pytest.mark.anyio
async def test_an_embedding_that_fails_fails_the_step_and_not_the_runner() -> None:
    def broken(texts: Sequence[str]) -> Any:
        raise ConnectionError("no server")

    async with Runner("memory:") as runner:
        result = await runner.run(agent("Hi.", embed=broken), "Open the door.")
    assert result.error is not None
    assert result.error.message == "the tools to offer could not be chosen: ConnectionError: no server"
