"""From what the ranks have issued to the first collective that does not match."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from lab.collectives.deadlock import Detector, find_mismatch
from lab.collectives.lanes import KEPT, Collective, Lane


def lane(*collectives: str, group: str = "0", first: int = 1) -> list[Collective]:
    """ "all_reduce 3 4" is an all_reduce of a tensor [3, 4]."""
    return [
        Collective(group, number, name, (tuple(map(int, size)),) if size else (), False, ())
        for number, (name, *size) in enumerate((text.split() for text in collectives), first)
    ]


def test_equal_sequences_and_sequences_that_may_still_become_equal_are_no_deadlock():
    assert find_mismatch({0: lane("all_reduce 3"), 1: lane("all_reduce 3")}, ended=[0, 1]) is None
    assert find_mismatch({0: lane("all_reduce 3", "barrier"), 1: lane("all_reduce 3")}, ended=[]) is None
    assert find_mismatch({0: lane("barrier"), 1: []}, ended=[0]) is None
    assert find_mismatch({0: [], 1: []}, ended=[0]) is None


def test_a_collective_that_another_rank_will_never_issue():
    found = find_mismatch({0: lane("barrier", "all_reduce 3"), 1: lane("barrier")}, ended=[1])
    assert found is not None
    assert (found.kind, found.number, list(found.waiting), list(found.absent)) == ("missing", 2, [0], [1])


def test_one_rank_has_ended_and_another_may_still_come():
    found = find_mismatch({0: lane("barrier"), 1: [], 2: []}, ended=[2])
    assert found is not None
    assert (found.kind, list(found.absent)) == ("missing", [1, 2])


def test_different_order():
    found = find_mismatch({0: lane("all_reduce 3", "barrier"), 1: lane("barrier", "all_reduce 3")}, ended=[])
    assert found is not None
    assert (found.kind, found.number) == ("order", 1)
    assert {rank: one.name for rank, one in found.waiting.items()} == {0: "all_reduce", 1: "barrier"}


def test_different_numbers_of_elements():
    found = find_mismatch({0: lane("all_reduce 3"), 1: lane("all_reduce 4")}, ended=[])
    assert found is not None
    assert found.kind == "shape"
    assert find_mismatch({0: lane("all_reduce 3 4"), 1: lane("all_reduce 12")}, ended=[]) is None
    assert find_mismatch({0: lane("scatter 3"), 1: lane("scatter")}, ended=[]) is None


def test_the_first_mismatch_is_the_one_that_is_told():
    found = find_mismatch({0: lane("barrier", "broadcast 1", "barrier"), 1: lane("barrier", "barrier")}, ended=[1])
    assert found is not None
    assert (found.kind, found.number) == ("order", 2)


def test_groups_are_compared_each_by_itself():
    both = {0: lane("barrier") + lane("all_reduce 3", group="1"), 1: lane("barrier") + lane("barrier", group="1")}
    found = find_mismatch(both, ended=[])
    assert found is not None
    assert (found.group, found.kind) == ("1", "order")
    subgroup = {0: lane("barrier") + lane("all_reduce 3", group="1"), 1: lane("barrier")}
    assert find_mismatch(subgroup, ended=[1]) is None


def test_only_what_all_ranks_still_remember_is_compared():
    assert (
        find_mismatch({0: lane("barrier", first=5), 1: lane("all_reduce 1", "barrier", first=4)}, ended=[]) is None
    )


def test_a_collective_that_has_come_to_its_end_all_the_same_is_no_deadlock():
    def done(*collectives: str) -> list[Collective]:
        return [replace(one, done=True) for one in lane(*collectives)]

    assert find_mismatch({0: done("broadcast 3"), 1: done("broadcast 4")}, ended=[0, 1]) is None
    assert find_mismatch({0: done("all_reduce 3"), 1: []}, ended=[1]) is None
    found = find_mismatch({0: done("reduce 3") + lane("barrier", first=2), 1: done("reduce 4")}, ended=[1])
    assert found is not None
    assert (found.kind, found.number, found.stuck) == ("missing", 2, [0])


def test_what_the_recorder_does_not_note_is_passed_over():
    with_gap = lane("all_reduce 3") + lane("barrier", first=3)
    assert find_mismatch({0: with_gap, 1: with_gap}, ended=[0, 1]) is None
    assert find_mismatch({0: with_gap, 1: lane("all_reduce 3", "all_reduce 3", "barrier")}, ended=[0, 1]) is None


def test_other_types_of_elements_do_not_match_either():
    doubles = [replace(one, types=("Double",)) for one in lane("all_reduce 3")]
    found = find_mismatch({0: lane("all_reduce 3"), 1: doubles}, ended=[])
    assert found is not None
    assert found.kind == "shape"


# The messages of a rank -------------------------------------------------------------------------------------


def record(identity: int, *, done: bool = False, name: str = "all_reduce") -> list[Any]:
    return [identity, "0", identity + 1, name, [[3]], ["Float"], done, [[0, 88, "evaluate"]]]


def message(*new: list[Any], done: Sequence[int] = (), final: bool = False) -> dict[str, Any]:
    return {"files": ["train.py"], "new": list(new), "done": list(done), "final": final}


def test_a_lane_is_put_together_from_messages():
    one = Lane()
    one.feed(message(record(0), record(1)))
    one.feed(message(record(2), done=[0, 99], final=True))
    assert [(c.number, c.done) for c in one.collectives] == [(1, True), (2, False), (3, False)]
    assert (one.messages, one.final) == (2, True)
    (frame,) = one.collectives[0].frames
    assert (one.collectives[0].sizes, frame.file, frame.line, frame.function) == (
        ((3,),),
        "train.py",
        88,
        "evaluate",
    )


def test_a_lane_is_bounded():
    one = Lane()
    for start in range(0, 2 * KEPT, 100):
        one.feed(message(*(record(start + i) for i in range(100))))
    assert len(one.collectives) == KEPT
    assert one.collectives[-1].number == 2 * KEPT


BROKEN: list[Any] = [
    None,
    [],
    {},
    {**message(), "final": 1},
    {**message(), "new": {}},
    {**message(), "done": [-1]},
    {**message(), "done": [1 << 70]},
    {**message(), "files": [1]},
    message([]),
    message(record(0)[:-1]),
    *(message([*record(0)[:i], float("inf"), *record(0)[i + 1 :]]) for i in range(8)),
    message([*record(0)[:7], [[1, 88, "evaluate"]]]),  # of a file that is not there
    message([*record(0)[:7], [[-1, 88, "evaluate"]]]),
    message([*record(0)[:7], [[0, 88]]]),
    message([*record(0)[:4], [[True]], *record(0)[5:]]),
]


@pytest.mark.parametrize("garbage", BROKEN)
def test_what_a_rank_sends_is_read_without_trust(garbage: Any):
    with pytest.raises(ValueError, match=r"."):
        Lane().feed(garbage)


# From the messages to the certainty -------------------------------------------------------------------------


def test_a_rank_must_have_been_seen_waiting_twice():
    lanes = {0: Lane(), 1: Lane()}
    detector = Detector(lanes)
    assert not detector.deadlock([0, 1])
    lanes[0].feed(message(record(0)))
    lanes[1].feed(message(record(0, name="barrier")))
    assert not detector.deadlock([0, 1]), "the recorder may not know yet that it has come to its end"
    assert not detector.deadlock([0, 1]), "nothing new"
    lanes[1].feed(message(done=[0]))
    assert not detector.deadlock([0, 1]), "nothing new of the rank that waits"
    lanes[0].feed(message())
    assert detector.deadlock([0, 1])


def test_a_collective_that_has_ended_in_the_meantime_is_forgotten():
    lanes = {0: Lane(), 1: Lane()}
    detector = Detector(lanes)
    lanes[0].feed(message(record(0)))
    lanes[1].feed(message(final=True))
    assert not detector.deadlock([0])
    lanes[0].feed(message(done=[0]))
    assert not detector.deadlock([0])


def test_a_rank_that_has_ended_waits_for_nothing():
    lanes = {0: Lane(), 1: Lane()}
    detector = Detector(lanes)
    lanes[0].feed(message(record(0), final=True))
    for _ in range(3):
        lanes[1].feed(message())
        assert not detector.deadlock([1])


def test_the_end_of_a_rank_counts_only_with_its_last_records():
    lanes = {0: Lane(), 1: Lane()}
    detector = Detector(lanes)
    for _ in range(3):
        lanes[0].feed(message(record(0)) if lanes[0].messages == 0 else message())
        assert not detector.deadlock([0])
    lanes[1].feed(message(final=True))
    assert not detector.deadlock([0])
    lanes[0].feed(message())
    assert detector.deadlock([0])
