"""`python -m treadle.testing.provider`: the scripted provider as a process of its own."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from types import FrameType

from treadle.testing.provider import ProviderRequest, ProviderServer, from_json


def main() -> None:
    """Print the server's URL and serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m treadle.testing.provider", description=main.__doc__)
    parser.add_argument("--script", type=Path, required=True, help="a JSON file: a list of turns")
    parser.add_argument("--port", type=int, default=0, help="the port on 127.0.0.1; 0 picks a free one")
    parser.add_argument("--api-key", help="the only accepted key; by default any key")
    parser.add_argument(
        "--record", type=Path, help="the file to append each request to, one JSON object a line"
    )
    options = parser.parse_args()
    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        # A background job starts with SIGINT ignored, since the Ctrl-C of its terminal is not meant for it.
        if number == signal.SIGTERM or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, end)

    def record(request: ProviderRequest) -> None:
        with options.record.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(request)) + "\n")

    script = from_json(json.loads(options.script.read_text(encoding="utf-8")))
    on_request = record if options.record else None
    with ProviderServer(script, api_key=options.api_key, port=options.port, on_request=on_request) as server:
        sys.stdout.write(server.url + "\n")
        sys.stdout.flush()
        ended.wait()


if __name__ == "__main__":
    main()
