"""Why a call does not begin with an earlier one: the first place where they part, and its cause.

Four layers are made each from the one before: request, text, tokens, blocks. A cause belongs to the
first that is not what it should be. Blocks are not looked at here.
"""

from dataclasses import replace

from duramen.layout.diagnose.causes import CAUSES, Layer
from duramen.layout.diagnose.change import Change
from duramen.layout.diagnose.parting import Parting, near, parting
from duramen.layout.diagnose.replies import reply_layer
from duramen.layout.diagnose.requests import any_change, keys_change, request_change
from duramen.layout.diagnose.sent import Finding, Sent
from duramen.layout.diagnose.template_text import text_layer_change, thinking_here
from duramen.layout.diagnose.tokens import bos_text_twice, bos_twice, respelled
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.tracked import Tracked


def diagnose(before: Sent, after: Sent, tokenizer: Tokenizer | None = None) -> Finding | None:
    """None where `after` begins with all of `before`, its reply included, or is itself a beginning
    of it (the same call once more): by ids, where both have them, else by texts, else by requests.

    Costs a comparison where nothing is found, and n log n of the parting texts at most.
    """
    place = parting(before, after, tokenizer)
    if place.is_nowhere:
        return None
    if place.token is None and place.character is None:
        return _of_requests_alone(before, after)
    layer, change = _explained(place, before, after, tokenizer)
    return _finding(layer, change, place)


def _of_requests_alone(before: Sent, after: Sent) -> Finding | None:
    if before.request is None or after.request is None:
        return None
    found = any_change(before.request, after.request) or keys_change(before.request, after.request)
    return None if found is None else _finding("request", found, Parting())


def _explained(
    place: Parting, before: Sent, after: Sent, tokenizer: Tokenizer | None
) -> tuple[Layer, Change]:
    if found := _of_tokens(place, tokenizer):
        return "token", found
    if place.texts_agree and tokenizer is None and before.reply_ids:
        return "token", Change("unknown", 0.5, "without a tokenizer the reply cannot be read")
    if place.texts_agree:
        return "token", Change("retokenisation", 0.9, "the texts agree and their ids differ")
    if found := _of_request(place, before, after):
        return "request", found
    if place.character is not None:
        found = text_layer_change(place, before.request, after.request)
        if found.cause == "unknown" and before.request and after.request:
            elsewhere = any_change(before.request, after.request)
            if elsewhere is not None:
                return "request", replace(elsewhere, confidence=0.5)
        return reply_layer(found, place, before.request, after.request), found
    if before.request is not None and after.request is not None:
        found = any_change(before.request, after.request)
        if found is not None:
            return "request", found
    return "token", Change("unknown", 0.5, "only the ids are known of both, and they differ")


def _of_tokens(place: Parting, tokenizer: Tokenizer | None) -> Change | None:
    found = None
    if place.token is not None and place.old_ids is not None and place.new_ids is not None:
        found = bos_twice(place.old_ids, place.new_ids, place.token)
        if found is None and tokenizer is not None:
            found = respelled(place.old_ids, place.new_ids, place.token, tokenizer)
    if found is None and place.old is not None and place.new is not None:
        bos = None if tokenizer is None else tokenizer.special_strings.get("bos_token")
        found = bos_text_twice(place.old, place.new, bos)
    return found


def _of_request(place: Parting, before: Sent, after: Sent) -> Change | None:
    """What differs at the place; where it is an option, thinking that is there now and then counts
    as its own cause."""
    if before.request is None or after.request is None:
        return None
    if place.character is None:
        return any_change(before.request, after.request)
    texts = [text for text in (place.old, place.new) if isinstance(text, Tracked)]
    nears = [near(text, place.character) for text in texts]
    reply = (place.old or "")[place.prompt_chars :]
    found = request_change(before.request, after.request, nears, reply)
    if found is not None and found.cause == "template-option" and thinking_here(place):
        return None
    return found


def _finding(layer: Layer, change: Change, place: Parting) -> Finding:
    mend = change.mend or CAUSES[change.cause].mend
    return Finding(
        layer,
        change.cause,
        change.confidence,
        evidence=f"{change.where}: {change.evidence}" if change.where else change.evidence,
        mend=f"{change.where}: {mend}" if change.where else mend,
        token=place.token,
        character=place.character,
    )
