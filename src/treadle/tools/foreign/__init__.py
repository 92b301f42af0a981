"""Tools that other libraries define, as tools of an agent; each module takes those of one library, and imports none."""

from __future__ import annotations

from treadle.tools.foreign.langchain import langchain_tools
from treadle.tools.foreign.llamaindex import llamaindex_tools

__all__ = ["langchain_tools", "llamaindex_tools"]
