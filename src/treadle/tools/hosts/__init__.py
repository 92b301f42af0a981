"""Hosts: a tool's function runs in the event loop, in a thread, or in a process of its own.

declaration   `Subprocess`, the declared host, and the interface of hosts that confine more
function      one call of a function in a process of its own
process       the process as the driver sees it; `spares` and `places` decide when one is started
child         the first code in the process: supervisor and worker; `tools.worker_process` runs the function
messages      the messages between driver and process
"""
