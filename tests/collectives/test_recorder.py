"""In a rank: from what PyTorch's flight recorder has noted to messages, each collective once."""

from typing import Any

import pytest

from lab.collectives import recorder
from lab.collectives.lanes import Lane
from lab.collectives.recorder import Recorder


def entry(identity: int, *, retired: bool = True, group: int = 0, **more: Any) -> dict[str, Any]:
    def frame(file: str, name: str) -> dict[str, Any]:
        return {"filename": file, "line": 7, "name": name}

    frames = [frame("train.py", "evaluate"), frame("check.py", "observe"), frame("rank.py", "_observe")]
    return {
        "record_id": identity,
        "pg_id": group,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": identity + 1,
        "profiling_name": "gloo:all_reduce",
        "input_sizes": [[3]],
        "input_dtypes": ["Float"],
        "retired": retired,
        "is_p2p": False,
        "frames": [*frames, frame("leader.py", "start")],
        **more,
    }


class Noted:
    """Stands in for the flight recorder."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.with_frames = 0

    def dump(self, *, frames: bool) -> list[dict[str, Any]]:
        self.with_frames += frames
        return list(self.entries)


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Noted:
    one = Noted()
    monkeypatch.setattr(recorder, "_dump", one.dump)
    return one


def feed(lane: Lane, reader: Recorder, *, final: bool = False) -> list[dict[str, Any]]:
    messages = list(reader.news(final=final))
    for message in messages:
        lane.feed(message)
    return messages


def test_each_collective_is_told_once_and_its_end_later(noted: Noted):
    lane, reader = Lane(), Recorder("rank.py", "_observe")
    assert len(feed(lane, reader)) == 1, "a sign of life"
    noted.entries = [entry(0), entry(1, retired=False)]
    feed(lane, reader)
    (message,) = feed(lane, reader)
    assert (message["new"], message["done"]) == ([], [])
    noted.entries = [entry(0), entry(1), entry(2, retired=False)]
    (message,) = feed(lane, reader, final=True)
    assert ([record[0] for record in message["new"]], message["done"]) == ([2], [1])
    assert [(one.number, one.done) for one in lane.collectives] == [(1, True), (2, True), (3, False)]
    assert lane.final
    assert noted.with_frames == 2, "frames are costly: only when there is something new"


def test_frames_run_from_the_check_inwards(noted: Noted):
    lane = Lane()
    noted.entries = [entry(0)]
    feed(lane, Recorder("rank.py", "_observe"))
    assert [frame.function for frame in lane.collectives[0].frames] == ["observe", "evaluate"]


def test_many_collectives_take_several_messages(noted: Noted):
    lane = Lane()
    noted.entries = [entry(number) for number in range(250)]
    messages = feed(lane, Recorder("rank.py", "_observe"), final=True)
    assert [len(message["new"]) for message in messages] == [100, 100, 50]
    assert [message["final"] for message in messages] == [False, False, True]
    assert len(lane.collectives) == 250


def test_point_to_point_is_left_out_and_a_new_group_of_an_old_name_is_told_apart(noted: Noted):
    lane = Lane()
    noted.entries = [entry(0), entry(1, is_p2p=True), entry(2, group=5), entry(3, group=9)]
    feed(lane, Recorder("rank.py", "_observe"))
    assert [one.group for one in lane.collectives] == ["0", "0 (2)", "0 (3)"]
