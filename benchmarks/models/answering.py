"""What the models here share that no endpoint stands behind: a reply is made of the messages."""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult


class Answering(BaseChatModel):
    """A model whose replies are made in this process."""

    @property
    def _llm_type(self) -> str:
        return type(self).__name__

    def reply_to(self, messages: list[BaseMessage], role: str) -> str:
        """Return the text of a reply to whoever asks in a role."""
        raise NotImplementedError

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **options: Any,
    ) -> ChatResult:
        metadata = run_manager.metadata if run_manager else {}
        said = self.reply_to(messages, metadata.get("role", ""))
        return ChatResult(generations=[ChatGeneration(message=AIMessage(said))])


def text_of(messages: list[BaseMessage]) -> str:
    """Return what messages say, one after the other."""
    return "\n\n".join(str(message.content) for message in messages)
