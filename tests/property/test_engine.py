"""Random histories of the whole engine: every verb in any order, commands while it runs, death at any commit."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.property.reads import check_pending, check_reads
from tests.property.world import FIRED, Host, World
from treadle import FailurePolicy, Happened, Limits, NotHappened, RunOptions
from treadle.core.ids import is_of_command
from treadle.core.journal import events_with_epochs
from treadle.core.state import TaskState
from treadle.errors import IrreversibleStep, TreadleError

OPTIONS = st.builds(
    RunOptions,
    limits=st.sampled_from([None, None, Limits(steps=1), Limits(steps=2), Limits(tool_calls=2)]),
    on_limit=st.sampled_from(["final_answer", "fail", "pause"]),
    on_failure=st.builds(
        FailurePolicy,
        model=st.sampled_from(["fail", "degrade", "pause"]),
        tool=st.sampled_from(["continue", "fail", "degrade", "pause"]),
    ),
    on_unknown_outcome=st.sampled_from(["wait", "wait", "tell_model", "fail"]),
    max_parallel_tools=st.sampled_from([1, 2, 64]),
    keep_in_thread=st.sampled_from(["success", "always"]),
)
PLACE = st.integers(0, 50)


class Engine(Host, RuleBasedStateMachine):
    """One machine on the memory store; the SQLite one differs in `durable`."""

    durable = False

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.created = 0
        """how many tasks were made; what may be done next depends on this alone, so that histories can be repeated"""

        self.forks = self.commands = 0
        self.shared: list[bool] = []
        """of each task, whether it is in a thread with other tasks"""

        self.open(World(seed), durable=self.durable)

    # ------------------------------------------------------------------------------------ rules

    @precondition(lambda self: self.created < 3)
    @rule(options=OPTIONS, shared=st.booleans())
    def create(self, options: RunOptions, shared: bool) -> None:
        key = f"task-{self.created}"
        self.created += 1
        self.shared.append(shared)
        thread = "shared" if shared else None
        created = self.do(
            "create",
            self.runner.create_task(self.agent, "go", task_id=key, options=options, thread_id=thread),
        )
        assert not isinstance(created, Exception), created
        self.tasks.append(key)

    @precondition(lambda self: self.created)
    @rule(place=PLACE, how=st.sampled_from(["step", "step", "step with words", "resume", "resume", "raise"]))
    def work(self, place: int, how: str) -> None:
        task = self.one_of(place)
        if how.startswith("step"):
            message = "more" if how == "step with words" else None
            self.do("step", self.runner.run_step(task, input=message))
        else:
            options = RunOptions(limits=Limits(steps=30)) if how == "raise" else None
            self.do("resume", self.runner.resume(task, options=options))

    @precondition(lambda self: self.created)
    @rule(
        place=PLACE,
        commits=st.integers(0, 6),
        written=st.booleans(),
        where=st.sampled_from(["commit", "tool"]),
        how=st.sampled_from(["step", "resume", "undo", "raise"]),
    )
    def die(self, place: int, commits: int, written: bool, where: str, how: str) -> None:
        """Lose the process while it works on a task."""
        if where == "commit":
            self.life.commits_left, self.life.dies_after_writing = commits, written
        else:
            self.world.dies_in_tool = True
        if how == "undo":
            self.undo(place, None, True)
        else:
            self.work(place, how)
        self.life.commits_left, self.world.dies_in_tool = None, False

    @precondition(lambda self: self.created)
    @rule(
        place=PLACE,
        ticks=st.integers(0, 30),
        verbs=st.lists(
            st.sampled_from(["pause", "interrupt", "cancel", "send", "drop"]), min_size=1, max_size=3
        ),
    )
    def meddle(self, place: int, ticks: int, verbs: list[str]) -> None:
        """Speak to a task while it runs."""
        task = self.one_of(place)
        running: asyncio.Future[Any] = self.loop.create_task(self.runner.resume(task))

        async def speak(verb: str) -> None:
            for _ in range(ticks):
                await asyncio.sleep(0)
            if verb == "drop":
                running.cancel()
            elif verb == "send":
                await self.runner.send(task, "quick")
            else:
                await getattr(self.runner, verb)(task)

        self.do("meddle", self.outcome(running), *(speak(verb) for verb in verbs))

    @precondition(lambda self: self.created)
    @rule(
        place=PLACE,
        verb=st.sampled_from(
            [
                "pause",
                "interrupt",
                "cancel",
                "send",
                "observe",
                "settle",
                "settle",
                "finalize",
                "skip",
                "edit",
            ]
        ),
        choice=st.booleans(),
    )
    def speak(self, place: int, verb: str, choice: bool) -> None:
        """Speak to a task at rest."""
        task = self.one_of(place)
        match verb:
            case "send":
                self.do("send", self.runner.send(task, "a"))
            case "observe":
                self.do("send", self.runner.send(task, "b", role="observation"))
            case "settle":
                for task_id in (task, *self.tasks):  # few wait for it: any that does is welcome
                    for item in self.pending_at(task_id, "settlement")[:1]:
                        verdict = Happened("so") if choice else NotHappened()
                        self.do("settle", self.runner.settle(task_id, item.request_id, verdict))
                        return
            case "skip":
                self.do("skip", self.runner.skip_step(task))
            case "edit":
                self.do("edit", self.runner.edit_step(task, "rather this"))
            case _:
                self.do(verb, getattr(self.runner, verb)(task))

    def pending_at(self, task: str, kind: str) -> list[Any]:
        """Return what waits for a person at a task, of it and of those below it."""
        found = self.do("list pending", self.runner.list_pending(task))
        return [] if isinstance(found, Exception) else [item for item in found if item.kind == kind]

    @precondition(lambda self: self.created)
    @rule(place=PLACE, which=st.integers(0, 5), clicks=st.lists(st.booleans(), min_size=1, max_size=3))
    def decide(self, place: int, which: int, clicks: list[bool]) -> None:
        """Approve or deny what a task or one below it asks for, at once and again, at the task or at that one."""
        for task in (self.one_of(place), *self.tasks):
            items = self.pending_at(task, "approval")
            if items:
                item = items[which % len(items)]
                FIRED["a child asks"] += "." in item.task_id
                FIRED["decided above"] += item.task_id != task
                for click in clicks:
                    verb = self.runner.approve if click else self.runner.deny
                    self.do("decide", verb(task if which < 3 else item.task_id, item.request_id))
                return

    @precondition(lambda self: self.created)
    @rule(place=PLACE, to=st.sampled_from([None, None, 0, 1, 2]), force=st.booleans(), insists=st.booleans())
    def undo(self, place: int, to: int | None, force: bool, insists: bool = True) -> None:
        task = self.one_of(place)
        begun = self.loop.run_until_complete(self.has_begun_undo(task))
        foreseen = self.do("foresee", self.runner.undo_step(task, to=to, force=force, dry_run=True))
        done = self.do("undo", self.runner.undo_step(task, to=to, force=force))
        FIRED["undo of a begun one, without force"] += begun and not force
        if isinstance(done, IrreversibleStep):
            assert not begun, "an undo that had begun was refused for what it had been begun with"
            assert foreseen.problem == str(done), "an undo was refused that was not foreseen to be"
            if insists:
                self.insist(task, to, done)
        elif not isinstance(done, Exception):
            assert (foreseen.to, foreseen.steps) == (done.to, done.steps)
            assert [call.call for call in foreseen.calls] == [call.call for call in done.calls]

    async def has_begun_undo(self, task: str) -> bool:
        try:
            return (await self.runner._driver.cache.load(task)).state.undo is not None
        except TreadleError:
            return False

    def insist(self, task: str, to: int | None, refused: IrreversibleStep) -> None:
        """Force an undo that was refused: what it was refused for was something to take back."""
        done = self.do("undo", self.runner.undo_step(task, to=to, force=True))
        if isinstance(done, Exception) or not done.complete:
            return
        FIRED["undo refused, and forced"] += 1
        harmless = [call.call for call in done.calls if call.verdict == "nothing_to_compensate"]
        assert not {*refused.calls} & {*harmless}, "an undo was refused for a call that changed nothing"

    @precondition(lambda self: self.created)
    @rule(
        place=PLACE,
        verb=st.sampled_from(
            ["send", "edit", "skip", "pause", "interrupt", "resume", "hand on", "undo", "finalize", "settle"]
        ),
        commits=st.one_of(st.none(), st.integers(0, 4)),
        written=st.booleans(),
    )
    def repeat(self, place: int, verb: str, commits: int | None, written: bool) -> None:
        """Give a command an id, and maybe lose the process in it; give it twice again: it is one command."""
        task = self.one_of(place)
        self.commands += 1
        named: dict[str, Any] = {"command_id": f"c{self.commands}", "by": "ada"}

        def give() -> Any:
            runner = self.runner
            match verb:
                case "send":
                    return runner.send(task, "a", **named)
                case "edit":
                    return runner.edit_step(task, "rather this", **named)
                case "skip":
                    return runner.skip_step(task, **named)
                case "hand on":
                    return runner.resume(task, drive=False, **named)
                case "undo":
                    return runner.undo_step(task, force=True, **named)
                case "settle":
                    return runner.settle(task, "s1-0", NotHappened(), **named)
                case _:
                    return getattr(runner, verb)(task, **named)

        self.life.commits_left, self.life.dies_after_writing = commits, written
        self.do(f"repeated {verb}", give())
        self.life.commits_left = None
        self.do(f"repeated {verb}", give())
        before = self.loop.run_until_complete(self.events_of(task, named["command_id"]))
        self.do(f"repeated {verb}", give())
        events = self.loop.run_until_complete(self.events_of(task, named["command_id"]))
        FIRED[f"{verb} repeated, and carried out"] += len(events)
        assert len(events) <= 1, f"{verb} was carried out {len(events)} times"
        assert len(before) == len(events), f"{verb} was carried out when it came for the third time"

    async def events_of(self, task: str, command: str) -> list[Any]:
        """Return the events that a command of this id became, of a task and of those below it."""
        tasks = [each for each in self.tasks if each == task or each.startswith(f"{task}.")]
        pages = [events_with_epochs(each, await self.life.real.read(each), previous=None) for each in tasks]
        events = [event for page in pages for _, event in page]
        return [event for event in events if is_of_command(getattr(event, "inbox", None) or "", command)]

    @precondition(lambda self: self.created)
    @rule(place=PLACE, how=st.sampled_from(["time", "time", "interrupt", "cancel"]), force=st.booleans())
    def cut_off_and_undo(self, place: int, how: str, force: bool) -> None:
        """Cut calls off that may begin again, and take their step back, or what is left of it."""
        self.hang(self.one_of(place), how)
        self.undo(place, None, force)

    @precondition(lambda self: self.created)
    @rule(
        place=PLACE,
        at=st.one_of(st.none(), st.integers(1, 40)),
        words=st.sampled_from([None, "else"]),
        instructions=st.sampled_from([None, None, "Be polite."]),
    )
    def fork(self, place: int, at: int | None, words: str | None, instructions: str | None) -> None:
        if self.forks == 2:
            return
        task = self.one_of(place)
        fork = self.do("fork", self.runner.fork(task, at=at, input=words, instructions=instructions))
        if fork is not None and not isinstance(fork, Exception):
            self.forks += 1
            self.tasks.append(fork.task_id)

    @precondition(lambda self: self.created)
    @rule(place=PLACE)
    def make_again(self, place: int) -> None:
        """Delete a task that shares nothing with other tasks, with its thread, and create a new task under its id."""
        unshared = [f"task-{number}" for number, shared in enumerate(self.shared) if not shared]
        key = unshared[place % len(unshared)] if unshared else None
        if key is None or self.forks or self.do("delete", self.delete_thread_of(key)) is not None:
            return
        created = self.do("make again", self.runner.create_task(self.agent, "go", task_id=key))
        assert not isinstance(created, Exception), created
        children = [task for task in self.tasks if task.startswith(f"{key}.")]
        for task in children:
            self.tasks.remove(task)

    @precondition(lambda self: self.created)
    @rule(place=PLACE, share=st.integers(0, 100))
    def look(self, place: int, share: int) -> None:
        """Read a task in every way."""
        self.do("look", check_reads(self.runner, self.one_of(place), share))
        self.do("look for what waits", check_pending(self.runner))

    async def delete_thread_of(self, key: str) -> None:
        await self.runner.delete_thread((await self.runner.get_task(key)).thread_id)

    # ------------------------------------------------------------------------------------ judging

    @invariant()
    def honest(self) -> None:
        if not hasattr(self, "runner"):
            return
        self.judge()
        for key, cached in self.runner._driver.cache._cached.items():
            for state in [each.state for each in cached.values()]:
                self.check_answer(key, state)

    def check_answer(self, key: str, state: TaskState) -> None:
        if self.world.asks is not None and state.agent == "any" and state.ended == "completed":
            assert state.output == {"right": True}, key

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.close()


class DurableEngine(Engine):
    """The same on SQLite files."""

    durable = True


NORMAL = settings(
    max_examples=6,
    stateful_step_count=25,
    suppress_health_check=list(HealthCheck),
    phases=[phase for phase in Phase if phase is not Phase.explain],
)

TestMemory = Engine.TestCase
TestMemory.settings = NORMAL
TestSQLite = DurableEngine.TestCase
TestSQLite.settings = settings(NORMAL, max_examples=2)


@pytest.mark.full
@pytest.mark.parametrize(("machine", "runs"), [(Engine, 600), (DurableEngine, 100)])
def test_many_histories_and_every_rule_and_state_was_reached(machine: type[Engine], runs: int) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    FIRED.clear()
    run_state_machine_as_test(machine, settings=settings(NORMAL, max_examples=runs, stateful_step_count=40))
    wanted = {
        "create",
        "step",
        "resume",
        "meddle",
        "send",
        "undo",
        "fork",
        "finalize",
        "edit",
        "skip",
        "look",
    }
    wanted |= {
        "pause",
        "interrupt",
        "cancel",
        "death",
        "died in a tool that is write",
        "offer fails",
        "child",
        "decide",
        "make again",
        "cut off",
        "hung in a tool that is idempotent",
        "hung in a tool that is read",
    }
    wanted |= {f"state {state}" for state in ("created", "answered", "completed", "degraded", "failed")}
    wanted |= {f"state {state}" for state in ("cancelled", "paused", "interrupted", "waiting", "running")}
    assert {name for name in wanted if FIRED[name] < runs // 50} == set(), FIRED
    if runs > 100:  # few histories come to it
        assert {name for name in ("settle", "a child asks", "decided above") if not FIRED[name]} == set()
