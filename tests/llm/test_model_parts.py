"""The parts that a model may leave out: each has a name to look for, and our models have them as they are declared."""

import inspect
from typing import Any, get_args

import pytest

from treadle.llm.layers.layer import Layer, account_of, ready_in, service_of
from treadle.llm.providers import NamedModel, PydanticAIModel
from treadle.ports import (
    FullModel,
    Model,
    ModelPart,
    chosen_model,
    model_secrets,
    output_mode_of,
    until_loaded,
)

PARTS: tuple[str, ...] = get_args(ModelPart)


def test_each_part_is_declared_and_has_a_name_to_look_for():
    declared = {name for name in vars(FullModel) if not name.startswith("_")}
    assert declared == set(PARTS)


@pytest.mark.parametrize("cls", [Layer, NamedModel, PydanticAIModel])
def test_our_models_have_parts_as_they_are_declared(cls: type[Any]):
    own = [name for name in PARTS if hasattr(cls, name)]
    assert own
    for name in own:
        part, declared = inspect.getattr_static(cls, name), vars(FullModel)[name]
        assert type(part) is type(declared), name
        if not isinstance(part, property):
            assert inspect.signature(part) == inspect.signature(declared), name
            assert inspect.iscoroutinefunction(part) == inspect.iscoroutinefunction(declared), name


class Bare(Model):
    name = "here:small"

    def stream(self, request: Any) -> Any:
        raise NotImplementedError


@pytest.mark.anyio
async def test_a_model_without_parts_has_the_defaults():
    model = Bare()
    layer = Layer(model)
    for each in (model, layer):
        assert (output_mode_of(each), service_of(each), account_of(each)) == ("tool", "here", "here")
        assert (ready_in(each), chosen_model(each, "1.2")) == (0.0, ("here:small", "1.2"))
        assert model_secrets(each) == frozenset()
        await until_loaded(each)
    layer.require()
    layer.preload()
    layer.limit_waits(1.0, None)
    await layer.prepare()
