"""Check of 9.4: parameters that are whole only while they are used."""

from contextlib import ExitStack, nullcontext

from lab.checks.common.look import Look
from lab.checks.common.look_around import first_of
from lab.checks.common.look_values import assigned_at, late_bound
from lab.checks.common.syntax import arguments_rebound
from lab.checks.common.tensors import retold
from lab.checks.common.tiny import LIMIT, fresh_generator
from lab.checks.from_scratch.fsdp.judge import draw, judge, sent
from lab.checks.from_scratch.fsdp.judge_shards import padding_of
from lab.checks.from_scratch.fsdp.observe import train
from lab.grading.check import Group, Order, check
from lab.grading.diagnosis import Diagnosis

IN_BF16 = "What is gathered and computed with is in self.dtype: half the bytes travel."
PADDED = "with -len(flat) % N zeros at its end N divides the whole."
NO_STORAGE = r"storage of size 0|out of bounds for storage"
NO_MEMORY = "The backward pass uses parameters that were freed after the forward pass: gather them again before."


@check("9.4", "each rank keeps a shard, and a block is whole only while it is computed")
def shards_what_it_does_not_use(group: Group) -> None:
    drawn = draw(fresh_generator(), world_size=3)  # none of 2 would have padding
    look = Look(group.code, "from_scratch/fsdp.py", "MyFSDP.__init__")
    fill = look.into("Unit.fill")
    no_memory = "resize_" not in fill(r"resize_")
    renamed = first_of(fill, arguments_rebound)
    another = retold(
        NO_STORAGE,
        "another-tensor-filled",
        "The argument names another tensor from here on: the one that fill() was given stays without memory.",
        saw="the backward pass met parameters that have no memory.",
        look=renamed,
    )
    free = look.into("Unit.free")
    forgotten = retold(
        NO_STORAGE,
        "whole-forgotten",
        "before_backward() gathers again into self.whole, where there is one: free() takes its memory only.",
        saw="the backward pass met parameters that have no memory.",
        unless=lambda: not assigned_at(free, ["whole"]),
        found=lambda _: assigned_at(free, ["whole"]),
    )
    shared = retold(
        r"'NoneType' object has no attribute 'untyped_storage'",
        "hooks-share-a-unit",
        "A function made in a loop sees the loop's last value when it is called: hand on the method, unit.free.",
        unless=lambda: not late_bound(look),
        found=lambda _: late_bound(look),
    )
    again = retold(
        NO_STORAGE,
        "filled-without-memory" if no_memory else "not-gathered-again",
        "free() has taken its memory: before it can be filled, its storage gets its size again, resize_(size)."
        if no_memory
        else NO_MEMORY,
        saw="the backward pass met parameters that have no memory.",
        look=fill(r"gather")
        if no_memory
        else look(r"^(module|self\.module|root)\.register_forward_hook", r"gather_again|forward_hook"),
    )
    dotted = retold(
        r"KeyError: '[\w.]+\.\w+'",
        "names-with-dots",
        "named_parameters() gives names as seen from the block: a place has the owner itself, and the name in it.",
        look=look(r"named_parameters", r"Unit\("),
    )
    narrow = retold(
        r"assign a gradient with dtype|dtype of .*grad|outputTensors\[i\]\.dtype\(\).*\(float vs\. ",
        "reduced-in-bf16",
        "The gradient comes in self.dtype: bring it to the shard's type, fp32, before it is divided and reduced.",
        saw="{rank} reduces a gradient in bf16 for a shard in fp32.",
        look=look.into("Unit.reduce")(r"gradient.*/|/", r"reduce"),
    )
    low = retold(
        r"must have the same dtype|allgather: invalid tensor type",
        "not-in-bf16",
        IN_BF16,
        look=look.into("Unit.fill")(r"gather"),
    )
    none = retold(
        r"NoneType.* has no attribute '(shape|numel|detach)'",
        "none-taken",
        "A layer without a bias has one that is None in _parameters: leave those out.",
        look=look(r"_parameters"),
    )
    renewed = retold(
        r"allgather: invalid tensor size.*got \(0\)",
        "freed-by-a-new-tensor",
        "Views and autograd keep the old memory: its own storage gets 0 bytes, untyped_storage().resize_(0).",
        saw="{rank} gathers into a tensor of 0 numbers.",
        look=look.into("Unit.free")(r"self\.whole"),
    )
    taken = retold(
        r"expected a non-empty list",
        "unit-of-nothing",
        "An earlier unit had taken all of its parameters: first the blocks' units, then that of what is left.",
        saw="a unit was made of no parameters.",
        look=look(r"\[(self\.)?module,", r"Unit\("),
    )
    short = retold(
        r"split_sizes to sum exactly to",
        "shards-too-short",
        f"What is left over belongs to a shard, too: {PADDED}",
        saw="all shards of a unit together have fewer numbers than its parameters.",
        look=padding_of(look),
    )
    masters = retold(  # gloo tells the type of the result first
        r"outputTensors\[i\]\.dtype\(\).*\((?!float).* vs\. float\)",
        "result-of-other-type",
        "What is reduced is in fp32, and so is the shard: the result is a tensor like the shard.",
        saw="{rank} reduce-scatters numbers of fp32 into a tensor of another type.",
        look=look.into("Unit.reduce")(r"empty|zeros"),
    )
    of_memory = (again, another if renamed else nullcontext(), forgotten, shared)
    with ExitStack() as told:
        for one in (short, masters, *of_memory, taken, low, none, dotted, narrow, renewed):
            told.enter_context(one)
        try:
            reports = group.observe(Order(train, 3, sent(drawn), timeout=LIMIT))
        except Diagnosis as diagnosis:
            if diagnosis.name != "different-sizes" or "gather" not in diagnosis.saw:
                raise
            raise Diagnosis(
                "unequal-shards",
                saw=diagnosis.saw,
                means=f"All shards are equally long: {PADDED}",
                look=padding_of(look),
            ) from None
    judge(look, reports, drawn)
