"""An exception that was raised once more, in another process or by a group, is placed where it began."""

import pytest

from lab.diagnose.evidence import Evidence
from lab.diagnose.verdict import findings

SITE = "/home/u/env/lib/python3.11/site-packages"
ASKED = f"""Traceback (most recent call last):
  File "/home/u/train.py", line 58, in train_one_epoch
    for images, labels in loader:
  File "{SITE}/torch/utils/data/dataloader.py", line 733, in __next__
    data = self._next_data()
  File "{SITE}/torch/_utils.py", line 769, in reraise
    raise exception
"""
IN_DATA = f"""IndexError: Caught IndexError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "{SITE}/torch/utils/data/_utils/fetch.py", line 52, in fetch
    data = [self.dataset[idx] for idx in possibly_batched_index]
  File "/home/u/data.py", line 71, in __getitem__
    return self.dataset[self.indices[index]]
IndexError: list index out of range
"""
IN_COLLATE = f"""RuntimeError: Caught RuntimeError in DataLoader worker process 3.
Original Traceback (most recent call last):
  File "{SITE}/torch/utils/data/_utils/collate.py", line 172, in collate_tensor_fn
    return torch.stack(batch, 0, out=out)
RuntimeError: stack expects each tensor to be equal size
"""
CUT_OFF = "KeyError: Caught KeyError in DataLoader worker process 1.\n"
IN_REPLICA = """RuntimeError: Caught RuntimeError in replica 0 on device 0.
Original Traceback (most recent call last):
  File "/home/u/model.py", line 40, in forward
    return self.fc(x)
RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x2 and 3x4)
"""
REMOTE = """concurrent.futures.process._RemoteTraceback:
\"\"\"
Traceback (most recent call last):
  File "/usr/lib/python3.11/concurrent/futures/process.py", line 256, in _process_worker
    r = call_item.fn(*call_item.args, **call_item.kwargs)
  File "/home/u/data.py", line 20, in decode
    return int(words[1])
IndexError: list index out of range
\"\"\"

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/home/u/main.py", line 91, in main
    pool.map(decode, rows)
IndexError: list index out of range
"""
GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "/home/u/main.py", line 12, in <module>
  |     asyncio.run(load_all(paths))
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Exception Group Traceback (most recent call last):
    |   File "/home/u/main.py", line 20, in load_all
    |     async with TaskGroup() as group:
    | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
    +-+---------------- 1 ----------------
      | Traceback (most recent call last):
      |   File "/home/u/data.py", line 30, in load
      |     return int(words[1])
      | IndexError: list index out of range
      +------------------------------------
"""
REPORT = """torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Failures:
[0]:
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 5)
  traceback : Traceback (most recent call last):
    File "/home/u/train.py", line 99, in main
      dist.barrier()
  RuntimeError: late
------------------------------------------------------------
Root Cause (first observed failure):
[1]:
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 6)
  error_file: /tmp/x/error.json
  traceback : Traceback (most recent call last):
    File "/home/u/train.py", line 77, in main
      rate = table["rate"]
  KeyError: 'rate'
"""


def by_rank(log: str, rank: int) -> str:
    return "".join(f"[rank{rank}]: {line}\n" for line in log.splitlines())


@pytest.mark.parametrize(
    ("log", "saw"),
    [
        (
            ASKED + IN_DATA,
            "A rank raised IndexError: list index out of range, at data.py, line 71, in __getitem__.",
        ),
        (by_rank(ASKED + IN_DATA, 2), "Rank 2 raised IndexError: list index out of range, at data.py, line 71"),
        (
            ASKED + IN_COLLATE,
            "stack expects each tensor to be equal size, at train.py, line 58, in train_one_epoch.",
        ),
        (ASKED + CUT_OFF, "KeyError: Caught KeyError in DataLoader worker process 1., at train.py, line 58"),
        (ASKED + IN_REPLICA, "mat1 and mat2 shapes cannot be multiplied (8x2 and 3x4), at model.py, line 40"),
        (REMOTE, "IndexError: list index out of range, at data.py, line 20, in decode."),
        (by_rank(REMOTE, 1), "Rank 1 raised IndexError: list index out of range, at data.py, line 20, in decode."),
        (GROUP, "IndexError: list index out of range, at data.py, line 30, in load."),
        (REPORT, "Rank 1 raised KeyError: 'rate', at train.py, line 77, in main."),
    ],
)
def test_an_error_is_placed_where_it_began_in_its_own_words(log, saw):
    found = findings(Evidence(name="x", log=log))[0]
    assert found.name in ("raised", "shapes-differ")
    assert saw in found.saw


def test_two_ranks_workers_are_not_mixed_up():
    lines = [
        line
        for both in zip(
            by_rank(ASKED + IN_DATA, 1).splitlines(), by_rank(ASKED + IN_COLLATE, 3).splitlines(), strict=False
        )
        for line in both
    ]
    found = findings(Evidence(name="x", log="\n".join(lines) + "\n"))[0]
    assert found.saw.startswith(
        "Rank 3 met shapes that do not fit each other: RuntimeError: stack expects each"
    )  # whose report ends first
