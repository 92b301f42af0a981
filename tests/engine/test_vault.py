"""Secrets by name: which a tool is given, from where, and that their values turn up nowhere else."""

import base64
import io
import json
import logging
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.runner.acts import journal, only
from treadle import (
    Agent,
    File,
    Happened,
    NextLayer,
    Policy,
    Rule,
    Runner,
    ScriptedModel,
    StepContext,
    StepResult,
    ToolContext,
    ToolInvocation,
    ToolOutput,
    tool,
)
from treadle.core import events as e
from treadle.core.redaction import SECRET
from treadle.engine.vault import KNOWN_MAX, Source, Vault
from treadle.errors import ConfigurationError, SecretRefused, SecretUnavailable, ToolDefinitionError
from treadle.llm.scripted import call
from treadle.telemetry import JsonLines

pytestmark = pytest.mark.anyio

TOKEN = "crm-Zk3Vb9QpLm7Tx2RwYc5NdHs8Jf4Gq6"


def crm() -> str:
    return TOKEN


@tool(read_only=True, secrets=("crm",))
async def ask_crm(ctx: ToolContext[Any]) -> str:
    """Ask the CRM."""
    return f"asked with {ctx.secret('crm')}"


def agent_with(*tools: Any, script: Any = None) -> Agent[Any]:
    script = [call(tools[0].spec.name), "Done."] if script is None else script
    return Agent(ScriptedModel(list(script)), name="desk", tools=list(tools))


async def only_call(*tools: Any, **options: Any) -> Any:
    """Run an agent whose model calls the first of these tools, and return that call."""
    async with Runner("memory:", **{"secrets": {"crm": crm}, **options}) as runner:
        return (await runner.run(agent_with(*tools), "Go.")).tool_executions[0]


async def raw(store: Path) -> bytes:
    return b"".join(path.read_bytes() for path in store.parent.iterdir() if path.name.startswith(store.name))


# ------------------------------------------------------------------------------------------ sources


