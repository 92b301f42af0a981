"""What the scripted provider answers to the examples in the docs: any request gets a plausible reply.

Asked with tools, it calls the first one with made-up arguments; given a tool's result, it repeats it; asked for
JSON of some schema, it sends the smallest fitting value; otherwise it says what it was asked.
"""

import json
import re
from typing import Any

from treadle.testing.provider import ProviderRequest, raw_call, text, turn

FRAME = re.compile(r"<untrusted-\w+ [^>]*>\n|\n</untrusted-\w+>")
"""The lines around untrusted text: a model repeats what stands between them."""


def answer(request: ProviderRequest) -> Any:
    body, last = request.body, request.messages[-1]
    schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
    tools = [tool.get("function", tool) for tool in body.get("tools", ())]
    if is_result(last):
        return text(f"The answer is {words(last)}.") if schema is None else text(json.dumps(sample(schema)))
    if tools and body.get("tool_choice") != "none":
        tool = tools[0]
        return turn(raw_call(tool["name"], sample(tool.get("parameters") or tool["input_schema"])))
    if schema is not None:
        return text(json.dumps(sample(schema)))
    return text(f"You said: {words(last)}")


def is_result(message: dict[str, Any]) -> bool:
    content = message["content"]
    return message["role"] == "tool" or any(
        isinstance(part, dict) and part["type"] == "tool_result" for part in content or ()
    )


def words(part: Any) -> str:
    if isinstance(part, list):
        return " ".join(map(words, part))
    if isinstance(part, str):
        return FRAME.sub("", part)
    return words(part.get("content") or part.get("text") or "")


def sample(schema: dict[str, Any], definitions: dict[str, Any] | None = None) -> Any:
    """The smallest value of a JSON schema."""
    definitions = schema.get("$defs", {}) if definitions is None else definitions
    if "$ref" in schema:
        return sample(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    for keyword in ("const", "default"):
        if keyword in schema:
            return schema[keyword]
    if "enum" in schema:
        return schema["enum"][0]
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in schema:
            return sample(schema[keyword][0], definitions)
    match schema.get("type"):
        case "object":
            fields = schema.get("properties", {})
            return {name: sample(fields[name], definitions) for name in schema.get("required", ())}
        case "array":
            return [sample(schema.get("items", {}), definitions)] * schema.get("minItems", 0)
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return "words"
