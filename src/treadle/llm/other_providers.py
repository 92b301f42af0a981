"""The providers of pydantic-ai without a class here: by name, with their requirements."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from treadle.core.model import Finish
from treadle.core.unknown_names import explains_arguments
from treadle.errors import ModelUnknown
from treadle.llm.providers import CONNECT, NamedModel

if TYPE_CHECKING:
    from pydantic_ai.models import Model as TheirModel


class OtherProvider(NamedTuple):
    """The requirements of a provider's models.

    Args:
        keys: environment variables that hold the key; the first one that is set counts. Empty: the provider's package
            looks for its credentials itself.
        extra: the extra that installs the packages.
        packages: the packages that have to be installed beside pydantic-ai.
        home: the module whose import takes long.
        url: the environment variable that holds the address, if there is one.
    """

    keys: tuple[str, ...]
    extra: str = "openai"
    packages: tuple[str, ...] = ("openai",)
    home: str = "treadle.llm.openai_stream"
    url: str = ""


_RESPONSES = "treadle.llm.responses_stream"
_GATEWAY = ("PYDANTIC_AI_GATEWAY_API_KEY", "PAIG_API_KEY")
_GATEWAY_URL = "PYDANTIC_AI_GATEWAY_BASE_URL"
_BEDROCK = ((), "bedrock", ("boto3",), "pydantic_ai.models.bedrock")
_GROQ = ("groq", ("groq",), "pydantic_ai.models.groq")
_GOOGLE = ("google", ("google.genai",), "treadle.llm.google_stream")

OTHER_PROVIDERS: Final[Mapping[str, OtherProvider]] = {
    "alibaba": OtherProvider(("ALIBABA_API_KEY", "DASHSCOPE_API_KEY")),
    "azure": OtherProvider(("AZURE_OPENAI_API_KEY",), url="AZURE_OPENAI_ENDPOINT"),
    "azure-responses": OtherProvider(("AZURE_OPENAI_API_KEY",), home=_RESPONSES, url="AZURE_OPENAI_ENDPOINT"),
    "bedrock": OtherProvider(*_BEDROCK),
    "bedrock-mantle": OtherProvider((), "bedrock-mantle", ("openai", "botocore"), _RESPONSES),
    "cerebras": OtherProvider(("CEREBRAS_API_KEY",)),
    "cohere": OtherProvider(
        ("CO_API_KEY",), "cohere", ("cohere",), "pydantic_ai.models.cohere", "CO_BASE_URL"
    ),
    "crusoe": OtherProvider(("CRUSOE_API_KEY",)),
    "deepseek": OtherProvider(("DEEPSEEK_API_KEY",)),
    "fireworks": OtherProvider(("FIREWORKS_API_KEY",)),
    "gateway/anthropic": OtherProvider(
        _GATEWAY, "anthropic", ("anthropic",), "treadle.llm.anthropic_stream", _GATEWAY_URL
    ),
    "gateway/bedrock": OtherProvider(_GATEWAY, *_BEDROCK[1:], _GATEWAY_URL),
    "gateway/google": OtherProvider(_GATEWAY, *_GOOGLE, _GATEWAY_URL),
    "gateway/google-cloud": OtherProvider(_GATEWAY, *_GOOGLE, _GATEWAY_URL),
    "gateway/groq": OtherProvider(_GATEWAY, *_GROQ, _GATEWAY_URL),
    "gateway/openai": OtherProvider(_GATEWAY, home=_RESPONSES, url=_GATEWAY_URL),
    "gateway/openai-chat": OtherProvider(_GATEWAY, url=_GATEWAY_URL),
    "gateway/openai-responses": OtherProvider(_GATEWAY, home=_RESPONSES, url=_GATEWAY_URL),
    "github": OtherProvider(("GITHUB_API_KEY",)),
    "github-copilot": OtherProvider((), url="GITHUB_COPILOT_BASE_URL"),
    "google-cloud": OtherProvider((), *_GOOGLE),
    "google-decisions": OtherProvider(("GOOGLE_API_KEY", "GEMINI_API_KEY"), *_GOOGLE),
    "groq": OtherProvider(("GROQ_API_KEY",), *_GROQ, "GROQ_BASE_URL"),
    "heroku": OtherProvider(("HEROKU_INFERENCE_KEY",), url="HEROKU_INFERENCE_URL"),
    "huggingface": OtherProvider(
        ("HF_TOKEN",), "huggingface", ("huggingface_hub",), "pydantic_ai.models.huggingface"
    ),
    "litellm": OtherProvider(()),
    "meta": OtherProvider(("META_API_KEY",), home=_RESPONSES),
    "mistral": OtherProvider(("MISTRAL_API_KEY",), "mistral", ("mistralai",), "pydantic_ai.models.mistral"),
    "moonshotai": OtherProvider(("MOONSHOTAI_API_KEY",), url="MOONSHOTAI_BASE_URL"),
    "nebius": OtherProvider(("NEBIUS_API_KEY",)),
    "openai-chatgpt": OtherProvider((), home=_RESPONSES),
    "openai-codex": OtherProvider((), home=_RESPONSES),
    "openai-decisions": OtherProvider(("OPENAI_API_KEY",), home=_RESPONSES, url="OPENAI_BASE_URL"),
    "openrouter": OtherProvider(("OPENROUTER_API_KEY",)),
    "ovhcloud": OtherProvider(("OVHCLOUD_API_KEY",)),
    "sambanova": OtherProvider(("SAMBANOVA_API_KEY",), url="SAMBANOVA_BASE_URL"),
    "snowflake": OtherProvider(("SNOWFLAKE_TOKEN",)),
    "system-one": OtherProvider(
        (), packages=(), home="pydantic_ai.models.system_one", url="SYSTEM_ONE_BASE_URL"
    ),
    "together": OtherProvider(("TOGETHER_API_KEY",)),
    "typesafe": OtherProvider(
        ("TYPESAFE_API_KEY",),
        "typesafe",
        ("typesafe_sdk",),
        "pydantic_ai.models.typesafe",
        "TYPESAFE_BASE_URL",
    ),
    "vercel": OtherProvider(("VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN")),
    "vllm": OtherProvider((), url="VLLM_BASE_URL"),
    "xai": OtherProvider(("XAI_API_KEY",), "xai", ("xai_sdk",), "pydantic_ai.models.xai"),
    "zai": OtherProvider(("ZAI_API_KEY",)),
}
"""The requirements of each provider, by the name in front of the model's."""


