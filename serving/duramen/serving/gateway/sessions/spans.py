"""Spans as bytes: what a session keeps of them."""

from collections.abc import Iterable

import msgspec

from duramen.layout.zones import Span, Zone

_Packed = list[tuple[int, int, int, str, bytes, bool]]
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Packed)


def pack_spans(spans: Iterable[Span]) -> bytes:
    return _encoder.encode(
        [(s.start, s.end, int(s.zone), s.source, s.digest, s.sampled) for s in spans]
    )


def unpack_spans(packed: bytes) -> list[Span]:
    return [
        Span(start, end, Zone(zone), source, digest, sampled)
        for start, end, zone, source, digest, sampled in _decoder.decode(packed)
    ]
