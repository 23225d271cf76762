"""Judges what get_dataloaders() makes of its arguments, of seed 0 and of numbers that do not fit."""

import ast
from collections.abc import Sequence
from itertools import chain
from typing import Any

from lab.base.words import rank_list
from lab.checks.common.look import Look, line_of
from lab.checks.common.report import error_place, error_text, numbers
from lab.checks.common.syntax import assignments, calls_of
from lab.checks.data.draw import DrawnLoaders
from lab.checks.data.judge_loader import VALID_LOADER, judge_validation_loader
from lab.checks.data.judge_order import OF_ONE_RANK, judge_order_alone
from lab.checks.data.judge_sampling import NEW_ORDER, counted_from_0, judge_error
from lab.grading.diagnosis import Diagnosis, unusable_report
from lab.grading.parts import part

LOADERS = ("training", "validation")
HANDED_ON = "workers and options handed on"
CUT = r"^\w*batch\w*\s*=.*\bmin\("  # made as small as the data set

Reports = Sequence[Sequence[dict[str, Any]]]  # [rank][config]: what sample_config returned


def judge_idle(look: Look, asked: DrawnLoaders, reports: Reports) -> None:
    """No processes where none were asked for. Nothing was drawn with them, so this comes first."""
    for rank, report in enumerate(reports):
        for config, result in zip(asked.configs, report, strict=True):
            for name, count in zip(LOADERS, result["num_workers"], strict=False):
                if config["num_workers"] == 0 and count > 0:
                    raise Diagnosis(
                        "workers-nobody-asked-for",
                        saw=f"num_workers=0 was asked for; on rank {rank} the {name} loader has {count}.",
                        means="0 means that the rank loads by itself: processes cost memory and time to start.",
                        look=look(r"num_workers(?!\s*[,=)}])(?!\":\s*num_workers\b)", r"num_workers"),
                    )


def judge_arguments(look: Look, asked: DrawnLoaders, reports: Reports) -> None:
    """Raise the diagnosis of the first argument that is not heeded."""
    results = {name: [report[i] for report in reports] for i, name in enumerate(asked.names)}
    with part(NEW_ORDER):
        judge_seed_zero(look, asked, results)
    with part(HANDED_ON):
        judge_workers(look, asked, results["workers"])
        for name, options in asked.all_options.items():
            for rank, result in enumerate(results[name]):
                if result["error"]:
                    judge_error(look, asked, len(asked.configs[0]["train"]), rank, result["error"])
            judge_options(look, options, results[name], gpu=name != "options")
        for name in ("plain", "again"):
            judge_validation_loader(
                look, asked, len(asked.configs[asked.names.index(name)]["valid"]), results[name]
            )


def judge_seed_zero(look: Look, asked: DrawnLoaders, results: dict[str, list[dict[str, Any]]]) -> None:
    for rank in range(asked.world_size):
        made = {name: results[name][rank]["sampler_seed"] for name in ("plain", "seed 0")}
        drawn = {
            seed: list(chain(*results[f"seed {seed}"][rank]["epochs"][0])) for seed in (0, *asked.likely_seeds)
        }
        same = next((seed for seed in asked.likely_seeds if drawn[seed] == drawn[0]), None)
        if made["plain"] == asked.seed and made["seed 0"] not in (0, -1):
            saw = f"with seed 0, rank {rank} got a sampler with seed {made['seed 0']}."
        elif same is not None:
            saw = f"with seed 0 and with seed {same}, rank {rank} drew {numbers(drawn[0], 5)}"
        else:
            continue
        raise Diagnosis(
            "seed-zero-replaced",
            saw=saw,
            means="0 is a seed like any other, and false to `or` and `if`: a sweep would run one seed twice.",
            look=look(r"\bseed\b(?!\s*=\s*seed\s*[,)])", r"seed"),
        )


def workers_made(look: Look, *, of: int) -> str:
    """Where the number of workers was computed that a DataLoader is given, or a dict for it; "" where none was.

    Args:
        of: leave out so many DataLoaders, the first ones.
    """
    _, _, node = look.source()
    values: list[ast.expr] = []
    for given in ast.walk(node) if node else ():
        if isinstance(given, ast.Dict):
            pairs = zip(given.keys, given.values, strict=True)
            values += [one for key, one in pairs if isinstance(key, ast.Constant) and key.value == "num_workers"]
        elif isinstance(given, ast.Call) and given not in calls_of(node, "DataLoader")[:of]:  # type: ignore[arg-type]
            values += [one.value for one in given.keywords if one.arg == "num_workers"]
    for value in sorted(values, key=lambda value: value.lineno):
        if not isinstance(value, ast.Name):
            return look.line(value.lineno)
        if made := [line for line in assignments(node, value.id) if line < value.lineno]:  # type: ignore[arg-type]
            return look.line(max(made))
    return ""


def judge_workers(look: Look, asked: DrawnLoaders, results: Sequence[dict[str, Any]]) -> None:
    for rank, result in enumerate(results):
        if result["num_workers"] != [asked.workers, asked.workers]:
            train, valid = (*result["num_workers"], 0, 0)[:2]
            raise Diagnosis(
                "num-workers-ignored",
                saw=f"num_workers={asked.workers} was asked for; on rank {rank} the training loader has {train}, "
                f"the validation loader {valid}.",
                means="--num-workers would change nothing, and decoding images would hold up the GPU.",
                look=workers_made(look, of=(1 if train == asked.workers else 0))
                or look(
                    VALID_LOADER
                    if train == asked.workers
                    else r"^(?!.*(num_workers|DataLoader)).*\*\*loader_options",
                    r"DataLoader\((?!.*(num_workers|\*\*)).*\)",
                    r"num_workers",
                    r"DataLoader\(",
                ),
            )


