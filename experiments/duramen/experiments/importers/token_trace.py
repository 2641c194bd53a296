"""Token traces: {"token_ids": [...], "output_ids": [...]} on each line, the outputs optional."""

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from duramen.experiments.importers.documents import Document
from duramen.layout.errors import TrajectoryError

TokenId = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]


class TokenRequest(msgspec.Struct, frozen=True):
    """One line of a token trace."""

    token_ids: Annotated[Sequence[TokenId], msgspec.Meta(min_length=1)]
    output_ids: Sequence[TokenId] = ()


def read_token_trace(documents: Iterator[Document]) -> Iterator[TokenRequest]:
    """Yield the requests in file order. Raises TrajectoryError at the line that is not one."""
    for where, value in documents:
        try:
            yield msgspec.convert(value, TokenRequest)
        except msgspec.ValidationError as error:
            raise TrajectoryError(f"{where}: no line of a token trace: {error}") from error
