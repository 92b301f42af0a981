"""Adapters for tools that other libraries and documents define, one module for each kind."""

from __future__ import annotations

from treadle.tools.foreign.langchain import langchain_tools
from treadle.tools.foreign.llamaindex import llamaindex_tools
from treadle.tools.foreign.openapi import openapi_tools
from treadle.tools.foreign.pydantic_ai import PydanticAIToolset

__all__ = ["PydanticAIToolset", "langchain_tools", "llamaindex_tools", "openapi_tools"]