def judge_options(look: Look, options: dict[str, Any], results: Sequence[dict[str, Any]], *, gpu: bool) -> None:
    """Args: gpu: whether the student's code saw one."""
    for rank, result in enumerate(results):
        for name, value in options.items():
            got = [one.get(name, "None") for one in result["options"]]
            wrong = [loader for loader, one in zip(LOADERS, got, strict=False) if one != repr(value)]
            if not wrong:
                continue
            if len(wrong) == 2:
                held = (
                    f"the loaders have {got[0]}" if got[0] == got[1] else f"the loaders have {' and '.join(got)}"
                )
            else:
                held = f"only the {LOADERS[wrong[0] == LOADERS[0]]} loader has it"
            raise Diagnosis(
                "loader-options-dropped",
                saw=f"{name}={value} was asked for{', where there is a GPU' * gpu}; on rank {rank} {held}.",
                means="--pin-memory, --prefetch and --persistent-workers come in **loader_options, for both "
                "loaders.",
                look=look(
                    r"loader_options\.pop\(",
                    *([VALID_LOADER] if wrong == ["validation"] else []),
                    rf"\[[\"']{name}[\"']\]\s*=|loader_options\.(pop|update)\(",
                    r"loader_options\s*=(?!=)|\bin loader_options\b",
                    r"DataLoader\((?!.*\*\*).*\)",
                    r"num_workers[\"']?\s*[:=](?!.*\*\*)",
                    name,
                    r"DataLoader\(",
                ),
            )


def judge_refusals(look: Look, asked: DrawnLoaders, reports: Sequence[Sequence[dict[str, Any]]]) -> None:
    """A global batch that does not divide, and one larger than the data set, must raise ValueError."""

    judge_refused_together(look, asked, reports)
    indivisible = (
        "indivisible-batch-accepted",
        f"a global batch of {asked.global_batch + 1} on {asked.world_size} ranks",
        "Rounding it silently trains with another batch size than the one that was asked for.",
        (r"%|divmod", r"//", r"raise"),
    )
    cut = line_of(look(CUT))
    oversized = [
        (
            "oversized-batch-accepted",
            f"a global batch of {asked.global_batch} from {asked.global_batch - fewer} samples",
            "Made smaller, it is another batch size than the one that was asked for."
            if cut
            else "The loader has no batch at all: training would end at once, without having learnt anything.",
            (CUT, r"len\(train_set\)", r"\bif\b.*batch", r"raise"),
        )
        for fewer in (1, asked.world_size)
    ]
    for rank, results in enumerate(reports):
        for result, (name, what, means, patterns) in zip(results, (indivisible, *oversized), strict=True):
            error = result["error"]
            if error is None and (unraised := look.never_raises()):
                raise Diagnosis(
                    "error-not-raised",
                    saw=f"{what} was accepted on rank {rank}, although a line speaks of it.",
                    means="A sentence, or an exception that nobody raises, stops nothing: raise ValueError(...).",
                    look=unraised,
                )
            if error is None:
                raise Diagnosis(
                    name, saw=f"{what} was accepted on rank {rank}.", means=means, look=look(*patterns)
                )
            if "ValueError" not in error["bases"]:
                raise Diagnosis(
                    "not-a-value-error",
                    saw=f"{what}: raised {error_text(error)}",
                    means="main.py turns a ValueError into one clear sentence; this would be a traceback.",
                    look=error_place(error, look),
                )


def judge_refused_together(look: Look, asked: DrawnLoaders, reports: Sequence[Sequence[dict[str, Any]]]) -> None:
    """What is refused is refused on every rank."""
    batches = (asked.global_batch + 1, asked.global_batch, asked.global_batch)
    for batch, results in zip(batches, zip(*reports, strict=True), strict=True):
        refusing = [rank for rank, result in enumerate(results) if result["error"]]
        others = [rank for rank in range(len(results)) if rank not in refusing]
        if refusing and others:
            error = results[refusing[0]]["error"]
            raise Diagnosis(
                "refused-on-some-ranks",
                saw=f"a global batch of {batch} on {asked.world_size} ranks: {rank_list(refusing)} raised "
                f"{error['type']}, {rank_list(others)} went on.",
                means="The others would wait for ranks that have ended: what is wrong for one is wrong for each.",
                look=look(r"\bif\b.*rank(?!s)", r"rank\s*(==|!=|>|<)|not rank", r"raise"),
            )


def judge_alone(look: Look, asked: DrawnLoaders, report: Any) -> None:
    """A single rank, as with --strategy none: what the training loop does is the same there."""
    result = counted_from_0(asked, [report], configs=1, refused=0)[0][0]
    if result["error"]:
        judge_error(look, asked, len(asked.configs[0]["train"]), 0, result["error"])
    if result["returned"] == "two" and not result["set_epoch"]:
        raise Diagnosis(
            "no-set-epoch",
            saw="in a world of one rank the training loader's sampler has no set_epoch().",
            means="The training loop is the same for one rank, and tells the sampler each epoch: it would fail.",
            look=look(
                OF_ONE_RANK,
                r"DistributedSampler\(",
                r"sampler",
                r"DataLoader\(",
            ),
        )
    if len(result["epochs"]) != 2:
        raise unusable_report("the rank did not report the epochs that were asked for")
    judge_order_alone(look, result["epochs"])
