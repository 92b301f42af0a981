import subprocess
import sys

import pytest


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