@explains_arguments
class ProviderModel(NamedModel):
    """A model of any provider that pydantic-ai knows: `ProviderModel("groq", "llama-3.3-70b-versatile")`.

    Args:
        provider: the provider, such as `groq`, `mistral`, `azure`, `bedrock`, `openrouter`, `deepseek` or `xai`.
        name: the provider's name for the model.
        base_url: the address of the server, if it is not the provider's own.
        api_key: the secret to send; by default from the provider's environment variable.
        stream: see `NamedModel`.
        finish_reasons: see `NamedModel`.
        idempotency_header: see `NamedModel`.

    Raises:
        ModelUnknown: no provider has that name.
    """

    def __init__(
        self,
        provider: str,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        stream: bool = True,
        finish_reasons: Mapping[str, Finish] | None = None,
        idempotency_header: str | None = None,
    ) -> None:
        if (needs := OTHER_PROVIDERS.get(provider)) is None:
            names = ", ".join(OTHER_PROVIDERS)
            raise ModelUnknown(f"ProviderModel: provider must be one of {names}, got {provider!r}")
        self.provider, self.extra, self.packages = provider, needs.extra, needs.packages  # pyright: ignore[reportAttributeAccessIssue]
        self.home, self.key_variables, self.url_variable = needs.home, needs.keys, needs.url  # pyright: ignore[reportAttributeAccessIssue]
        super().__init__(
            name,
            base_url=base_url,
            api_key=api_key,
            stream=stream,
            finish_reasons=finish_reasons,
            idempotency_header=idempotency_header,
        )

    def _make(self) -> TheirModel:
        from treadle.llm.other_clients import make

        key = self._key() if self.key_variables else self._api_key
        return make(
            self.provider,
            self._model_name,
            home=self.home,
            key=key,
            url=self._url(),
            connect=self._connect or CONNECT,
            silence=self._silence,
        )

    def _url(self) -> str | None:
        return self._base_url or (os.environ.get(self.url_variable) if self.url_variable else None) or None
