"""Who waits for whose message for ever, told from what the ranks have begun."""

import pytest

from lab.collectives.deadlock import Detector
from lab.collectives.lanes import Collective, Lane, Message
from lab.collectives.stall import Position, Stall, find_stall


def message(kind: str, peer: int, *, nth: int = 1, tag: int = 0, waiting: bool = True) -> Message:
    return Message(kind, "0", peer, tag, nth, 4, "float32", waiting, not waiting, (), ())


def all_reduce(number: int, *, done: bool = False) -> Collective:
    return Collective("0", number, "allreduce", ((4,),), done, ())


def at(*messages: Message, collectives: tuple[Collective, ...] = (), in_wait: bool = False) -> Position:
    return Position(messages, collectives, in_wait)


def stall(*positions: Position, ended: tuple[int, ...] = ()) -> Stall | None:
    return find_stall(dict(enumerate(positions)), ended)


def test_all_that_receive_first_wait_for_each_other():
    found = stall(*(at(message("recv", (rank - 1) % 3)) for rank in range(3)))
    assert found is not None
    assert {rank: one.peer for rank, one in found.messages.items()} == {0: 2, 1: 0, 2: 1}


def test_who_can_go_on_frees_all_who_wait_for_it():
    running = at(message("recv", 0, waiting=False))
    assert stall(at(message("recv", 2)), at(message("recv", 0)), running) is None


def test_a_message_that_has_its_other_side_comes_to_its_end():
    begun = at(message("send", 0, waiting=False), message("recv", 0))
    assert stall(at(message("recv", 1)), begun) is None


@pytest.mark.parametrize("other", [message("send", 0, tag=1), message("send", 0, nth=2), message("recv", 0)])
def test_the_other_side_has_the_same_tag_and_number_and_another_kind(other: Message):
    found = stall(at(message("recv", 1)), at(other))
    assert found is not None
    assert found.ranks == [0, 1]


def test_a_rank_that_has_ended_sends_nothing_more():
    found = stall(at(message("recv", 1)), at(), ended=(1,))
    assert found is not None
    assert found.ranks == [0]
    assert stall(at(message("recv", 1)), at(message("send", 0, waiting=False)), ended=(1,)) is None


def test_a_collective_waits_for_all_that_have_not_come_to_it():
    waits = at(collectives=(all_reduce(1),), in_wait=True)
    found = stall(at(message("recv", 1)), waits)
    assert found is not None
    assert (list(found.messages), list(found.collectives)) == ([0], [1])
    # One that was only begun, or that the other has come to as well, keeps nobody.
    assert stall(at(message("recv", 1)), at(collectives=(all_reduce(1),))) is None
    assert stall(at(message("recv", 1), collectives=(all_reduce(1),)), waits) is None


def test_nobody_can_send_to_itself():
    found = stall(at(message("send", 0), message("recv", 0, waiting=False)))
    assert found is not None
    assert found.ranks == [0]


def test_a_receive_from_anybody_is_never_certain():
    assert stall(at(message("recv", -1)), at(message("recv", -1))) is None


def told(kind: str, peer: int, *, waiting: bool) -> dict[str, object]:
    """What a rank sends of one message."""
    record = [0, kind, "0", peer, 0, 1, 4, "float32", waiting, False, [], []]
    return {"files": [], "new": [], "done": [], "final": False, "one_to_one": [record]}


NOTHING_NEW = {"files": [], "new": [], "done": [], "final": False}


def test_every_rank_must_have_been_seen_waiting_twice():
    lanes = {0: Lane(), 1: Lane()}
    detector = Detector(lanes)
    lanes[0].feed(told("recv", 1, waiting=True))
    assert not detector.deadlock([0, 1])
    lanes[1].feed(told("recv", 0, waiting=True))
    assert not detector.deadlock([0, 1])
    lanes[0].feed(NOTHING_NEW)
    assert not detector.deadlock([0, 1])
    lanes[1].feed(NOTHING_NEW)
    assert detector.deadlock([0, 1])


@pytest.mark.parametrize(
    ("field", "junk"), [(0, -1), (1, "give"), (3, -2), (4, None), (7, 3), (8, 1), (10, [[0, 1]])]
)
def test_what_no_recorder_would_send_is_refused(field: int, junk: object):
    content = told("send", 1, waiting=False)
    content["one_to_one"][0][field] = junk  # type: ignore[index]
    with pytest.raises(ValueError, match=r"\w"):
        Lane().feed(content)
