"""The auditor: check the invariants of each task, thread and tree of tasks from their journals."""

from treadle.testing.audit.events import Invariant, LedgerEntry, Violation, ledger_agrees, well_formed
from treadle.testing.audit.external_evidence import Acknowledged, Stream
from treadle.testing.audit.store import Evidence, JournalOf, all_rows, audit, audit_store, journal_of, kept

__all__ = [
    "Acknowledged",
    "Evidence",
    "Invariant",
    "JournalOf",
    "LedgerEntry",
    "Stream",
    "Violation",
    "all_rows",
    "audit",
    "audit_store",
    "journal_of",
    "kept",
    "ledger_agrees",
    "well_formed",
]
