"""From the body of a chat request to the prompt that it means now."""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from duramen.serving.gateway.exactness import template_arguments
from duramen.serving.gateway.gateway import Serving
from duramen.serving.gateway.policies.shape import Shaped, shape
from duramen.serving.gateway.sessions.conversation import ConversationRequest, Opened
from duramen.serving.gateway.settings import Settings
from duramen.serving.gateway.tenants import Tenant, request_salt
from duramen.serving.gateway.too_long import check_length, too_long


@dataclass(frozen=True)
class LaidOut:
    """`shaped`: what the operator's policies made of the messages."""

    shaped: Shaped
    opened: Opened

    @property
    def policies(self) -> tuple[str, ...]:
        """A line for each that acted."""
        if not self.opened.root_padding:
            return self.shaped.acted
        padded = f"zones aligned: root padded by {self.opened.root_padding} tokens"
        return (*self.shaped.acted, padded)


async def lay_out(
    serving: Serving,
    settings: Settings,
    tenant: Tenant,
    body: Mapping[str, Any],
    session: str | None,
) -> LaidOut:
    """Nothing is recorded yet. Raises ApiError 400 for what does not fit the model, LayoutError for
    messages that cannot be rendered here."""
    conversations, model, policies = serving.conversations, serving.model, settings.policies
    scope = conversations.scope_of(tenant.name, model.name)
    await check_length(body, model.max_model_len, conversations.model.tokenizer)
    shaped = shape(
        body["messages"],
        list(body.get("tools") or ()),
        policies,
        tools_of_session=lambda messages: conversations.session_tools(scope, messages, session),
        count=lambda text: conversations.num_tokens(scope, text),
    )
    opened = conversations.open(
        ConversationRequest(
            scope=scope,
            salt=request_salt(tenant, body.get("cache_salt")),
            messages=[dict(message) for message in shaped.messages],
            tools=shaped.tools,
            arguments=template_arguments(body, settings.chat_template_arguments),
            session=session,
            suffix=shaped.suffix,
            align_unit=model.unit_tokens if policies.align_zones else 0,
        ),
        datetime.datetime.now(),
    )
    num_tokens = len(opened.prompt.token_ids)
    if num_tokens >= model.max_model_len:
        raise too_long(model.max_model_len, num_tokens)
    return LaidOut(shaped, opened)
