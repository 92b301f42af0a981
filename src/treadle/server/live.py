"""Serve events in pages and streams, and the metrics of this process."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from treadle.errors import InvalidField
from treadle.runner.views import drivers_of
from treadle.server.calls import Answer, Call, page_link
from treadle.server.frames import cut_size, event_document
from treadle.server.metrics import CONTENT_TYPE
from treadle.server.problems import Problem
from treadle.server.streams import first_place, first_places

EVENT_STREAM: Final = "text/event-stream"


async def get_events(call: Call) -> Answer:
    """Return a page of the events of a task, or a stream if the client asks for one."""
    parameters = dict(call.arguments)
    if EVENT_STREAM in call.request.headers.get("accept", ""):
        return Answer(response=await _stream_of_task(call, parameters))
    if streamed := {"deltas", "until", "hold"} & parameters.keys():
        raise InvalidField(f"is for streams: `Accept: {EVENT_STREAM}`", field=min(streamed))
    cut = cut_size(parameters.pop("cut", None))
    arguments: dict[str, Any] = {"limit": call.operation.most, **parameters}
    page = await call.runner.get_events(**arguments)
    link = {} if page.cursor is None else {"Link": page_link(call, after=page.cursor)}
    if cut is None:
        return Answer(page, headers=link)
    secrets = call.service.secrets()
    hide = (
        None if secrets is None else secrets.hide_data
    )  # secrets are masked first, since a cut could split one
    items = [event_document(event, cut, hide) for event in page.items]
    return Answer({"items": items, "cursor": page.cursor, "head": page.head}, headers=link)


async def _stream_of_task(call: Call, arguments: dict[str, Any]) -> Response:
    if unfit := {"limit", "kinds"} & arguments.keys():
        raise InvalidField("is for pages: `Accept: application/json`", field=min(unfit))
    if arguments.get("after", 0) < 0:
        raise InvalidField("should be a sequence number, from 0 up", field="after")
    service, principal, runner = call.service, call.principal, call.runner
    assert principal is not None, "the operation needs a principal"
    task_id = arguments["task"]
    hold = None
    if arguments.get("hold"):
        if "control" not in call.scopes:
            raise Problem(403, "ScopeMissing", "a stream that holds a task needs the scope `control`")
        hold = await service.holds.holder(runner, task_id)
    return await service.streams.of_task(
        runner,
        task_id,
        principal=principal.name,
        after=first_place(call.request.headers.get("last-event-id"), arguments.get("after", 0)),
        deltas=arguments.get("deltas", True),
        until_rest=arguments.get("until") == "rest",
        cut=arguments.get("cut"),
        hold=hold,
    )


async def get_stream(call: Call) -> Answer:
    """Return the stream of several tasks, and of the changes of all."""
    arguments, principal = call.arguments, call.principal
    assert principal is not None, "the operation needs a principal"
    last_event_id = call.request.headers.get("last-event-id")
    places = first_places(last_event_id, arguments.get("task") or ())
    stream = await call.service.streams.of_several(
        call.runner,
        places,
        principal=principal.name,
        changes=arguments.get("changes", False),
        deltas=arguments.get("deltas", True),
        cut=arguments.get("cut"),
        resumes=bool(last_event_id),
    )
    return Answer(response=stream)


async def get_metrics(call: Call) -> Answer:
    """Return the counters of this process."""
    service = call.service
    text = service.metrics.text(
        streams=len(service.streams),
        driven=sum([len(driver.owned.tasks) for driver in drivers_of(service.runner)]),
        refused=service.runner.store.fenced,
    )
    return Answer(response=Response(text, 200, {"Content-Type": CONTENT_TYPE}))
