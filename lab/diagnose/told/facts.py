"""What a library states in an exception of its own: versions, ranks, cards or shapes that do not go together."""

import re
from dataclasses import dataclass

_STATES = re.compile(
    r"\bmismatch\w*|\b(?:does|do|did)(?: not|n't) (?:match|support|fit)|\bonly supports?\b|\bsupports? only\b"
    r"|\bnot (?:\w+ ){0,2}(?:supported|compatible)\b|\bincompatible\b|\b[Uu]nsupported\b|\brequires\b(?! grad)"
    r"|\bbut (?:the )?(?:current|installed|found)\b|\bnot (?:divisible|equal to)\b|\bmust be divisible\b"
    r"|\brequired\b|\bExpected is_sm\d|\bwhich has shape\b"
)
_INTERNAL = re.compile(r"\binternal (?:\w+ )?error", re.I)
_OF_ITS_NAME = re.compile(r"(?:Mismatch|Incompatib\w*|Unsupported|NotSupported|VersionConflict)\w*$")
# What Python itself says of a wrong call.
_PYTHONS = ("TypeError", "AttributeError", "KeyError", "IndexError", "NameError", "UnboundLocalError")


@dataclass(frozen=True)
class Family:
    """What facts of one kind mean, and what to try."""

    pattern: re.Pattern[str]
    means: str
    do: tuple[str, ...]


_FAMILIES = (
    Family(
        re.compile(
            r"(?i:checkpoint|saved|resum|restor|partition).*(?:world[ _]size|\b[DTPM]P\b|\branks\b|\bGPUs\b)"
        ),
        "The checkpoint was saved by another number of ranks, and each file of it is one rank's part: it fits "
        "that number only. Its files are in order.",
        (
            "sbatch --nodes=1 --ntasks-per-node=8 run.sh    # as many ranks as then: the message has both numbers",
            "grep -n -i -E 'universal|full_state_dict|distributed.checkpoint' *.py *.json    # forms of a "
            "checkpoint that any number of ranks reads",
        ),
    ),
    Family(
        re.compile(
            r"world[ _]size|\bnumber of (?:GPUs|ranks|processes|devices|nodes|workers)\b|\bdivisible\b"
            r"|\b(?:data|tensor|pipeline|model|context|expert)[ _-]parallel"
        ),
        "The number of ranks does not fit what the program was told of its layout: data, tensor and pipeline "
        "ranks multiply to it, and a global batch is divided by it.",
        (
            "sbatch --nodes=1 --ntasks-per-node=8 run.sh    # as many ranks as the layout needs",
            "grep -n -i -E 'world_size|parallel|nproc|ntasks' *.py *.sh *.json",
        ),
    ),
    Family(
        re.compile(
            r"\b(?:Ampere|Hopper|Volta|Turing|Blackwell|Ada|Pascal)\b|compute capability|[Ss][Mm]_?\d\d|\bGPUs?\b"
            r"|\b[ABHLV]\d{1,2}0\b|\bhardware\b|\b(?:this|your) (?:device|card|GPU)\b"
        ),
        "The job got a card that this code is not made for, an older one mostly. The card is in order, and so may "
        "the installation be.",
        (
            "nvidia-smi --query-gpu=name,compute_cap --format=csv    # in the job: which card is it?",
            "sinfo --format='%P %G' ; sbatch --gpus-per-node=TYPE:2 run.sh    # TYPE: a newer one",
            "grep -n -i -E 'flash|attn_implementation|bf16|fp8' *.py    # or without what needs it: "
            "attn_implementation='sdpa', fp16",
        ),
    ),
    Family(
        re.compile(r"\b[Dd]ata ?types?\b|\bdtypes?\b|\bprecision\b|\b(?:fp|bf|float)\d+\b"),
        "It does not compute in the precision that it was given.",
        (
            "grep -n -E 'dtype|autocast|half\\(|bf16|fp16' *.py    # where it is chosen",
            "{rerun} --precision bf16    # or another that the message names",
        ),
    ),
    Family(
        re.compile(
            r"\b[Vv]ersions?\b|\b(?:compiled|built) (?:with|for|against)\b|[<>=]=\s?v?\d|\b\d+\.\d+(?:\.\d+)?\b"
        ),
        "Two parts of the installation are of versions that do not go together. What a module or another "
        "environment brings may come before what you have installed.",
        (
            "python -m pip check ; module list    # in the job, with its Python",
            "python -c 'import torch; print(torch.__version__, torch.version.cuda)' ; nvcc --version    # alike?",
        ),
    ),
    Family(
        re.compile(
            r"(?i:\bcheckpoint|\bstate.?dict|\b(?:load|sav)(?:ed|ing)\b|pretrained|\bvocab|which has shape)"
        ),
        "What is loaded and what it is loaded into are not alike: another model, vocabulary or option than when "
        "it was saved.",
        (
            "grep -n -E 'from_pretrained|load_state_dict|load_checkpoint' *.py",
            "{rerun}    # with the options that it was saved with",
        ),
    ),
    Family(
        re.compile(r"\bsupport|\bcompatible\b|\brequire"),
        "Two things that it was given, or that are installed, do not go together: the message says which.",
        (
            "python -m pip list    # in the job, with its Python: the versions",
            "grep -n -E 'from_pretrained|Config\\(|Trainer' *.py *.json    # the options that it names",
        ),
    ),
)


def stated(kind: str, text: str) -> Family | None:
    """The family of what an exception states, by its class or its words; None of one that states nothing so.

    Args:
        kind: its class.
    """
    name = kind.rpartition(".")[2]
    by_name = _OF_ITS_NAME.search(name) is not None
    if name in _PYTHONS or _INTERNAL.search(text) or not (by_name or _STATES.search(text)):
        return None
    return next((one for one in _FAMILIES if one.pattern.search(text)), _FAMILIES[-1] if by_name else None)
