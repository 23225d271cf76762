"""The checks of exercises 3.1 and 3.3 accept different right answers and name what is wrong with the others."""

from pathlib import Path

import pytest
from answers.bank import SOLUTIONS, outcome_of, solution, verdict, with_answer

from lab.grading.diagnosis import Failed

# 3.1 --------------------------------------------------------------------------------------------------------

ONCE_RIGHT = {
    "two branches": """
        if is_first:
            dataset = load()
            dist.barrier()
        else:
            dist.barrier()
            dataset = load()
        return dataset
    """,
    "the tutorials' idiom": """
        if not is_first:
            dist.barrier()
        dataset = load()
        if is_first:
            dist.barrier()
        return dataset
    """,
    "finally": """
        try:
            dataset = load() if is_first else None
        finally:
            dist.barrier()
        return dataset if is_first else load()
    """,
    "monitored": """
        dataset = load() if is_first else None
        dist.monitored_barrier()
        return dataset if is_first else load()
    """,
    "all_reduce": """
        import torch
        if is_first:
            dataset = load()
        dist.all_reduce(torch.zeros(1))
        return dataset if is_first else load()
    """,
    "barriers around": """
        dist.barrier()
        if is_first:
            dataset = load()
        dist.barrier()
        if not is_first:
            dataset = load()
        dist.barrier()
        return dataset
    """,
}

ONCE_WRONG = {
    "at once": ("every-rank-downloads", "return load()"),
    "at once, then a barrier": ("every-rank-downloads", "dataset = load()\ndist.barrier()\nreturn dataset"),
    "no barrier": (
        "no-barrier",
        "if is_first:\n    dataset = load()\nif not is_first:\n    dataset = load()\nreturn dataset",
    ),
    "a pause": (
        "no-barrier",
        "import time\nif not is_first:\n    time.sleep(0.1)\nreturn load()",
    ),
    "barrier in the other branch": (
        "barrier-in-branch",
        "if is_first:\n    return load()\ndist.barrier()\nreturn load()",
    ),
    "first twice": ("loads-twice", "if is_first:\n    load()\ndist.barrier()\nreturn load()"),
    "others get None": (
        "others-get-none",
        "dataset = None\nif is_first:\n    dataset = load()\ndist.barrier()\nreturn dataset",
    ),
    "others are sent it": (
        "others-do-not-load",
        "dataset = load() if is_first else 'sent'\ndist.barrier()\nreturn dataset",
    ),
    "others have no variable": ("raised", "if is_first:\n    dataset = load()\ndist.barrier()\nreturn dataset"),
    "rank 0": (
        "rank-0-instead-of-is-first",
        "first = dist.get_rank() == 0\nif first:\n    d = load()\ndist.barrier()\nreturn d if first else load()",
    ),
    "barrier first": ("barrier-before-load", "dist.barrier()\nreturn load()"),
    "others first": (
        "others-go-first",
        "if not is_first:\n    d = load()\ndist.barrier()\nif is_first:\n    d = load()\nreturn d",
    ),
    "not returned": (
        "result-not-returned",
        "if is_first:\n    load()\ndist.barrier()\nif not is_first:\n    load()\nreturn load",
    ),
    "swallowed": (
        "error-swallowed",
        "d = None\ntry:\n    if is_first:\n        d = load()\nexcept OSError:\n    pass\n"
        "dist.barrier()\nreturn d if is_first else load()",
    ),
}


@pytest.mark.slow  # variants: tests/answers has one of each kind
@pytest.mark.parametrize("code", ONCE_RIGHT.values(), ids=ONCE_RIGHT)
def test_right_answers_to_3_1_pass(tmp_path: Path, code: str):
    assert verdict("3.1", with_answer(tmp_path, "3.1", code)) == "passed"


@pytest.mark.slow  # variants: tests/answers has one of each kind
@pytest.mark.parametrize(("name", "code"), ONCE_WRONG.values(), ids=ONCE_WRONG)
def test_wrong_answers_to_3_1(tmp_path: Path, name: str, code: str):
    assert verdict("3.1", with_answer(tmp_path, "3.1", code)) == name


def test_a_hang_in_3_1_says_who_waits_where(tmp_path: Path):
    code = "if is_first:\n    d = load()\n    dist.barrier()\nelse:\n    d = load()\nreturn d"
    outcome = outcome_of("3.1", with_answer(tmp_path, "3.1", code))
    assert isinstance(outcome, Failed)
    assert "(which went first) waits for ever at data.py:30  dist.barrier(); ranks" in outcome.diagnosis.saw
    assert outcome.diagnosis.look == "data.py:30  dist.barrier()"


# 3.3 --------------------------------------------------------------------------------------------------------

LENGTH = "return -(-len(self.dataset) // self.world_size)"
ITEM = """
index = i * self.world_size + self.rank
if index < len(self.dataset):
    return self.dataset[index]
image, _ = self.dataset[0]
return image, IGNORED
"""

