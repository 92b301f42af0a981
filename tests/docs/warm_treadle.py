"""The `treadle` of shell blocks: it runs in a fork of a process that has imported all commands.

To start Python and to import Treadle costs several times what most commands do. The program that `offer` puts on the
PATH hands its arguments, folder, environment and standard streams to a fork, passes signals on, and ends as the fork
ends. The fork knows nothing else of its parent: in it the command runs as in a process of its own.
"""

import atexit
import gc
import json
import os
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path
from shutil import rmtree

PROGRAM = """#!{python} -IS
import json, os, signal, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
request = {{"arguments": sys.argv, "folder": os.getcwd(), "environment": dict(os.environ)}}
socket.send_fds(server, [json.dumps(request).encode() + b"\\n"], [0, 1, 2])
answers = server.makefile()
fork = int(answers.readline())
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, frame: os.kill(fork, number))
sys.exit(int(answers.readline() or 128 + signal.SIGKILL))
"""
LARGEST = 1 << 20
SECONDS_ALONE = 5


def offer() -> Path:
    """Start the server in a fork, and return the folder to put on the PATH; both go when this process ends."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="treadle-"))  # short: the address of a socket has to be
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "socket"))
    listener.listen()
    program = folder / "treadle"
    program.write_text(PROGRAM.format(python=sys.executable, address=str(folder / "socket")))
    program.chmod(0o755)
    parent = os.getpid()
    server = os.fork()
    if server == 0:
        connection = serve(listener, parent)
        if connection is None:
            os._exit(0)
        run(connection)
    listener.close()
    atexit.register(withdraw, folder, parent, server)
    return folder


def withdraw(folder: Path, owner: int, server: int) -> None:
    if os.getpid() == owner:  # and not in a fork of it
        os.kill(server, signal.SIGTERM)
        os.waitpid(server, 0)
        rmtree(folder)


def serve(listener: socket.socket, parent: int) -> socket.socket | None:
    """Fork for each connection, and return it in the fork; return None once the parent has gone."""
    from treadle.cli.main import app

    app()
    assert threading.active_count() == 1, "a fork would not have the other threads"
    gc.collect()
    gc.freeze()
    listener.settimeout(SECONDS_ALONE)
    forks = 0
    while True:
        while forks and os.waitpid(-1, os.WNOHANG)[0]:
            forks -= 1
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            if os.getppid() != parent:
                return None
            continue
        if os.fork() == 0:
            listener.close()
            return connection
        forks += 1
        connection.close()


def run(connection: socket.socket) -> None:
    """Run the command of a connection and end this process, which sends its id at first and its exit code at last."""
    from treadle.cli.main import main

    connection.setblocking(True)
    text, streams, _, _ = socket.recv_fds(connection, LARGEST, 3)
    while not text.endswith(b"\n"):
        text += connection.recv(LARGEST)
    request = json.loads(text)
    for target, source in enumerate(streams):
        os.dup2(source, target)
        os.close(source)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["arguments"]
    connection.sendall(f"{os.getpid()}\n".encode())
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    connection.sendall(f"{code}\n".encode())
    os._exit(code)
