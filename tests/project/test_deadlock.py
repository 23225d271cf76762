"""From what the ranks have issued to the first collective that does not match."""

from lab.grading.deadlock import find_mismatch
from lab.grading.recorder import Collective, read


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


def test_what_a_rank_sent_is_read_without_trust():
    frames = [["train.py", 88, "evaluate"]]
    (one,) = read([["0", 1, "all_reduce", [[3]], False, False, frames], ["0", 2, "send", [[3]], False, True, []]])
    assert (one.name, one.sizes, one.frames[0].line) == ("all_reduce", ((3,),), 88)
