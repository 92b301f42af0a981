"""Conformance suites, which test that an adapter fulfils the contract of its port."""

import sys

# Rewrites assertions, so that a failed check shows its values; processes that suites start do without pytest.
if "pytest" in sys.modules:
    import pytest

    pytest.register_assert_rewrite(
        "treadle.testing.conformance.store",
        "treadle.testing.conformance.store_commits",
        "treadle.testing.conformance.store_sharing",
        "treadle.testing.conformance.durability",
        "treadle.testing.conformance.model",
    )
