"""The auditor as a program: audit the store and the ledger of another process.

    python -m treadle.testing.auditor STORE [--ledger FILE] [--ended] [--secret TEXT]... [--file FILE]...

Prints one line for each violation, with its invariant, task and event. The exit status is 1 if there is any, else 0.
"""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from treadle.testing.audit import Evidence, Violation, audit_store
from treadle.testing.audit.external_evidence import found_secrets
from treadle.testing.ledger import Ledger
from treadle.wiring import open_store


async def judge(store: str, evidence: Evidence) -> list[Violation]:
    """Return the violations of the tasks in the store at a path or URL."""
    opened = open_store(store)
    await opened.open()
    try:
        return await audit_store(opened, evidence)
    finally:
        await opened.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Audit the store on the command line; return the exit status."""
    parser = ArgumentParser(
        prog="python -m treadle.testing.auditor", description="Audit the tasks of a store."
    )
    parser.add_argument("store", help="path or URL of the store")
    parser.add_argument("--ledger", help="the file of a treadle.testing.ledger.Ledger")
    parser.add_argument("--ended", action="store_true", help="every task must have ended")
    parser.add_argument("--secret", action="append", default=[], help="a text that must be in no record")
    parser.add_argument("--file", action="append", default=[], help="another file that must have no secret")
    options = parser.parse_args(argv)
    ledger = Ledger(options.ledger).for_audit() if options.ledger else []
    evidence = Evidence(ledger=ledger, secrets=options.secret, ended=options.ended)
    violations = asyncio.run(judge(options.store, evidence))
    for name in options.file:
        for secret in found_secrets(Path(name).read_bytes(), options.secret):
            violations.append(Violation("secrets", "", 0, f"{secret[:3]}... is in {name}"))
    for violation in violations:
        sys.stdout.write(f"{violation}\n")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