SHARD_RIGHT = {
    "ceil": (
        "import math\nreturn math.ceil(len(self.dataset) / self.world_size)",
        ITEM.replace("IGNORED", "-100").replace("self.dataset[0]", "self.dataset[len(self.dataset) - 1]"),
    ),
    "parts in a row": (
        LENGTH,
        ITEM.replace("i * self.world_size + self.rank", "self.rank * len(self) + i"),
    ),
    "zeros": (
        LENGTH,
        "index = i * self.world_size + self.rank\nif index >= len(self.dataset):\n"
        "    return self.dataset[0][0].new_zeros(self.dataset[0][0].shape), IGNORED\nreturn self.dataset[index]",
    ),
}

SHARD_WRONG = {
    "too short": ("samples-dropped", "return len(self.dataset) // self.world_size", ITEM),
    "uneven": (
        "unequal-validation-batches",
        "return len(range(self.rank, len(self.dataset), self.world_size))",
        ITEM,
    ),
    "wraps around": (
        "sample-counted-twice",
        LENGTH,
        "return self.dataset[(i * self.world_size + self.rank) % len(self.dataset)]",
    ),
    "first sample with its label": (
        "sample-counted-twice",
        LENGTH,
        ITEM.replace("return image, IGNORED", "return self.dataset[0]"),
    ),
    "class 0": ("filler-has-a-label", LENGTH, ITEM.replace("IGNORED", "0")),
    "minus one": ("filler-has-a-label", LENGTH, ITEM.replace("IGNORED", "-1")),
    "zeros of class 0": (
        "filler-has-a-label",
        LENGTH,
        ITEM.replace("return image, IGNORED", "return image * 0, 0"),
    ),
    "everything everywhere": (
        "every-rank-validates-everything",
        "return len(self.dataset)",
        "return self.dataset[i]",
    ),
    "mostly filler": ("too-much-filler", "return len(self.dataset)", ITEM),
    "past the end": ("past-the-end", LENGTH, "return self.dataset[i * self.world_size + self.rank]"),
    "off by one": ("samples-dropped", LENGTH, ITEM.replace("self.rank", "self.rank + 1")),
    "one sample fewer": (
        "samples-dropped",
        LENGTH,
        ITEM.replace("index < len(self.dataset)", "index < len(self.dataset) - 1"),
    ),
}


@pytest.mark.slow  # variants: tests/answers has one of each kind
@pytest.mark.parametrize(("length", "item"), SHARD_RIGHT.values(), ids=SHARD_RIGHT)
def test_right_answers_to_3_3_pass(tmp_path: Path, length: str, item: str):
    with_answer(tmp_path, "3.3a", length)
    assert verdict("3.3", with_answer(tmp_path, "3.3b", item)) == "passed"


@pytest.mark.slow  # variants: tests/answers has one of each kind
@pytest.mark.parametrize(("name", "length", "item"), SHARD_WRONG.values(), ids=SHARD_WRONG)
def test_wrong_answers_to_3_3(tmp_path: Path, name: str, length: str, item: str):
    with_answer(tmp_path, "3.3a", length)
    assert verdict("3.3", with_answer(tmp_path, "3.3b", item)) == name


SHARD = "ValidationShard(valid_set, rank, world_size)"

OTHER_LOADERS = {
    "sampler pads": ("sample-counted-twice", "valid_set, sampler=DistributedSampler(valid_set, shuffle=False)"),
    "sampler drops": ("samples-dropped", "valid_set, sampler=DistributedSampler(valid_set, drop_last=True)"),
    "every rank": ("every-rank-validates-everything", "valid_set"),
    "loader drops": ("samples-dropped", SHARD + ", drop_last=True"),
    "shuffled": ("passed", SHARD + ", shuffle=True"),
    "own shard": (
        "passed",
        "[valid_set[i] if i < len(valid_set) else (valid_set[0][0], -100) "
        "for i in range(rank, -(-len(valid_set) // world_size) * world_size, world_size)]",
    ),
}


@pytest.mark.slow  # variants: tests/answers has one of each kind
@pytest.mark.parametrize(("name", "loader"), OTHER_LOADERS.values(), ids=OTHER_LOADERS)
def test_3_3_looks_at_what_the_loader_yields(tmp_path: Path, name: str, loader: str):
    code = solution("3.2")
    assert SHARD in code
    assert verdict("3.3", with_answer(tmp_path, "3.2", code.replace(SHARD, loader))) == name


def test_larger_validation_batches_pass(tmp_path: Path):
    loader = f"DataLoader({SHARD}, "
    code = solution("3.2").replace(loader + "**both", loader + "2 * batch_size, num_workers=num_workers")
    assert "2 * batch_size" in code
    assert verdict("3.3", with_answer(tmp_path, "3.2", code)) == "passed"


# ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exercise", ["3.1", "3.3"])
def test_the_solutions_pass(exercise: str):
    assert verdict(exercise, SOLUTIONS) == "passed"
