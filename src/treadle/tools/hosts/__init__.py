"""Where the function of a tool runs: in the event loop, in a thread, or in a process of its own.

declaration   `Subprocess`, the host as it is declared; what a host that confines more has to provide
function      one call of a function in a process of its own
process       the process as this one sees it; `spares` and `places` say when one is started
child         the first code in the process: supervisor and worker; `tools.worker_process` runs the function
messages      what both sides say to each other
"""
