"""Judges one epoch as all ranks have drawn it: whole batches, as many on every rank, and no sample twice."""

from collections import Counter
from itertools import combinations

from lab.checks.common.look import Look, line_of
from lab.checks.common.report import numbers
from lab.checks.data.draw import DrawnLoaders, Epoch
from lab.grading.diagnosis import Diagnosis

TRAIN_LOADER = r"DataLoader\(\s*train_set"


def judge_epoch(look: Look, asked: DrawnLoaders, size: int, epoch: int, drawn: list[Epoch]) -> None:
    """One epoch on all ranks: whole batches of the right size, as many on every rank, no sample twice."""
    flat = [[sample for batch in batches for sample in batch] for batches in drawn]
    if any(sample < 0 for samples in flat for sample in samples):
        raise Diagnosis(
            "unusable-batch",
            saw="the training loader does not yield pairs of tensors (images, labels).",
            means="The training loop unpacks every batch into images and labels.",
            look=look(r"collate", r"DataLoader\("),
        )
    if all(sample >= 1000 for samples in flat for sample in samples) and any(flat):
        raise Diagnosis(
            "loaders-swapped",
            saw="the first loader draws from the validation set.",
            means="The order is (train, valid): the model would train on the images it is measured with.",
            look=look(r"\breturn\b"),
        )
    saw = f"{size} samples, global batch {asked.global_batch}, {asked.world_size} ranks: "
    share = -(-size // asked.world_size)
    if all(len(samples) > share for samples in flat) and asked.world_size * share < sum(map(len, flat)):
        a, b = next(
            (pair for pair in combinations(range(len(flat)), 2) if set(flat[pair[0]]) & set(flat[pair[1]])), (0, 1)
        )
        both = sorted(set(flat[a]) & set(flat[b]))
        raise Diagnosis(
            "no-distributed-sampler",
            saw=f"{saw}rank {a} drew {len(flat[a])} samples in epoch {epoch}, more than its share of {share}, "
            f"and rank {b} drew {numbers(both, 4)} too.",
            means="The sampler divides by a fixed number of ranks: dist.get_world_size() says how many there are."
            if line_of(look(r"num_replicas\s*=\s*([2-9]|\d\d)"))
            else "Every rank trains on the whole set: more ranks, but not less work for each.",
            look=look(
                r"num_replicas\s*=\s*\d",
                r"(Random|Sequential)Sampler\(",
                TRAIN_LOADER,
                r"train_loader\s*=",
                r"DataLoader\(",
            ),
        )
    judge_batches(look, asked, size, saw, drawn)
    judge_overlap(look, asked, saw, epoch, flat)
    steps, expected = {len(batches) for batches in drawn}, size // asked.global_batch
    if len(steps) > 1:
        each = ", ".join(f"{len(batches)} on rank {rank}" for rank, batches in enumerate(drawn))
        raise Diagnosis(
            "unequal-steps",
            saw=f"{saw}the number of batches is {each}.",
            means="A rank with a batch more waits for ever in its backward pass.",
            look=look(r"drop_last", r"sampler"),
        )
    if steps != {expected}:
        raise Diagnosis(
            "samples-lost" if max(steps) < expected else "too-many-steps",
            saw=f"{saw}{max(steps)} batches on every rank; expected {expected}.",
            means="One step takes one global batch; only what does not fill the last one is dropped.",
            look=look(r"batch_size", r"DataLoader\("),
        )


def judge_batches(look: Look, asked: DrawnLoaders, size: int, saw: str, drawn: list[Epoch]) -> None:
    for rank, batches in enumerate(drawn):
        sizes = [len(batch) for batch in batches]
        if not sizes or set(sizes) == {asked.batch}:
            continue
        if sizes[:-1] and set(sizes[:-1]) == {asked.batch} and sizes[-1] < asked.batch:
            raise Diagnosis(
                "partial-batch",
                saw=f"{saw}the last of {len(sizes)} batches on rank {rank} has {sizes[-1]} instead of "
                f"{asked.batch}.",
                means="Its few samples would weigh as much as a whole batch: drop what does not fill one on "
                "every rank.",
                look=look(TRAIN_LOADER, r"train_loader\s*=", r"DataLoader\("),
            )
        if sizes[0] == asked.global_batch:
            raise Diagnosis(
                "global-batch-as-local",
                saw=f"{saw}a batch on rank {rank} has {sizes[0]} samples; expected {asked.batch}.",
                means=f"Together the ranks would take {asked.world_size * sizes[0]} samples a step, and not the "
                f"{asked.global_batch} that were asked for.",
                look=look(r"batch_size[\"']?\s*[:=]\s*global_batch_size\b(?!\s*/)", r"batch_size"),
            )
        constant = asked.world_size != 2 and sizes[0] == asked.global_batch // 2
        raise Diagnosis(
            "world-size-hard-coded" if constant else "wrong-batch-size",
            saw=f"{saw}a batch on rank {rank} has {sizes[0]} samples; expected {asked.batch}.",
            means="The number of ranks is written into the code."
            if constant
            else "The global batch is shared evenly among the ranks, so each takes its part of it.",
            look=look(r"//", r"batch_size"),
        )


def judge_overlap(look: Look, asked: DrawnLoaders, saw: str, epoch: int, flat: list[list[int]]) -> None:
    for rank, samples in enumerate(flat):
        if twice := [sample for sample, count in Counter(samples).items() if count > 1]:
            raise Diagnosis(
                "sample-twice",
                saw=f"{saw}in epoch {epoch} rank {rank} drew sample {numbers(sorted(twice))} more than once.",
                means="An epoch sees every sample at most once.",
                look=look(r"sampler"),
            )
    shared = {(a, b): sorted(set(flat[a]) & set(flat[b])) for a, b in combinations(range(len(flat)), 2)}
    (a, b), both = max(shared.items(), key=lambda item: len(item[1]))
    if not both:
        return
    both_drew = (
        f"{saw}in epoch {epoch} rank {a} and rank {b} both drew sample{'s' * (len(both) > 1)} {numbers(both)}"
    )
    if len(both) == len(flat[a]) and len(flat[a]) > 1:
        raise Diagnosis(
            "same-part-on-every-rank",
            saw=f"{both_drew}: exactly the same.",
            means="The ranks all do the same work, and the rest of the data is never used.",
            look=look(r"rank\s*=", r"sampler"),
        )
    if sum(map(len, shared.values())) < asked.world_size:
        raise Diagnosis(
            "padding-drawn-twice",
            saw=both_drew + "." * (not both_drew.endswith("...")),
            means="Where the samples do not divide, DistributedSampler repeats some, unless it drops the last "
            "ones.",
            look=look(r"DistributedSampler\(", r"sampler"),
        )
    raise Diagnosis(
        "ranks-shuffle-differently",
        saw=both_drew + "." * (not both_drew.endswith("...")),
        means="Every rank deals from its own order. With one seed for all, their parts are disjoint.",
        look=look(r"\brandom\.(shuffle|sample|permutation)", r"seed", r"sampler"),
    )