@pytest.mark.parametrize("kind", ["env", "file", "path", "function"])
def test_a_secret_is_read_from_its_source_when_it_is_asked_for(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "crm"
    sources: dict[str, Any] = {"env": "env:CRM_TOKEN", "file": f"file:{path}", "path": path, "function": crm}
    seen: list[str] = []

    @tool(read_only=True, secrets=["crm"])
    def look(ctx: ToolContext[Any]) -> None:
        """Look."""
        seen.append(ctx.secret("crm"))

    runner = Runner("memory:", secrets={"crm": sources[kind]})
    monkeypatch.setenv("CRM_TOKEN", TOKEN)
    path.write_text(f"{TOKEN}\n", encoding="utf-8")
    with runner.sync as sync:
        assert sync.run(agent_with(look), "Go.").state == "completed"
    assert seen == [TOKEN]


@pytest.mark.parametrize(
    ("source", "where", "says"),
    [
        ("env:NO_SUCH_TOKEN", "the variable NO_SUCH_TOKEN", "is not set"),
        ("file:/no/such/file", "the file /no/such/file", r"failed \(FileNotFoundError\)"),
        (lambda: None, "the function <lambda>", "is not set"),
        (lambda: "", "the function <lambda>", "is empty"),
        (lambda: "abc", "the function <lambda>", "is shorter than 4 characters"),
        (lambda: 7, "the function <lambda>", "gave a int, no text"),
        (lambda: json.loads(TOKEN), "the function <lambda>", r"failed \(JSONDecodeError\)"),
    ],
)
async def test_a_secret_that_cannot_be_read_is_named_with_the_place_and_without_its_value(
    source: Any, where: str, says: str
) -> None:
    execution = await only_call(ask_crm, secrets={"crm": source})
    assert execution.outcome == "error"
    vault = Vault({"crm": Source(where, source)} if callable(source) else {})
    assert f"the secret 'crm': {where} " in execution.error.message
    if callable(source):
        with pytest.raises(SecretUnavailable, match=says) as caught:
            vault.reveal("crm", "look", ("crm",))
        assert (caught.value.name, caught.value.where, caught.value.__cause__) == ("crm", where, None)
        assert caught.value.__suppress_context__ or caught.value.__context__ is None


async def test_a_tool_is_given_only_the_secrets_that_it_declares() -> None:
    caught: list[SecretRefused] = []

    @tool(read_only=True, secrets=("mail",))
    def nosy(ctx: ToolContext[Any]) -> str:
        """Be nosy."""
        try:
            return ctx.secret("crm")
        except SecretRefused as error:
            caught.append(error)
            raise

    execution = await only_call(nosy, secrets={"crm": crm, "mail": crm})
    assert [error.name for error in caught] == ["crm"]
    assert execution.error.message == "the tool nosy does not declare the secret crm: @tool(secrets=('crm',))"


async def test_a_secret_without_a_source_says_what_to_write() -> None:
    execution = await only_call(ask_crm, secrets={"crn": crm})
    assert "the secret 'crm' has no source: Runner(secrets={'crm': 'env:NAME'})" in execution.error.message
    assert "did you mean 'crn'?" in execution.error.message


@pytest.mark.parametrize(
    "value",
    [{"crm": TOKEN}, {"crm": ""}, {"crm": "env:"}, {"crm": 7}, {"c r m": "env:X"}, [TOKEN], {"crm": Path}],
)
def test_what_is_no_source_is_refused_and_not_repeated(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="Runner: secrets") as caught:
        Runner("memory:", secrets=value)
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize("value", ["crm", [7], ("c r m",), None])
def test_a_tool_declares_secrets_by_their_names(value: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="secrets: must list names of secrets"):
        tool(lambda: None, name="x", secrets=value)


async def test_a_context_of_a_test_takes_its_secrets_from_a_function() -> None:
    values = {"crm": TOKEN}
    ctx: ToolContext[Any] = ToolContext(
        "t", "t", "s1", "s1-0", "k", "a", 1, None, open_secret=values.__getitem__
    )
    assert (await ask_crm.function(ctx)) == f"asked with {TOKEN}"
    bare: ToolContext[Any] = ToolContext("t", "t", "s1", "s1-0", "k", "a", 1, None)
    with pytest.raises(SecretUnavailable, match="made without open_secret="):
        bare.secret("crm")
    assert TOKEN not in repr(ctx)


# ----------------------------------------------------------------------------------------- where it is hidden


def forms(value: str) -> dict[str, str]:
    raw = value.encode()
    return {
        "plain": value,
        "newline": f"{value[:9]}\n{value[9:]}",
        "base64": base64.b64encode(raw).decode(),
        "base64 + 1": base64.b64encode(b"x" + raw).decode(),
        "base64 + 2": base64.b64encode(b"xy" + raw).decode(),
        "hex": raw.hex(),
        "URL": quote(value, safe="").replace("-", "%2D"),
        "JSON": "".join(f"\\u{ord(char):04x}" for char in value),
    }


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", forms(TOKEN))
async def test_a_secret_in_a_result_is_hidden_in_every_form(form: str, tmp_path: Path) -> None:
    written = forms(TOKEN)[form]

    @tool(read_only=True, secrets=("crm",))
    def look(ctx: ToolContext[Any]) -> Any:
        """Look."""
        ctx.secret("crm")
        ctx.progress(f"progress {written}")
        ctx.state["session"] = {"key": written}
        return ToolOutput(
            {"token": written, written: [written]},
            observation=["the token", f"is {written}"],
            display=f"shown: {written}",
            sources=[{"url": f"https://crm/?key={written}"}],
            artifacts=[
                File(data=f"dump: {written}".encode(), name="dump.txt", media_type="text/plain"),
                File(data=b"\xff\xfe" + written.encode(), name="dump.bin", media_type="application/x"),
            ],
        )

    store = tmp_path / "journal.db"
    seen: list[str] = []
    async with Runner(
        store, secrets={"crm": crm}, observers=[lambda notice: seen.append(repr(notice))]
    ) as runner:
        async with runner.run_stream(agent_with(look), "Go.") as stream:
            seen += [repr(event) async for event in stream]
        result = stream.result
        seen += [repr(result), repr(await journal(runner, result.task_id)), repr(result.extra_state)]
        files = [
            (await runner.get_artifact(result.task_id, item.artifact_id)).data or b""
            for item in result.artifacts
        ]
        await runner.export_tasks(tmp_path / "journal.db.export")
        content = await raw(store)
    assert result.state == "completed"
    text = "\n".join(seen) + content.decode("latin-1") + repr(files)
    assert SECRET in text
    assert written not in text
    assert json.dumps(written)[1:-1] not in text
    assert base64.b64encode(written.encode()).decode().rstrip("=")[:-1] not in text


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", forms(TOKEN))
async def test_a_secret_in_the_error_of_a_tool_is_hidden_in_every_form(form: str) -> None:
    written = forms(TOKEN)[form]

    @tool(secrets=("crm",))
    def look(ctx: ToolContext[Any]) -> None:
        """Look."""
        error = ConnectionError(f"401 for {ctx.secret('crm') and written}")
        error.add_note(f"with {written}")
        raise error

    async with Runner("memory:", secrets={"crm": crm}) as runner:
        result = await runner.run(agent_with(look), "Go.")
    (execution,) = result.tool_executions
    assert execution.error.message.replace("\\", "") == f"ConnectionError: 401 for {SECRET}\nwith {SECRET}"
    assert written not in repr(result)


async def forgives(call: ToolInvocation, next: NextLayer) -> ToolOutput:
    try:
        return await next(call)
    except ConnectionError:
        return ToolOutput("nothing found")


@pytest.mark.parametrize("fault", ["replaced", "exit"])
async def test_half_a_secret_was_left_in_an_error_that_was_cut_before_it_was_searched(fault: str) -> None:
    @tool(read_only=True, secrets=("crm",))
    def look(ctx: ToolContext[Any]) -> None:
        """Look."""
        secret = ctx.secret("crm")
        error = SystemExit if fault == "exit" else ConnectionError
        # Both cuts, after the first thousand characters and before the last, go through the secret.
        raise error(f"{'. ' * 488}{secret}{'. ' * 900}{secret}{'. ' * 496}")

    layers = [forgives] if fault == "replaced" else []
    async with Runner("memory:", secrets={"crm": crm}, middleware=layers) as runner:
        result = await runner.run(agent_with(look), "Go.")
        (ended,) = await only(runner, result.task_id, "tool_ended")
    told = f"{ended.error and ended.error.message} {ended.report and ended.report.notes}"
    assert "characters cut" in told
    assert not [TOKEN[at : at + 6] for at in range(len(TOKEN) - 6) if TOKEN[at : at + 6] in told]


async def test_a_value_was_lost_that_was_kept_under_a_name_with_a_secret() -> None:
    ran: list[str] = []

    @tool(read_only=True, secrets=("crm",))
    async def keeps(ctx: ToolContext[Any]) -> Any:
        """Keep a value."""
        return await ctx.once(f"token {ctx.secret('crm')}", lambda: ran.append("ran"))

    execution = await only_call(keeps)
    assert (execution.outcome, ran) == ("error", [])
    assert "the name for once(...) contains a secret" in execution.error.message
    assert TOKEN not in execution.error.message


@pytest.mark.parametrize("verb", ["once", "call_tool"])
async def test_a_step_lost_what_it_requested_under_a_key_with_a_secret(verb: str) -> None:
    ran: list[str] = []

    @tool(read_only=True)
    async def look() -> str:
        """Look."""
        ran.append("ran")
        return "seen"

    async def worker(ctx: StepContext) -> StepResult:
        await ctx.call_tool("ask_crm")  # from here on the secret is known
        if verb == "once":
            return StepResult(await ctx.once(f"token {TOKEN}", lambda: ran.append("ran")), is_last=True)
        return StepResult(await ctx.call_tool("look", key=f"token {TOKEN}"), is_last=True)

    agent = Agent(ScriptedModel([]), name="desk", tools=[ask_crm, look], worker=worker)
    async with Runner("memory:", secrets={"crm": crm}) as runner:
        result = await runner.run(agent, "Go.")
    assert result.error is not None
    assert (result.state, ran) == ("failed", [])
    assert "a key holds a secret" in result.error.message


@pytest.mark.parametrize("raises", [True, False], ids=["error", "result"])
async def test_errors_and_results_are_searched_before_they_are_cut(raises: bool) -> None:
    @tool(read_only=True, secrets=("crm",))
    def look(ctx: ToolContext[Any]) -> str:
        """Look."""
        if raises:
            raise ValueError("x" * 980 + ctx.secret("crm") + "y" * 3_000)
        return "x" * 3_990 + ctx.secret("crm") + "y" * 8_000

    async with Runner("memory:", secrets={"crm": crm}) as runner:
        result = await runner.run(agent_with(look), "Go.")
    assert result.tool_executions[0].outcome == ("error" if raises else "ok")
    assert TOKEN[:7] not in repr(result)


async def test_a_secret_split_over_two_reports_of_progress_is_hidden() -> None:
    @tool(read_only=True, secrets=("crm",))
    async def look(ctx: ToolContext[Any]) -> Any:
        """Look."""
        secret = ctx.secret("crm")
        for piece in ("begin ", "token=" + secret[:15], secret[15:], " end", secret[:12], secret[12:]):
            yield piece
        yield "done"

    async with (
        Runner("memory:", secrets={"crm": crm}) as runner,
        runner.run_stream(agent_with(look), "Go.") as stream,
    ):
        progress = [event.value async for event in stream if isinstance(event, e.ToolProgress)]
    text = "".join(progress)
    assert TOKEN[:7] not in text
    assert TOKEN[-8:] not in text
    assert (progress[0], progress[3], progress[-1]) == ("begin ", " end", "done")


async def test_what_another_tool_returns_is_searched_for_it_too() -> None:
    @tool(read_only=True)
    def environment() -> dict[str, str]:
        """Show the environment."""
        return {"CRM": TOKEN}

    script = [call("ask_crm"), call("environment"), "Done."]
    async with Runner("memory:", secrets={"crm": crm}) as runner:
        result = await runner.run(agent_with(ask_crm, environment, script=script), "Go.")
    assert [execution.output for execution in result.tool_executions] == [
        f"asked with {SECRET}",
        {"CRM": SECRET},
    ]


async def test_a_model_that_repeats_a_secret_is_not_recorded_with_it(tmp_path: Path) -> None:
    script = [call("ask_crm"), call("ask_crm", note=TOKEN), f"The token is {TOKEN}."]
    store = tmp_path / "journal.db"
    seen: list[str] = []
    async with Runner(store, secrets={"crm": crm}) as runner:
        async with runner.run_stream(agent_with(ask_crm, script=script), "Go.") as stream:
            seen = [repr(event) async for event in stream]
        assert stream.result.output == f"The token is {SECRET}."
        # What is left of the arguments is not what the model asked for, so the call does not run.
        assert [execution.outcome for execution in stream.result.tool_executions] == ["ok", "invalid"]
        assert TOKEN not in "".join(seen)
        assert TOKEN.encode() not in await raw(store)


async def test_a_message_with_a_known_secret_is_stored_without_it(tmp_path: Path) -> None:
    store = tmp_path / "journal.db"
    agent = agent_with(ask_crm, script=[call("ask_crm"), "Done.", "Done."])
    async with Runner(store, secrets={"crm": crm}, agents=[agent]) as runner:
        result = await runner.run(agent, "Go.")
        second = await runner.create_task(agent, f"Use {TOKEN}.")
        await runner.send(second, f"I said {TOKEN}.")
        await runner.resume(second)
        assert TOKEN not in repr(await journal(runner, second.task_id)) + repr(result)
        assert TOKEN.encode() not in await raw(store)


async def test_undo_and_reconcile_are_given_secrets_and_searched_for_them() -> None:
    seen: list[str] = []

    def take_back(call: Any, ctx: ToolContext[Any]) -> None:
        seen.append(ctx.secret("crm"))
        raise ValueError(f"refused {ctx.secret('crm')}")

    @tool(undo=take_back, reconcile=lambda call, ctx: Happened(), secrets=("crm",))
    def save() -> None:
        """Save."""

    async with Runner("memory:", secrets={"crm": crm}) as runner:
        result = await runner.run(agent_with(save), "Go.")
        report = await runner.undo_step(result.task_id, to=0)
    assert seen == [TOKEN]
    assert f"refused {SECRET}" in repr(report)


async def test_middleware_sees_the_value_and_the_journal_does_not() -> None:
    seen: list[Any] = []

    async def looks(call: ToolInvocation, next: NextLayer) -> ToolOutput:
        result = await next(call)
        seen.append(result.output)
        call.note("header", f"Bearer {TOKEN}")
        return result

    async with Runner("memory:", secrets={"crm": crm}, middleware=[looks]) as runner:
        result = await runner.run(agent_with(ask_crm), "Go.")
        assert seen == [f"asked with {TOKEN}"]
        assert TOKEN not in repr(await journal(runner, result.task_id))


async def test_traces_and_logs_of_libraries_are_without_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    @tool(read_only=True, secrets=("crm",))
    def look(ctx: ToolContext[Any]) -> str:
        """Look."""
        logging.getLogger("httpx").info("GET https://crm/?key=%s", ctx.secret("crm"))
        return ctx.secret("crm")

    trace = tmp_path / "trace.jsonl"
    observers = [JsonLines(trace, content=True, deltas=True)]
    async with Runner("memory:", secrets={"crm": crm}, observers=observers) as runner:
        await runner.run(agent_with(look), "Go.")
    assert "GET https://crm/?[secret]" in caplog.text
    assert TOKEN not in caplog.text + trace.read_text(encoding="utf-8")


async def test_a_policy_that_puts_a_secret_into_arguments_denies_the_call() -> None:
    @tool
    def save(key: str) -> None:
        """Save."""

    rule = Rule("inject", "replace", tool="save", arguments={"key": TOKEN})
    agent = agent_with(ask_crm, save, script=[call("ask_crm"), call("save", key="x"), "Done."])
    async with Runner("memory:", secrets={"crm": crm}, policy=Policy(rule)) as runner:
        result = await runner.run(agent, "Go.")
        assert TOKEN not in repr(await journal(runner, result.task_id))
    assert [each.outcome for each in result.tool_executions] == ["ok", "denied"]
    assert "put a secret of this process into its arguments" in result.tool_executions[1].error.message


async def test_an_edit_with_a_secret_is_refused_and_changes_nothing() -> None:
    @tool(needs_approval=True)
    def save(key: str) -> None:
        """Save."""

    agent = agent_with(ask_crm, save, script=[call("ask_crm"), call("save", key="x"), "Done."])
    async with Runner("memory:", secrets={"crm": crm}) as runner:
        task = (await runner.run(agent, "Go.")).task_id
        with pytest.raises(ConfigurationError, match=r"approve: the arguments hold a secret"):
            await runner.approve(task, arguments={"key": TOKEN})
        with pytest.raises(ConfigurationError, match=r"edit_call: the arguments hold a secret"):
            await runner.edit_call(task, "s2-0", {"key": TOKEN})
        (item,) = await runner.list_pending(task)
        assert item.arguments == {"key": "x"}
        assert TOKEN not in repr(await journal(runner, task))


async def test_middleware_may_put_a_secret_into_arguments_and_the_journal_does_not_hold_it() -> None:
    seen: list[str] = []

    @tool(secrets=("crm",))
    def save(key: str = "") -> None:
        """Save."""
        seen.append(key)

    async def signs(call: ToolInvocation, next: NextLayer) -> ToolOutput:
        return await next(call.with_arguments({"key": call.context.secret("crm")}))

    async with Runner("memory:", secrets={"crm": crm}, middleware=[signs]) as runner:
        result = await runner.run(agent_with(save), "Go.")
        assert TOKEN not in repr(await journal(runner, result.task_id))
    assert seen == [TOKEN]
    assert result.tool_executions[0].rewritten == {"key": SECRET}


async def test_the_end_of_a_call_names_the_secrets_that_its_tool_was_given() -> None:
    @tool(read_only=True, secrets=("crm", "mail"))
    def look(ctx: ToolContext[Any]) -> None:
        """Look."""
        ctx.secret("mail")
        ctx.secret("crm")

    async with Runner("memory:", secrets={"crm": crm, "mail": crm}) as runner:
        result = await runner.run(agent_with(look), "Go.")
        (end,) = await only(runner, result.task_id, "tool_ended")
    assert end.report == e.CallReport(secrets=("crm", "mail"))


def test_logs_of_the_application_are_filtered_with_their_tracebacks() -> None:
    runner = Runner("memory:", secrets={"crm": crm})
    with runner.sync as sync:
        sync.run(agent_with(ask_crm), "Go.")
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(runner.log_filter())
    log = logging.getLogger("an application")
    log.addHandler(handler)
    log.warning("the token %s", TOKEN)
    try:
        raise ValueError(f"no {TOKEN}")
    except ValueError:
        log.exception("failed with %s", TOKEN)
    log.warning("nothing to hide: %d", 7)
    log.removeHandler(handler)
    assert TOKEN not in stream.getvalue()
    assert f"the token {SECRET}\n" in stream.getvalue()
    assert f"ValueError: no {SECRET}\n" in stream.getvalue()
    assert "nothing to hide: 7\n" in stream.getvalue()


# ----------------------------------------------------------------------------------------------- the vault


def test_a_declared_secret_is_hidden_though_it_is_a_plain_word() -> None:
    vault = Vault()
    vault.learn(declared=["hunter"])
    assert vault.known.hide("the password is hunter") == f"the password is {SECRET}"


def test_the_oldest_values_are_forgotten_and_keys_of_models_never() -> None:
    vault = Vault()
    vault.learn(["key-0123456789abcdef"])
    for number in range(KNOWN_MAX + 1):
        vault.learn(declared=[f"value-{number:04}-abcdefgh"])
    hidden = vault.known.hide(f"value-0000-abcdefgh value-{KNOWN_MAX:04}-abcdefgh key-0123456789abcdef")
    assert hidden == f"value-0000-abcdefgh {SECRET} {SECRET}"


async def test_keys_of_the_environment_are_hidden_by_a_runner_with_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "ghp-0123456789abcdef")
    monkeypatch.setenv("DATABASE_URL", "postgresql://me:pg-pass-4711@db/x")

    @tool(read_only=True)
    def environment() -> list[str]:
        """Show the environment."""
        return ["ghp-0123456789abcdef", "pg-pass-4711"]

    execution = await only_call(environment, secrets={})
    assert execution.output == [SECRET, SECRET]


