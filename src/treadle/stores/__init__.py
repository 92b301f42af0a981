"""Adapters of the `JournalStore` port: one module per kind of store. Nothing is opened or imported here."""
