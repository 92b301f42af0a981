"""Packages of providers are imported in a thread of their own, once, before anything waits for them."""

import asyncio
import json
import signal
import subprocess
import sys
import time

import pytest

from tests.interruptible import interruptible
from treadle.testing.provider import ProviderServer, text

WIRES = {"OpenAIChat": "openai", "OpenAI": "openai", "Anthropic": "anthropic", "Google": "google.genai"}

# What the event loop's own thread imports while a first request is made, beyond what Treadle itself brings.
CHILD = """
import asyncio, json, sys, threading
from treadle import Agent, Runner, models
kind, url = sys.argv[1:]
seen = []
class Finder:
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread() is threading.main_thread():
            seen.append(name)
sys.meta_path.insert(0, Finder())
async def main():
    model = getattr(models, kind)("gemini-3-x", base_url=url, api_key="k-0123456789")
    agent = Agent(model)
    assert not {"pydantic_ai", "openai", "anthropic", "google.genai"} & set(sys.modules)
    async with Runner("memory:") as runner:
        del seen[:]
        result = await runner.run(agent, "go")
    print(json.dumps([result.final_text, seen]))
asyncio.run(main())
"""


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.full) for kind in WIRES] + ["OpenAIChat"]
)
def test_the_event_loop_imports_nothing_of_a_provider(kind):
    with ProviderServer([text("Hello.")]) as server:
        url = server.openai_base_url if kind.startswith("OpenAI") else server.url
        command = [sys.executable, "-c", CHILD, kind, url]
        modules, seen = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert modules == "Hello."
    # The names of packages are looked up, to see whether they are installed.
    looked_up = {"pydantic_ai", "google", WIRES[kind]}
    foreign = (
        "pydantic_ai",
        "openai",
        "anthropic",
        "google",
        "httpx",
        "httpcore",
        "genai_prices",
        "griffe",
        "anyio",
    )
    assert [
        name for name in seen if name.partition(".")[0].startswith(foreign) and name not in looked_up
    ] == []


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60
    )


@pytest.mark.anyio
async def test_a_cancelled_waiter_does_not_cancel_the_loading():
    from treadle.llm import loading

    home = "treadle.llm.openai_stream"
    waiting = [asyncio.ensure_future(loading.until(loading.begin(home).answers)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.gather(*waiting[1:])
    assert loading.has_begun(home)
    assert loading.begin(home) is loading.begin(home)


@pytest.mark.anyio
async def test_a_failed_import_is_raised_to_every_waiter_and_retried():
    from treadle.llm import loading

    first = loading.begin("treadle.llm.no_such_module")
    for future in (first.requests, first.answers):
        with pytest.raises(ModuleNotFoundError, match="no_such_module"):
            await loading.until(future)
    assert loading.begin("treadle.llm.no_such_module") is not first


@pytest.mark.anyio
@pytest.mark.parametrize(("needed", "fails"), [("json.no_such_module", False), ("needs_another", True)])
async def test_a_module_that_the_installed_version_lacks_is_skipped(needed, fails, tmp_path, monkeypatch):
    from treadle.llm import loading

    (tmp_path / f"client_of_{needed[:4]}.py").write_text(
        f"NEEDED = ({needed!r}, 'colorsys')\nprepare_answers = int\n"
    )
    (tmp_path / "needs_another.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    answers = loading.begin(f"client_of_{needed[:4]}").answers
    if fails:
        with pytest.raises(ModuleNotFoundError, match="no_such_package"):
            await loading.until(answers)
    else:
        await loading.until(answers)


def test_a_missing_package_is_reported_and_starts_no_thread():
    code = (
        "import sys, threading\n"
        "sys.modules['openai'] = None\n"
        "from treadle import Agent, Runner; from treadle.errors import MissingExtra\n"
        "try:\n"
        "    Runner('memory:').run_sync(Agent('openai:x'), 'go')\n"
        "except MissingExtra as error:\n"
        "    print(error, [t.name for t in threading.enumerate() if 'import' in t.name])\n"
    )
    assert run(code).stdout.strip().endswith("pip install '/path/to/treadle[openai]' []")


def test_a_task_with_a_limit_of_time_begins_when_the_packages_of_its_model_are_loaded():
    code = (
        "import asyncio\n"
        "from treadle import Agent, Limits, Runner, RunOptions, models\n"
        "from treadle.llm import loading\n"
        "async def main():\n"
        "    model = models.OpenAIChat('m', base_url='http://127.0.0.1:9/v1')\n"
        "    async with Runner('memory:') as runner:\n"
        "        limits = RunOptions(limits=Limits(seconds=60))\n"
        "        handle = await runner.start(Agent(model, name='a'), 'go', options=limits)\n"
        "        print(loading.begin(model.home).answers.done())\n"
        "        await handle.cancel()\n"
        "asyncio.run(main())\n"
    )
    assert run(code).stdout.strip() == "True"


@pytest.mark.full
@pytest.mark.parametrize("after", [0.1, 0.3, 0.6])
def test_ctrl_c_during_an_import_ends_the_process_before_the_import_ends(after):
    code = (
        "import sys\n"
        "from treadle import Agent, Runner\n"
        "from treadle.models import Anthropic\n"
        "print('ready', flush=True)\n"
        "model = Anthropic('x', base_url='http://127.0.0.1:9', api_key='k-0123456789')\n"
        "try:\n"
        "    Runner('memory:').run_sync(Agent(model), 'go')\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', 'treadle.llm.anthropic_stream' in sys.modules, flush=True)\n"
    )
    command = [sys.executable, "-c", code]
    with interruptible(), subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "ready\n"
        time.sleep(after)
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=60)[0] == "interrupted False\n"
    assert child.returncode == 0
