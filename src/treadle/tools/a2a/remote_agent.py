"""`RemoteAgent`: an agent of another A2A server as a tool."""

from __future__ import annotations

from treadle.core.unknown_names import explains_names
from treadle.ports import ToolsetConnection
from treadle.tools.a2a.declaration import AgentDeclaration


@explains_names("RemoteAgent")
class RemoteAgent(AgentDeclaration):
    """An agent of another A2A server as a tool: `Agent(tools=[RemoteAgent(url)])`.

    Its card is read when a task is first driven. A call is one task there, which is followed to its end. After a crash
    the call continues the same task. If the agent asks for input, the question waits as those of `ctx.ask` do.
    Cancelling the task cancels the one there. Answers are untrusted.

    Args:
        url: the URL of the agent's card, or the URL before `/.well-known/agent-card.json`. All requests go to its
            origin, and redirects are not followed.
        name: the name of the tool: up to 64 letters, digits, `_` and `-`. By default the last part of the URL's path,
            else its host.
        description: the description of the tool. By default that of the card, which is foreign text: a request with the
            tool then counts as one that has read untrusted content.
        headers: headers of each request.
        auth: a function, sync or async, that returns the bearer token. It is called for each request.
        effects: the declared effects, such as `["read_only"]`. By default it may write and sends data out.
        repeats: whether the server treats a repeated message as one task. By default the card says so. Otherwise a call
            that a crash cut before its task was known fails instead of starting again.
        timeout: seconds that a call may take, without the waits for answers of people.

    Raises:
        ConfigurationError: an argument is not valid; the text names it.
        MissingExtra: the package `httpx2` is not installed.
    """

    def connect(self) -> ToolsetConnection:
        """Return a new connection, which reads the card when its tools are first listed."""
        from treadle.tools.a2a.connection import RemoteConnection

        return RemoteConnection(self)
