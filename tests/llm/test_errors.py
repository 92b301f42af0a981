"""The kind of a failure, the wait it asks for, and that no error shows a secret."""

import pytest

from treadle.core.redaction import Secrets
from treadle.llm.errors import ELSEWHERE, OF_SERVICE, PASSING, model_error, retry_after, shortened


class Raised(Exception):
    """An error like those of SDKs: with a status, headers and a body, each of which may be missing."""

    def __init__(self, message="it failed", **facts):
        super().__init__(message)
        for name, value in facts.items():
            setattr(self, name, value)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"type": "error", "error": {"type": "overloaded_error"}}, "overloaded"),
        ({"type": "error", "error": {"type": "api_error"}}, "server"),
        ({"type": "error", "error": {"type": "timeout_error"}}, "timeout"),
        ({"type": "error", "error": {"type": "rate_limit_error"}}, "rate_limit"),
        ({"type": "error", "error": {"type": "invalid_request_error"}}, "invalid_request"),
        ({"type": "server_error", "code": None}, "server"),
        ({"code": "rate_limit_exceeded"}, "rate_limit"),
        ({"error": {"code": 502, "message": "Provider disconnected"}}, "server"),
        ([{"error": {"code": 503, "status": "UNAVAILABLE"}}], "overloaded"),
        ({"error": {"code": "something new"}}, "unknown"),
        ({"error": {"code": 42}}, "unknown"),
    ],
)
def test_a_failure_in_the_middle_of_an_answer_is_classified_by_its_code(body, kind):
    assert model_error(Raised(status_code=200, body=body)).kind == kind
    assert model_error(Raised(body=body)).kind == kind


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, {"error": {"type": "invalid_request_error", "code": "invalid_api_key"}}, "authentication"),
        (429, {"error": {"code": "insufficient_quota"}}, "permission"),
        (400, {"error": {"code": "context_length_exceeded"}}, "too_large"),
        (500, {"error": {"type": "api_error"}}, "server"),
        (403, "<html>Forbidden</html>", "permission"),
        (418, None, "invalid_request"),
        (599, None, "server"),
    ],
)
def test_the_status_is_more_precise_than_most_codes_and_less_than_some(status, body, kind):
    error = model_error(Raised(status_code=status, body=body))
    assert (error.kind, error.status) == (kind, status)


@pytest.mark.parametrize(
    "error",
    [
        {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 9_412, "n_ctx": 8_192},
        {"code": 400, "type": "BadRequestError", "param": "input_tokens"},
        {"code": 400, "type": "BadRequestError", "param": "input_text"},
    ],
    ids=["llama.cpp", "vLLM", "vLLM by characters"],
)
def test_a_prompt_beyond_the_context_of_a_local_server_is_too_large_and_not_an_invalid_request(error):
    error |= {"message": "the request is longer than the context"}
    assert model_error(Raised(status_code=400, body=error)).kind == "too_large"
    assert model_error(Raised(status_code=400, body={"error": error})).kind == "too_large"
    assert model_error(Raised(body={"error": error})).kind == "too_large"


@pytest.mark.parametrize("parameter", ["messages", "max_tokens", None, 7])
def test_another_parameter_of_a_bad_request_is_an_invalid_request(parameter):
    body = {"error": {"code": 400, "type": "BadRequestError", "param": parameter}}
    assert model_error(Raised(status_code=400, body=body)).kind == "invalid_request"


def test_the_text_of_a_message_decides_nothing():
    message = "429 rate limit exceeded, timeout, connection reset, please retry after 5 seconds"
    error = model_error(Raised(message))
    assert (error.kind, error.retry_after, str(error)) == ("unknown", None, message)


@pytest.mark.parametrize(
    ("facts", "seconds"),
    [
        ({"headers": {"Retry-After": "7"}}, 7),
        ({"headers": {"retry-after-ms": "1500", "retry-after": "9"}}, 1.5),
        ({"headers": {"retry-after": "-3"}}, None),
        ({"headers": {"retry-after": "nan"}}, None),
        ({"headers": {"retry-after": "soon"}}, None),
        ({"headers": {"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}}, 0),
        ({"body": {"error": {"details": [{"@type": "x"}, {"retryDelay": "34.07s"}]}}}, 34.07),
        ({"body": {"error": {"details": [{"retryDelay": "later"}, 7]}}}, None),
        ({"retry_after": 4}, 4),
        ({"retry_after": float("inf")}, None),
        ({"retry_after": -1}, None),
    ],
)
def test_the_wait_is_read_from_where_providers_state_it(facts, seconds):
    assert model_error(Raised(status_code=429, **facts)).retry_after == seconds


def test_a_date_is_turned_into_a_wait_from_now():
    assert (retry_after({"retry-after": "Fri, 31 Dec 2100 23:59:59 GMT"}) or 0) > 0


KEY = "sk-proj-abcdefghijklmnop0123456789"


@pytest.mark.parametrize(
    "message",
    [
        f"Incorrect API key provided: {KEY}.",
        f"GET https://generativelanguage.googleapis.com/v1/models?key={KEY}&alt=sse failed",
        f"POST https://host/v1?api_key={KEY}",
        f"https://user:{KEY}@host/v1 cannot be reached",
        f"headers: {{'Authorization': 'Bearer {KEY}', 'x': 1}}",
        f"x-goog-api-key: {KEY}",
        f'{{"api_key": "{KEY}"}}',
    ],
)
@pytest.mark.parametrize("is_known", [True, False])
def test_no_key_is_shown_be_it_known_or_recognised_by_its_form(message, is_known):
    text_of = str(model_error(Raised(message, status_code=401), secrets=Secrets([KEY] if is_known else [])))
    assert KEY not in text_of
    assert KEY[3:12] not in text_of
    assert "[secret]" in text_of


def test_a_known_secret_is_found_in_every_form_before_the_message_is_cut():
    secret = "top/secret+value"
    assert shortened(f"a {secret} b top%2Fsecret%2Bvalue c", Secrets([secret])) == "a [secret] b [secret] c"
    assert secret[:6] not in shortened("x" * 490 + secret, Secrets([secret]))


@pytest.mark.parametrize(
    "message",
    [
        "The model `gpt-5` does not exist or you do not have access to it.",
        "max_tokens=4096 is too large; the key is to ask for less.",
        "tool_use ids were found without tool_result blocks: toolu_01A09q90qw90lq917835lq9",
        "Bearer authentication is needed, and basic knowledge.",
        "basic usage is shown at https://host/docs?page=2",
    ],
)
def test_a_message_without_secrets_is_unchanged(message):
    assert shortened(message) == message


def test_failures_that_may_pass_are_of_the_service_or_of_the_moment():
    assert OF_SERVICE < PASSING < ELSEWHERE