async def test_a_subagent_and_an_undo_after_a_handoff_get_the_secrets_of_their_tools() -> None:
    seen: list[str] = []

    @tool(secrets=("crm",), undo=lambda call, ctx: seen.append(ctx.secret("crm")))
    def save(ctx: ToolContext[Any]) -> None:
        """Save."""
        seen.append(ctx.secret("crm"))

    second = Agent(ScriptedModel(["Done."]), name="second")
    first = Agent(
        ScriptedModel([call("save"), call("transfer_to_second")]),
        name="first",
        tools=[save],
        handoffs=[second],
    )
    async with Runner("memory:", secrets={"crm": crm}, agents=[first, second]) as runner:
        result = await runner.run(first, "Go.")
        assert result.state == "completed", result.error
        await runner.undo_step(result.task_id, to=0)
    assert seen == [TOKEN, TOKEN]


def test_a_vault_does_not_show_what_it_holds() -> None:
    vault = Vault({"crm": Source("the variable CRM", lambda: TOKEN)})
    vault.reveal("crm", "look", ("crm",))
    assert repr(vault) == "Vault(crm)"
    assert TOKEN not in repr(vault.known)


def test_nothing_is_searched_as_long_as_nothing_is_known() -> None:
    vault = Vault({"crm": Source("the variable CRM", lambda: TOKEN)})
    assert vault.hide_in is None
    vault.learn([])
    assert vault.hide_in is None
    vault.reveal("crm", "look", ("crm",))
    assert vault.hide_in is not None
