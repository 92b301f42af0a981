import subprocess
import sys

import pytest

from treadle import Agent, Runner
from treadle.errors import ConfigurationError
from treadle.models import Fallback, PydanticAIModel


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("Agent('nonsense')", "ModelUnknown: Agent 'agent': 'nonsense' does not name a provider and a model"),
        (
            "print(repr(Agent('openai:gpt-5.4-mini').model))",
            "Retry(Timeout(OpenAIChat('openai:gpt-5.4-mini')",
        ),
    ],
)
def test_an_agent_knows_the_providers_before_there_is_a_runner(code, output):
    command = [sys.executable, "-c", f"from treadle import Agent; {code}"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert output in process.stdout + process.stderr


def test_instances_of_model_classes_of_pydantic_ai_are_models_of_agents_and_runners():
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.models.fallback import FallbackModel
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.models.wrapper import WrapperModel
    from pydantic_ai.providers.openai import OpenAIProvider

    function = FunctionModel(lambda messages, info: ModelResponse([TextPart("Hello.")]))
    agent = Agent(function, name="host")
    assert isinstance(agent.model, PydanticAIModel)
    assert agent.replace(name="other").model is agent.model
    assert Agent(OpenAIChatModel("gpt-x", provider=OpenAIProvider(api_key="k"))).model_name == "openai:gpt-x"
    runner = Runner("memory:", model=TestModel(custom_output_text="Yes."))
    assert runner.run_sync(Agent(), "Hi").output == "Yes."
    for model in (
        function,
        WrapperModel(function),
        FallbackModel(TestModel(), function),
        Fallback([function, function]),
    ):
        result = runner.run_sync(Agent(model), "Hi")
        assert result.state == "completed", result
    runner.sync.close()


def test_a_model_class_of_pydantic_ai_itself_is_refused_with_advice():
    from pydantic_ai.models.test import TestModel

    with pytest.raises(ConfigurationError, match=r"make an object of the class: TestModel\(\.\.\.\)"):
        Agent(TestModel)  # pyright: ignore[reportArgumentType]
