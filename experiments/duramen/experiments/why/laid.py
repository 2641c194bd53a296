"""One call of a log in all the layers that are known of it."""

from dataclasses import dataclass

from duramen.experiments.trajectory import Call
from duramen.experiments.why.rendering import Ids, Rendered
from duramen.layout.diagnose.sent import Request, Sent
from duramen.layout.tokenizer import Tokenizer


@dataclass(frozen=True)
class Laid:
    """`request` is None where the log has no messages of the call; `rendered` where there is
    nothing to render, or the template refuses it, with its reason in `refused`. `recorded`: the ids
    that the log has, which hold over ours."""

    index: int
    call: Call
    request: Request | None
    rendered: Rendered | None
    recorded: Ids | None = None
    refused: str | None = None

    @property
    def token_ids(self) -> Ids | None:
        if self.recorded is not None:
            return self.recorded
        return self.rendered.token_ids if self.rendered else None

    @property
    def is_ours(self) -> bool:
        """Whether the ids are those of the text that we rendered."""
        if self.rendered is None or self.recorded is None:
            return self.rendered is not None
        ours = self.rendered.token_ids
        return len(ours) == len(self.recorded) and bool((ours == self.recorded).all())

    def sent(self, tokenizer: Tokenizer, reply_ids: Ids | None = None) -> Sent:
        """For the diagnosis. Our text is left out where the recorded ids spell another one: the log
        is then of another model or template, and only its request and ids are facts."""
        ids = self.token_ids
        text = self.rendered.text if self.rendered else None
        if text is not None and ids is not None and not self.is_ours:
            text = text if tokenizer.decode(ids.tolist()) == text else None
        return Sent(
            self.request,
            text,
            None if ids is None else ids.tolist(),
            None if reply_ids is None or not len(reply_ids) else reply_ids.tolist(),
        )
