"""The `Agent` of `treadle`: it checks names of models with the providers, shows layers, and adapts model objects.

Providers are loaded with the first name, so that a process whose models are objects never loads them.
"""

from __future__ import annotations

from typing import Any

from treadle.agents.agent import Agent, ModelText

__all__ = ["Agent"]


def _check(name: str) -> None:
    from treadle.llm.registry import check_name

    check_name(name)


def _show(name: str) -> str:
    from treadle.llm.default_layers import shown

    return shown(name)


def _adapt(model: Any) -> Any:
    from treadle.llm.providers import PydanticAIModel

    return PydanticAIModel(model)


ModelText.adapt = staticmethod(_adapt)
ModelText.check = staticmethod(_check)
ModelText.show = staticmethod(_show)
