"""What people search for on the site, which page they should find, and the words that lead there.

`WORDS` are further words of a page, of those who know other libraries: the site's search finds a page by them (see
`site_hooks`). `QUERIES` are what people type, with the page that has to be among the first three.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.docs.browser import Browser

WORDS = {
    "guide/approvals.md": ["human in the loop", "approval", "HITL", "permission", "confirm"],
    "guide/questions.md": ["human in the loop", "ask a person", "elicitation"],
    "guide/teams.md": ["handoff", "handoffs", "swarm", "multi-agent"],
    "guide/agents.md": ["system prompt", "instructions", "deps", "dependency injection", "context", "state"],
    "guide/tools.md": ["function calling", "tool", "ModelRetry", "tools"],
    "guide/many-tools.md": ["tool retrieval", "tool search", "tool selection"],
    "guide/tool-results.md": ["artifacts", "citations", "sources", "tool output"],
    "guide/typed-answers.md": [
        "structured output",
        "structured outputs",
        "output_type",
        "pydantic",
        "JSON schema",
    ],
    "guide/quickstart.md": ["install", "quickstart", "run_sync", "Windows", "getting started"],
    "guide/concepts.md": ["concepts", "terminology", "mental model"],
    "guide/glossary.md": ["glossary", "terms", "vocabulary"],
    "guide/which-verb.md": ["which verb", "cheat sheet", "API overview", "verbs"],
    "guide/upgrading.md": ["upgrade", "migration", "version", "compatibility"],
    "guide/supported-systems.md": [
        "Windows",
        "macOS",
        "platforms",
        "operating system",
        "NFS",
        "requirements",
    ],
    "guide/extras.md": ["install", "extras", "MissingExtra", "dependencies", "optional packages"],
    "guide/troubleshooting.md": ["troubleshooting", "FAQ", "stuck", "database is locked", "AgentUnknown"],
    "guide/security-for-operators.md": [
        "hardening",
        "GDPR",
        "erasure",
        "TLS",
        "encryption at rest",
        "audit log",
    ],
    "how-to/local-models.md": [
        "local models",
        "llama.cpp",
        "Ollama",
        "vLLM",
        "LM Studio",
        "local server",
        "jinja",
        "tool_choice",
        "xllamacpp",
    ],
    "guide/undo-and-fork.md": ["rollback", "rewind", "time travel", "checkpoint"],
    "guide/model-layers.md": ["rate limit", "retry", "fallback", "cache"],
    "guide/limits-and-failures.md": [
        "cost",
        "budget",
        "token usage",
        "timeouts",
        "timeout",
        "retry",
        "tokens",
    ],
    "guide/threads.md": [
        "memory",
        "conversation history",
        "session",
        "thread_id",
        "chat history",
        "checkpointer",
    ],
    "how-to/retrieval.md": ["vector store", "embeddings", "RAG", "vector database"],
    "guide/events.md": ["streaming", "SSE", "stream", "server-sent events"],
    "guide/serving.md": ["serve", "HTTP server"],
    "guide/inspector.md": [
        "inspector",
        "browser",
        "web UI",
        "dashboard",
        "debugger",
        "Studio",
        "timeline",
        "GUI",
    ],
    "guide/chat-front-ends.md": [
        "AG-UI",
        "CopilotKit",
        "chat UI",
        "front end",
        "frontend",
        "React",
        "user interface",
        "chatbot",
    ],
    "guide/serve-over-mcp.md": [
        "MCP server",
        "Claude Desktop",
        "Claude Code",
        "VS Code",
        "Cursor",
        "stdio",
        "mcp serve",
    ],
    "guide/other-clients.md": [
        "Responses API",
        "Open Responses",
        "openai package",
        "OpenAI SDK",
        "A2A",
        "Agent2Agent",
        "agent card",
        "a2a-sdk",
        "remote agent",
        "RemoteAgent",
        "agent to agent",
    ],
    "guide/http-api.md": ["SSE", "HTTP API", "REST", "curl", "streaming", "Last-Event-ID"],
    "guide/custom-models.md": ["custom model", "own model", "ScriptedModel", "fake model"],
    "how-to/web-app.md": ["FastAPI", "streaming", "web app"],
    "how-to/langfuse.md": ["Langfuse", "tracing", "observability", "Logfire"],
    "guide/telemetry.md": ["logging", "OpenTelemetry", "observability", "token usage", "callbacks"],
    "guide/deployment.md": ["docker", "deploy", "container", "kubernetes", "production"],
    "how-to/long-jobs.md": ["cron", "schedule", "scheduler", "periodic"],
    "how-to/reminders.md": ["reminder", "timer", "delay", "schedule"],
    "how-to/saga.md": ["saga", "compensation", "compensate"],
    "guide/untrusted-content.md": ["prompt injection", "injection", "jailbreak"],
    "project/security.md": ["security", "vulnerability"],
    "guide/secrets.md": ["security", "API key", "credentials"],
    "project/license.md": ["license", "licence", "Apache"],
    "how-to/evaluate.md": ["evaluation", "evals", "evaluate"],
    "guide/drivers.md": ["celery", "worker", "queue", "temporal"],
    "guide/without-asyncio.md": ["run_sync", "sync", "synchronous"],
    "coming-from/pydantic-ai.md": ["Pydantic AI", "pydantic", "ModelRetry", "deps", "output_type"],
    "coming-from/langgraph.md": ["LangGraph", "LangChain", "thread_id", "checkpointer"],
    "coming-from/temporal.md": [
        "Temporal",
        "temporalio",
        "activity",
        "signal",
        "query",
        "continue-as-new",
        "task queue",
        "heartbeat",
    ],
}
"""Words by page."""

QUERIES = {
    "approval": "guide/approvals",
    "handoff": "guide/teams",
    "human in the loop": "guide/approvals",
    "structured output": "guide/typed-answers",
    "structured outputs": "guide/typed-answers",
    "system prompt": "guide/agents",
    "deps": "coming-from/pydantic-ai",
    "rate limit": "guide/model-layers",
    "memory": "guide/threads",
    "vector store": "how-to/retrieval",
    "streaming": "guide/events",
    "SSE": "guide/http-api",
    "FastAPI": "how-to/web-app",
    "retry": "guide/model-layers",
    "cost": "guide/limits-and-failures",
    "Langfuse": "how-to/langfuse",
    "docker": "guide/deployment",
    "cron": "how-to/long-jobs",
    "schedule": "how-to/long-jobs",
    "reminder": "how-to/reminders",
    "saga": "how-to/saga",
    "Temporal": "coming-from/temporal",
    "signal": "coming-from/temporal",
    "conversation history": "guide/threads",
    "session": "guide/threads",
    "prompt injection": "guide/untrusted-content",
    "upgrade": "guide/upgrading",
    "migration": "guide/upgrading",
    "version": "guide/upgrading",
    "security": "project/security",
    "license": "project/license",
    "Windows": "guide/supported-systems",
    "extras": "guide/extras",
    "troubleshooting": "guide/troubleshooting",
    "database is locked": "guide/troubleshooting",
    "GDPR": "guide/security-for-operators",
    "embeddings": "how-to/retrieval",
    "evaluation": "how-to/evaluate",
    "logging": "guide/telemetry",
    "ModelRetry": "coming-from/pydantic-ai",
    "output_type": "guide/typed-answers",
    "run_sync": "guide/without-asyncio",
    "thread_id": "guide/threads",
    "deploy": "guide/deployment",
    "celery": "guide/drivers",
    "timeouts": "guide/limits-and-failures",
    "token usage": "guide/limits-and-failures",
    "local models": "how-to/local-models",
    "llama.cpp": "how-to/local-models",
    "Ollama": "how-to/local-models",
    "vLLM": "how-to/local-models",
    "rollback": "guide/undo-and-fork",
    "time travel": "guide/undo-and-fork",
    "glossary": "guide/glossary",
    "concepts": "guide/concepts",
    "which verb": "guide/which-verb",
    "AG-UI": "guide/chat-front-ends",
    "inspector": "guide/inspector",
    "dashboard": "guide/inspector",
    "browser": "guide/inspector",
    "Claude Desktop": "guide/serve-over-mcp",
    "VS Code": "guide/serve-over-mcp",
    "A2A": "guide/other-clients",
    "Responses API": "guide/other-clients",
    "openai package": "guide/other-clients",
    "agent card": "guide/other-clients",
    "remote agent": "guide/other-clients",
    "CopilotKit": "guide/chat-front-ends",
}
"""The page that each query has to find."""


def lost(site: Path) -> Iterator[str]:
    """Yield the queries that do not find their page, by the index of the built site; none without Node."""
    if (node := shutil.which("node")) is None:
        return
    script = Path(__file__).with_name("search.js")
    answer = subprocess.run([node, script, site, *QUERIES], check=True, capture_output=True, text=True).stdout
    for (query, page), found in zip(QUERIES.items(), json.loads(answer), strict=True):
        if f"{page}.html" not in found[:3]:
            yield f"search: {query!r} finds {', '.join(found[:3]) or 'nothing'}, and not {page}.html"


def lost_in_a_browser(site: Path, browser: Browser) -> Iterator[str]:
    """Yield the queries that do not find their page when a reader types them into the search box."""
    browser.show(1280, 800)
    browser.open(site.joinpath("index.html").as_uri())
    browser.run(Path(__file__).with_name("search_box.js").read_text(encoding="utf-8"))
    browser.run("searchBox.open()")
    for query, page in QUERIES.items():
        browser.type(query)
        addresses = [
            address.partition("#")[0].partition("?")[0] for address in browser.run("searchBox.found()")
        ]
        if site.joinpath(f"{page}.html").as_uri() not in addresses[:3]:
            shown = ", ".join(address.removeprefix(f"{site.as_uri()}/") for address in addresses[:3])
            yield f"search box: {query!r} shows {shown or 'nothing'}, and not {page}.html"
        browser.run("searchBox.select()")
        browser.press("Backspace", 8)
        browser.run("searchBox.cleared()")
