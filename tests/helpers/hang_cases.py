"""Every kind of hang, as a student's code has it, and what is said about it."""

import hang_observers as observers

# What the ranks do, with which code, which begins at line 4 of train.py; the diagnosis and its three lines.
HANGS = {
    "a collective on one rank only": (
        observers.call_evaluate,
        """
        def evaluate(rank):
            sums = torch.ones(3)
            if rank == 0:
                dist.all_reduce(sums)
        """,
        "collective-on-one-rank",
        "rank 0 waits in all_reduce at train.py:7; rank 1 returned from evaluate() without calling it.",
        "A collective ends only when every rank calls it: never in a branch of some ranks.",
        "train.py:7  dist.all_reduce(sums)",
    ),
    "the other rank is in the check's next collective": (
        observers.call_evaluate_and_go_on,
        """
        def evaluate(rank):
            sums = torch.ones(3)
            if rank == 0:
                dist.all_reduce(sums)
        """,
        "collective-on-one-rank",
        "rank 0 waits in all_reduce at train.py:7; rank 1 returned from evaluate() without calling it.",
        "A collective ends only when every rank calls it: never in a branch of some ranks.",
        "train.py:7  dist.all_reduce(sums)",
    ),
    "the other rank is in the student's next collective": (
        observers.call_evaluate,
        """
        def evaluate(rank):
            if rank == 1:
                dist.all_gather_object([None, None], "hello")
            dist.barrier()
        """,
        "collective-on-one-rank",
        "rank 1 waits in all_gather_object at train.py:6; rank 0 called barrier at train.py:7 instead.",
        "A collective ends only when every rank calls it: never in a branch of some ranks.",
        'train.py:6  dist.all_gather_object([None, None], "hello")',
    ),
    "one more than the others, of the same kind": (
        observers.call_evaluate_and_go_on,
        """
        def evaluate(rank):
            sums = torch.ones(3)
            if rank == 0:
                dist.all_reduce(sums)
            dist.all_reduce(sums)
        """,
        "collective-on-one-rank",
        "as its 1st collective rank 0 called all_reduce at train.py:7, rank 1 all_reduce at train.py:8.",
        "A collective ends only when every rank calls it: never in a branch of some ranks.",
        "train.py:7  dist.all_reduce(sums)",
    ),
    "a different order on two ranks": (
        observers.call_evaluate,
        """
        def evaluate(rank):
            sums = torch.ones(3)
            if rank == 0:
                dist.all_reduce(sums)
                dist.barrier()
            else:
                dist.barrier()
                dist.all_reduce(sums)
        """,
        "different-order",
        "as its 1st collective rank 0 called all_reduce at train.py:7, rank 1 barrier at train.py:10.",
        "Collectives are matched by their order: all ranks must call the same ones in one order.",
        "train.py:7  dist.all_reduce(sums)",
    ),
    "different shapes": (
        observers.call_evaluate,
        """
        def evaluate(rank):
            dist.all_reduce(torch.ones(3 + rank))
        """,
        "different-sizes",
        "rank 0 called all_reduce at train.py:5 with [3], rank 1 with [4].",
        "A collective needs tensors of the same size and type on every rank.",
        "train.py:5  dist.all_reduce(torch.ones(3 + rank))",
    ),
    "different shapes, where gloo ends the process": (
        observers.call_evaluate,
        """
        def evaluate(rank):
            dist.all_reduce(torch.ones(300, 10 * (rank + 1)))
        """,
        "different-sizes",
        "rank 0 called all_reduce at train.py:5 with [300, 10], rank 1 with [300, 20].",
        "A collective needs tensors of the same size and type on every rank.",
        "train.py:5  dist.all_reduce(torch.ones(300, 10 * (rank + 1)))",
    ),
    "different types": (
        observers.call_evaluate,
        """
        def evaluate(rank):
            dist.all_reduce(torch.ones(3, dtype=torch.float64 if rank else torch.float32))
        """,
        "different-sizes",
        "rank 0 called all_reduce at train.py:5 with [3] of float32, rank 1 with [3] of float64.",
        "A collective needs tensors of the same size and type on every rank.",
        "train.py:5  dist.all_reduce(torch.ones(3, dtype=torch.float64 if rank else torch.float32))",
    ),
    "an early return on one rank": (
        observers.call_evaluate,
        """
        def evaluate(rank):
            sums = torch.ones(3)
            if not sums[rank:].sum() > 2:
                return None
            dist.all_reduce(sums)
        """,
        "early-return",
        "rank 0 waits in all_reduce at train.py:8; rank 1 returned from evaluate() without calling it.",
        "A rank that returns early leaves the others waiting: all must come to the last collective.",
        "train.py:7  return None",
    ),
    "one of several early returns on one rank": (
        observers.call_evaluate,
        """
        def evaluate(rank):
            sums = torch.ones(3)
            if sums.sum() > 4:
                return sums
            if sums[rank:].sum() > 2:
                dist.all_reduce(sums)
            else:
                return (
                    sums
                )
            return sums
        """,
        "early-return",
        "rank 0 waits in all_reduce at train.py:9; rank 1 returned from evaluate() without calling it.",
        "A rank that returns early leaves the others waiting: all must come to the last collective.",
        "train.py:11  return (",
    ),
    "an exception on one rank": (
        observers.call_evaluate,
        """
        def evaluate(rank):
            sums = torch.ones(3)
            if rank == 1:
                raise ValueError("no batches")
            dist.all_reduce(sums)
        """,
        "raised",
        "rank 1 raised ValueError: no batches",
        "evaluate() did not come to its end. Rank 0 waits for it in all_reduce at train.py:8.",
        'train.py:7  raise ValueError("no batches")',
    ),
    "a barrier inside a branch": (
        observers.call_evaluate,
        """
        def evaluate(rank):
            if rank == 0:
                sums = torch.ones(3)
                dist.barrier()
        """,
        "barrier-in-branch",
        "rank 0 waits in barrier at train.py:7; rank 1 returned from evaluate() without calling it.",
        "A barrier opens only when every rank has come to it, so it must not stand in a branch.",
        "train.py:7  dist.barrier()",
    ),
    "an uneven number of steps": (
        observers.call_evaluate,
        """
        def evaluate(rank):
            sums = torch.ones(3)
            for batch in range(4 - rank):
                dist.all_reduce(sums)
        """,
        "uneven-steps",
        "rank 0 waits in all_reduce at train.py:7 for the 4th time, rank 1 came to it 3 times.",
        "Each step needs every rank: all of them must take the same number of steps.",
        "train.py:7  dist.all_reduce(sums)",
    ),
    "an uneven number of steps under DDP": (
        observers.step_under_ddp,
        """
        def train_step(model, rank):
            for batch in range(3 - rank):
                model(torch.ones(2, 4)).sum().backward()
            dist.all_reduce(torch.zeros(2, dtype=torch.float64))
        """,
        "uneven-steps",
        "rank 0 waits in all_reduce (backward pass) at train.py:6 for the 3rd time, rank 1 came to it twice.",
        "Each step needs every rank: all of them must take the same number of steps.",
        "train.py:6  model(torch.ones(2, 4)).sum().backward()",
    ),
    "an uneven number of batches under FSDP": (
        observers.step_under_fsdp,
        """
        def train_step(model, rank):
            with torch.no_grad():
                for batch in range(3 - rank):
                    model(torch.ones(2, 4))
            dist.all_reduce(torch.zeros(3))
        """,
        "uneven-steps",
        "rank 0 waits in all_gather (FSDP's forward pass) at train.py:7 for the 3rd time, rank 1 came to it "
        "twice.",
        "Each step needs every rank: all of them must take the same number of steps.",
        "train.py:7  model(torch.ones(2, 4))",
    ),
    "one rank skips backward under DDP": (
        observers.step_under_ddp,
        """
        def train_step(model, rank):
            loss = model(torch.ones(2, 4)).sum()
            if rank == 0:
                loss.backward()
        """,
        "backward-skipped",
        "rank 0 waits in all_reduce (backward pass) at train.py:7; rank 1 returned from train_step() without a "
        "backward pass.",
        "The gradients are reduced inside backward(): every rank must call it in every step.",
        "train.py:7  loss.backward()",
    ),
    "one rank skips forward under FSDP": (
        observers.step_under_fsdp,
        """
        def train_step(model, rank):
            if rank == 1:
                model(torch.ones(2, 4))
            dist.all_reduce(torch.zeros(3))
        """,
        "forward-skipped",
        "rank 1 waits in all_gather (FSDP's forward pass) at train.py:6; rank 0 called all_reduce at train.py:7 "
        "instead.",
        "Weights are gathered in each forward pass: every rank must run the same passes.",
        "train.py:6  model(torch.ones(2, 4))",
    ),
    "a wrapper on one rank only": (
        observers.call_evaluate,
        """
        def evaluate(rank):
            model = torch.nn.Linear(4, 2)
            if rank == 0:
                model = torch.nn.parallel.DistributedDataParallel(model)
        """,
        "collective-on-one-rank",
        "rank 0 waits in all_gather (DDP's constructor) at train.py:7; rank 1 returned from evaluate() without "
        "calling it.",
        "A collective ends only when every rank calls it: never in a branch of some ranks.",
        "train.py:7  model = torch.nn.parallel.DistributedDataParallel(model)",
    ),
}  # fmt: skip
