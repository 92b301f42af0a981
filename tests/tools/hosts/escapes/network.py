"""Ways into the network, and to sockets of the machine."""

import ctypes
import platform
import socket
import struct
from pathlib import Path

from tests.tools.hosts.escapes.registry import ROOT, World, escape, libc, syscall


@escape()
def connect_by_tcp(world: World) -> str:
    with socket.create_connection(("127.0.0.1", world["tcp"]), 2) as connection:
        connection.sendall(b"escaped")
    return "connected"


@escape()
def connect_by_tcp_over_ipv6(world: World) -> str:
    with socket.create_connection(("::1", world["tcp6"]), 2) as connection:
        connection.sendall(b"escaped")
    return "connected"


@escape()
def send_by_udp(world: World) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.settimeout(1)
        sender.sendto(b"escaped", ("127.0.0.1", world["udp"]))
        return sender.recv(100).decode()


@escape()
def ask_a_name_server(world: World) -> str | None:
    question = (
        struct.pack(">6H", 7, 0x0100, 1, 0, 0, 0) + b"\x06secret\x07example\x00" + struct.pack(">2H", 1, 1)
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.settimeout(1)
        sender.connect(("127.0.0.1", world["udp"]))
        sender.send(question)
        return repr(sender.recv(512))


@escape()
def be_reached_from_the_machine(world: World) -> str | None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", world["free_port"]))
        listener.listen()
        listener.settimeout(2)
        connection, _ = listener.accept()
        with connection:
            return connection.recv(100).decode()


@escape()
def connect_to_an_abstract_socket(world: World) -> str:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect("\0" + world["abstract"])
    return "connected"


@escape()
def connect_to_a_socket_outside(world: World) -> str:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(world["socket"])
    return "connected"


@escape()
def connect_to_a_socket_in_a_declared_folder(world: World) -> str:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(Path(world["readable"], "service")))
    return "connected"


@escape(closed_anyway="most machines have no such services")
def connect_to_services_of_the_machine(world: World) -> str | None:
    paths = (
        "docker.sock",
        "containerd/containerd.sock",
        "dbus/system_bus_socket",
        "systemd/private",
        "podman/podman.sock",
    )
    for path in paths:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect("/run/" + path)
            return path
        except OSError:
            continue
    return None


@escape()
def see_the_interfaces_of_the_machine(world: World) -> str | None:
    names = sorted(name for _, name in socket.if_nameindex())
    return ", ".join(names) if names == world["interfaces"] and names != ["lo"] else None


@escape(closed_anyway=ROOT)
def make_raw_sockets(world: World) -> str | None:
    for family, kind in ((socket.AF_INET, socket.SOCK_RAW), (socket.AF_PACKET, socket.SOCK_RAW)):
        try:
            socket.socket(family, kind, socket.IPPROTO_ICMP).close()
            return str(family)
        except OSError:
            continue
    return None


@escape(closed_anyway="most kernels have few of these families")
def make_sockets_of_other_families(world: World) -> str | None:
    for family in (1 << 32 | 40, 40, 38, 31, 44, 30, 17, 15, 29, 1 << 32 | 1):
        handle = libc.syscall(41 if platform.machine() == "x86_64" else 198, ctypes.c_long(family), 1, 0)
        if handle >= 0:
            return f"family {family}"
    return None


@escape(closed_anyway="a kernel may have it switched off")
def reach_the_kernel_by_a_ring(world: World) -> str:
    return str(syscall("io_uring_setup", 4, ctypes.create_string_buffer(120)))
