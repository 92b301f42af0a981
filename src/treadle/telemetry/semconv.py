"""The names in traces and metrics: OpenTelemetry's conventions for generative AI, and our own where it has none.

The conventions are still in development, so all names are in this module. Check them when the version is raised.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "1.44.0"
SCHEMA_URL: Final = f"https://opentelemetry.io/schemas/{VERSION}"

# ------------------------------------------------------------------------------------------ attributes

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
AGENT: Final = "gen_ai.agent.name"
CONVERSATION: Final = "gen_ai.conversation.id"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105  input or output
TOOL: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
CALL: Final = "gen_ai.tool.call.id"
ERROR_TYPE: Final = "error.type"
HTTP_STATUS: Final = "http.response.status_code"

# Content, only if configured.
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
INSTRUCTIONS: Final = "gen_ai.system_instructions"
CALL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
CALL_RESULT: Final = "gen_ai.tool.call.result"

# Our own.
TASK: Final = "treadle.task.id"
TASK_STATE: Final = "treadle.task.state"
TASK_DEPTH: Final = "treadle.task.depth"
TENANT: Final = "treadle.task.tenant"
EPOCH: Final = "treadle.task.epoch"
STEP: Final = "treadle.step.id"
STEP_INDEX: Final = "treadle.step.index"
ATTEMPT: Final = "treadle.attempt"
OUTCOME: Final = "treadle.outcome"
ANSWERED_BY: Final = "treadle.answered_by"
CHILD: Final = "treadle.child.id"
RULE: Final = "treadle.rule"
UNDOES: Final = "treadle.undoes"
MISSED: Final = "treadle.missed"

# -------------------------------------------------------------------------------- operations and spans

INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"
STEP_SPAN: Final = "step"
WAIT_SPAN: Final = "wait_for_approval"
ANSWER_SPAN: Final = "wait_for_answer"

PROVIDERS: Final = {
    "openai": "openai",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "anthropic": "anthropic",
    "google": "gcp.gemini",
}
"""The names of providers in the conventions; other providers keep their names."""

# ---------------------------------------------------------------------------------------------- metrics

TOKEN_USAGE: Final = "gen_ai.client.token.usage"  # noqa: S105  the name of a metric
TOKEN_BUCKETS: Final = [
    *(1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864),
]
OPERATION_DURATION: Final = "gen_ai.client.operation.duration"
DURATION_BUCKETS: Final = [
    *(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
]
TOOL_DURATION: Final = "treadle.tool.duration"
WAIT_DURATION: Final = "treadle.wait.duration"
WAIT_BUCKETS: Final = [1, 5, 15, 60, 300, 900, 3600, 14400, 43200, 86400, 259200, 604800]
TASKS: Final = "treadle.tasks"
STEPS: Final = "treadle.steps"
MODEL_CALLS: Final = "treadle.model.calls"
TOOL_CALLS: Final = "treadle.tool.calls"
COST: Final = "treadle.cost"
MISSED_NOTICES: Final = "treadle.observer.missed"
