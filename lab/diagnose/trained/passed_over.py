"""What a program tells in passing and goes on: keys of a checkpoint that did not fit, a limit of torch.compile."""

import re

from lab.base.words import one_line
from lab.diagnose.told.finding import Finding

_COUNTS = re.compile(
    r"^.*?(?P<missing>\d{1,6}) missing(?: keys?)?\b.{0,40}?(?P<unexpected>\d{1,6}) unexpected\b.*$"
    r"|^.*\bmissing(?:[ _]keys)?\W{1,3}(?P<m>\d{1,6})\b.{0,40}?"
    r"\bunexpected(?:[ _]keys)?\W{1,3}(?P<u>\d{1,6})\b.*$",
    re.M | re.I,
)
_LISTS = re.compile(
    r"\bmissing[_ ]keys\W{1,3}\[(?P<missing>[^\]]*)(?:\]"
    r"|$).{0,20}?\bunexpected[_ ]keys\W{1,3}\[(?P<unexpected>[^\]\n]*)",
    re.I | re.S,
)
_KEY = re.compile(r"['\"]([\w.]+)['\"]")
_WRAPPERS = (
    r"(?:module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|model|net|network|encoder|backbone)\."
)
_NAMED = re.compile(rf"\bunexpected\b.{{0,40}}?(?P<prefix>\b{_WRAPPERS})", re.I)
_MANY = 5  # a head that is new has fewer

_LIMIT = re.compile(
    r"^.*hit config\.(?P<limit>(?:accumulated_)?(?:recompile|cache_size)_limit)\W{0,3}\(?(?P<number>\d{0,4})", re.M
)
_REASON = re.compile(r"last reason: (?:\d+/\d+: )?(?P<why>.+)$", re.M)
_FUNCTION = re.compile(r"^.*\bfunction: (?P<what>'.+)$", re.M)
_OF_SIZES = re.compile(r"size mismatch|\.size\(\)|stride|shape", re.I)
_OF_A_NUMBER = re.compile(r"== ?-?\d+(?:\.\d+)?\b|___check_obj_id|___dict|\blen\(", re.I)


def keys(log: str, order: int) -> Finding | None:
    """A checkpoint of which nothing, or hardly anything, was loaded, because its names begin otherwise."""
    found = _of_lists(log) or _of_counts(log)
    if found is None:
        return None
    line, missing, unexpected, prefix = found
    names = (
        f"the names in the checkpoint begin with {prefix}" if prefix else "as many are left over as are missing"
    )
    whose = {"_orig_mod.": ", which torch.compile puts there", "module.": ", which DDP puts there"}.get(prefix, "")
    strip = prefix or "module."
    return Finding(
        "weights-not-loaded",
        f"Of the checkpoint {unexpected} tensors found no place, and {missing} of the network's got none: "
        f"{one_line(line, 160)}",
        f"strict=False passed it over: {names}{whose}, so they do not fit, and training began with random "
        "weights. The rate and the data are not to blame.",
        (
            "grep -n 'strict=False' *.py exercises/*.py    # without it, load_state_dict() names the keys",
            f"state = {{k.replace('{strip}', ''): v for k, v in state.items()}}    # before loading; and save "
            "model._orig_mod or model.module",
        ),
        order,
    )


def _of_lists(log: str) -> tuple[str, int, int, str] | None:
    for one in _LISTS.finditer(log):
        missing, unexpected = _KEY.findall(one["missing"]), _KEY.findall(one["unexpected"])
        begin = next((found[0] for key in unexpected if (found := re.match(_WRAPPERS, key))), "")
        other = next((found[0] for key in missing if (found := re.match(_WRAPPERS, key))), "")
        for prefix in filter(None, (begin, other)):
            bare = {key.removeprefix(prefix) for key in unexpected}
            if len(unexpected) >= 2 and len(bare & {key.removeprefix(prefix) for key in missing}) >= 2:
                return one_line(one[0], 200), len(missing), len(unexpected), prefix
    return None


def _of_counts(log: str) -> tuple[str, int, int, str] | None:
    for one in _COUNTS.finditer(log):
        missing, unexpected = int(one["missing"] or one["m"]), int(one["unexpected"] or one["u"])
        if min(missing, unexpected) < _MANY or max(missing, unexpected) > 1.1 * min(missing, unexpected):
            continue
        named = _NAMED.search(log, one.end())
        return one[0].strip(), missing, unexpected, named["prefix"] if named else ""
    return None


def recompiled(log: str, order: int) -> Finding | None:
    """torch.compile has given up on a function of which it has compiled too many."""
    limit = _LIMIT.search(log)
    if limit is None:
        return None
    reason, function = _REASON.search(log), _FUNCTION.search(log)
    why = reason["why"].strip() if reason else ""
    number = f" ({limit['number']})" if limit["number"] else ""
    what = f" for {function['what'].strip()}" if function else ""
    if _OF_SIZES.search(why):
        means = (
            "Each new size of a tensor is compiled anew, as of batches that are padded to their longest sample."
        )
        do = "grep -n -E 'pad|collate' *.py    # to a few lengths; or torch._dynamo.mark_dynamic, dynamic=True"
    elif _OF_A_NUMBER.search(why):
        means = "A number or an object of Python's that changes (a step, a length) is compiled anew each time."
        do = "grep -n -E 'compile|step' *.py    # hand such a number over as a tensor, or keep it outside"
    else:
        means = "Something that the compiled code depends on is another one each time."
        do = "grep -n -E 'compile' *.py    # what changes from call to call?"
    return Finding(
        "recompile-limit",
        f"torch.compile came to its limit{what}, "
        f"{limit['limit']}{number}{f': {one_line(why, 160)}' if why else '.'}",
        f"{means} From then on it runs as without torch.compile. What was trained is right: it only was slow.",
        (do, "TORCH_LOGS=recompiles {rerun}    # tells the reason of each"),
        order,
    )
