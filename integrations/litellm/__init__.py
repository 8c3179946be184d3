"""LiteLLM: register the provider ``art/`` once, then swap the model string."""

from integrations.litellm.registering import register

__all__ = ["register"]
