"""What the ranks and the grader say to each other: everything arrives as it was, nothing else gets through."""

from __future__ import annotations

import math
import pickle
import random
import socket
import struct

import pytest
import torch

from lab.ranks import wire


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -(10**30),
        0.1,
        math.inf,
        -math.inf,
        "Zürich \U0001f680 \0",
        b"\x00\xff" * 9,
        [],
        [1, [2.0, None], "x"],
        (1, (2, []), ()),
        {"a": {"b": (1,)}, "": []},
        {1: "one", (2, 3): "two", None: b"three"},
        {"$": "tuple", "v": [1]},
        {"$": None},
    ],
    ids=repr,
)
def test_plain_data_arrives_as_it_was(value: object) -> None:
    back = wire.decode(wire.encode(value))
    assert back == value
    assert type(back) is type(value)


def test_not_a_number_arrives() -> None:
    assert math.isnan(wire.decode(wire.encode(math.nan)))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 4, dtype=torch.float64),
        torch.randn(2, 2).to(torch.bfloat16),
        torch.tensor([1, -(2**62)]),
        torch.tensor([True, False]),
        torch.tensor(2.5),
        torch.empty(0, 7),
        torch.randn(2, 3, dtype=torch.complex64).conj(),
        torch.arange(12).reshape(3, 4).t()[::2],
        torch.tensor([math.inf, -math.inf, 0.0], requires_grad=True),
        torch.nn.Parameter(torch.ones(2)),
    ],
    ids=lambda tensor: f"{tensor.dtype} {tuple(tensor.shape)}",
)
def test_tensors_arrive_to_the_bit(tensor: torch.Tensor) -> None:
    first, second, text = wire.decode(wire.encode([tensor, tensor, "after"]))
    for back in (first, second):
        assert back.dtype == tensor.dtype
        assert torch.equal(back, tensor.detach())
    assert text == "after"
    first.zero_()  # writable, and its own


def test_an_unpaired_surrogate_becomes_printable() -> None:
    wire.decode(wire.encode({"\udc80": ["\ud800!"]})).__repr__().encode("utf-8")


def circle() -> list[object]:
    value: list[object] = []
    value.append(value)
    return value


class Sharded(torch.Tensor):
    def full_tensor(self) -> None:
        raise AssertionError("a collective; not every rank may be here")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"a": [1, object()]}, r"value\['a'\]\[1\] is a builtins.object"),
        (circle(), "nested too deeply"),
        (torch.ones(2).to_sparse(), "layout torch.sparse_coo"),
        (torch.ones(2, device="meta"), "on meta"),
        ([torch.ones(2).as_subclass(Sharded)], r"value\[0\] is a DTensor: call full_tensor"),
        ("x" * (wire.MAX_JSON + 1), "send long data as tensors"),
        (torch.empty(wire.MAX_PAYLOAD, dtype=torch.uint8), "more than 67108864"),
    ],
    ids=["object", "circle", "sparse", "meta", "dtensor", "long text", "large tensor"],
)
def test_what_cannot_be_sent_is_named(value: object, says: str) -> None:
    with pytest.raises(wire.WireError, match=says):
        wire.encode(value)


def message(text: str, blobs: bytes = b"") -> bytes:
    return struct.pack(">I", len(text)) + text.encode() + blobs


class Bomb:
    def __reduce__(self) -> tuple[object, ...]:
        return (pytest.fail, ("unpickled",))


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\0\0",
        b"\xff" * 40,
        pickle.dumps(Bomb()),
        message("[1]", b"left over"),
        message('{"$":"bytes","n":9}', b"short"),
        message('{"$":"bytes","n":-1}', b""),
        message('{"$":"bytes","n":"1"}', b"x"),
        message('{"$":"bytes"}'),
        message('{"$":["list"]}'),
        message('{"$":"tuple","v":3}'),
        message('{"$":"dict","v":[[[],1]]}'),
        message('{"$":"dict","v":[[1,2,3]]}'),
        message('{"$":"tensor","dtype":"save","shape":[1]}', b"xxxx"),
        message('{"$":"tensor","dtype":"float32","shape":[1e3]}', b"xxxx"),
        message('{"$":"tensor","dtype":"float32","shape":[-1,-1]}', b"xxxx"),
        message('{"$":"tensor","dtype":"float32","shape":[4611686018427387904,4]}', b""),
        message('{"$":"tensor","dtype":"uint8","shape":[0,9999999999999999999999]}', b""),
        message("[" * 100_000),
        message("1" * 10_000),
        message("{nonsense"),
        b"\x00\x00\x00\x02\xff\xfe",
    ],
    ids=lambda garbage: repr(garbage[:48]),
)
def test_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.decode(garbage)


def test_damaged_messages_raise_nothing_else() -> None:
    rng = random.Random(5)
    whole = wire.encode({"loss": [0.5, math.inf], "w": torch.randn(3, 2), "raw": b"abc", 1: (None, "ü")})
    for _ in range(3000):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            wire.decode(bytes(damaged[: rng.randint(0, len(damaged) + 20)]))
        except wire.WireError:
            continue


def test_frames_survive_any_cut() -> None:
    frames = [(b"a", b""), (b"b", b"x" * 1000), (b"c", b"\0")]
    stream = b"".join(wire.frame(kind, payload) for kind, payload in frames)
    for size in (1, 7, 9, 10, 1009, len(stream)):
        reader = wire.FrameReader()
        pieces = [stream[i : i + size] for i in range(0, len(stream), size)]
        assert [frame for piece in pieces for frame in reader.feed(piece)] == frames


def test_a_long_frame_is_refused_before_it_arrives() -> None:
    header = wire.frame(b"R")[:1] + struct.pack(">Q", wire.MAX_PAYLOAD + 1)
    with pytest.raises(wire.WireError, match="67108865"):
        list(wire.FrameReader().feed(header))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(header)
        with pytest.raises(wire.WireError, match="67108865"):
            wire.receive(ours)


def test_a_closed_connection_is_the_end() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.sendall(wire.frame(b"R", b"whole") + wire.frame(b"R", b"cut")[:-1])
        theirs.close()
        assert wire.receive(ours) == (b"R", b"whole")
        with pytest.raises(EOFError):
            wire.receive(ours)
