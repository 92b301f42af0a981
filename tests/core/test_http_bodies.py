"""Bodies of HTTP responses are decoded in pieces, and only as far as their bound."""

import gzip
import tracemalloc
import zlib

import pytest

from treadle.core.http_bodies import PIECE, BodyRefused, Decoder, checked_encoding, decoded

TEXT = bytes(range(256)) * 1_000


def raw_deflate(data: bytes) -> bytes:
    deflating = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return deflating.compress(data) + deflating.flush()


ENCODED = {
    "": TEXT,
    "gzip": gzip.compress(TEXT),
    "two gzip streams": gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:]),
    "gzip with zeros after it": gzip.compress(TEXT) + bytes(20),
    "deflate": zlib.compress(TEXT),
    "deflate without the head of zlib": raw_deflate(TEXT),
}


def encoding_of(name: str) -> str:
    return next((each for each in ("gzip", "deflate") if each in name), "")


@pytest.mark.parametrize("size", [1, 7, PIECE, 10 * len(TEXT)])
@pytest.mark.parametrize("name", ENCODED)
def test_a_body_reads_the_same_however_it_is_cut_into_chunks(name, size):
    decoder, body = Decoder(encoding_of(name)), ENCODED[name]
    chunks = [body[start : start + size] for start in range(0, len(body), size)]
    pieces = [piece for chunk in chunks for piece in decoder.pieces(chunk)]
    decoder.check_end()
    assert b"".join(pieces) == TEXT
    assert max(map(len, pieces)) <= PIECE


@pytest.mark.parametrize("size", [PIECE - 1, PIECE, PIECE + 1, 2 * PIECE])
def test_a_body_that_ends_where_a_piece_ends_is_whole(size):
    decoder = Decoder("gzip")
    assert len(b"".join(decoder.pieces(gzip.compress(bytes(size))))) == size
    decoder.check_end()


@pytest.mark.parametrize(
    ("header", "encoding"),
    [("", ""), ("identity", ""), ("GZIP", "gzip"), ("x-gzip", "gzip"), ("deflate, identity", "deflate")],
)
def test_an_encoding_that_was_offered_is_known(header, encoding):
    assert checked_encoding(header) == encoding


@pytest.mark.parametrize("header", ["br", "zstd", "gzip, gzip", "gzip,deflate", "gzip, br", "compress"])
def test_an_encoding_that_was_not_offered_and_nested_ones_are_refused(header):
    with pytest.raises(BodyRefused, match="not offered"):
        checked_encoding(header)


@pytest.mark.parametrize("name", ["gzip", "deflate", "deflate without the head of zlib"])
def test_a_body_that_is_cut_off_or_is_none_is_refused(name):
    cut = Decoder(encoding_of(name))
    for _ in cut.pieces(ENCODED[name][:-5]):
        pass
    with pytest.raises(BodyRefused, match="in the middle"):
        cut.check_end()
    with pytest.raises(BodyRefused, match="cannot be decoded"):
        list(Decoder(encoding_of(name)).pieces(b"\xff\xfe\xfd" * 20))


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["gzip", "deflate", ""])
async def test_no_more_is_decoded_than_a_body_may_have(name):
    zeros = bytes(10_000_000)
    body = {"gzip": gzip.compress(zeros, 1), "deflate": zlib.compress(zeros, 1), "": zeros}[name]
    del zeros
    read = 0

    async def sent():
        yield body

    async def read_all():
        nonlocal read
        async for piece in decoded(sent(), name, 1_000_000):
            read += len(piece)

    tracemalloc.start()
    try:
        with pytest.raises(BodyRefused, match="more than 1,000,000 bytes"):
            await read_all()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert read <= 1_000_000
    assert peak < 20 * PIECE
