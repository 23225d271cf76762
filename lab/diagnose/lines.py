"""The lines of a log in which a symptom is looked for, and where one is."""

import re

from lab.diagnose import overcome
from lab.diagnose.symptoms.entry import Symptom

# PyTorch's warnings are of what went wrong at first and was tried again, or did no harm: "[rank1]:[W1128 ...".
# A name for which there is no IPv4 address either will not be found the next time.
_WARNING = re.compile(
    r"^(?!.*IPv4 network addresses)(?:\[rank\d+\]:|\d{1,5}:)? ?(?:\[W(?:\d{4})? |W\d{4} ).*\n?", re.M
)
_LONG = re.compile(r"^.{4001,}$", re.M)
_MOST = 1 << 18  # characters at both ends of what all patterns are tried on
_NEAR = 8  # lines before and after one, in which the same error may have said more
_SOURCE = re.compile(
    r"^(?:\[rank\d+\]:|\d{1,5}:)?\s{4,}(?:raise |return |assert |if |with |for |self\.|\w[\w., ]* = |\w[\w.]*\()"
)
_KEPT = 2000  # characters at both ends of a long line
INFO = "NCCL INFO"  # what NCCL tells without warning of it


def told_apart(log: str) -> tuple[str, str]:
    """The lines of a log that may say what went wrong: errors, and warnings."""
    told = overcome.HARMLESS.sub("", overcome.IGNORED.sub("", _telling(overcome.HANDED_OVER.sub("", log))))
    rest = _WARNING.sub("", told)
    return overcome.WARNS.sub("", rest), "".join((*_WARNING.findall(told), *overcome.WARNS.findall(rest)))


def _telling(log: str) -> str:
    """The lines that may say what went wrong: of a long log, most tell how training goes on."""
    told = [line for line in log.splitlines() if any(word in line.lower() for word in overcome.TELLS)]
    text = "\n".join((*told, ""))
    return text if len(text) <= 2 * _MOST else f"{text[:_MOST]}\n{text[-_MOST:]}"


def shortened(log: str) -> str:
    """A log without what stands in the midst of very long lines."""
    return _LONG.sub(_shortened, log)


def _shortened(line: re.Match[str]) -> str:
    return f"{line[0][:_KEPT]} ... {line[0][-_KEPT:]}"


def first(symptom: Symptom, text: str) -> re.Match[str] | None:
    """The first place in which a line says this, and not something else."""
    weaker = None  # a traceback's line of code that holds the words is not the message, nor NCCL's INFO an error
    for found in symptom.pattern.finditer(text):
        line = line_of(found, text)
        another = symptom.unless is not None and symptom.unless.search(line)
        if not another and (symptom.when is None or symptom.when(found)):
            if not _SOURCE.match(line) and INFO not in line:
                return found
            weaker = weaker or found
    return weaker


def line_of(found: re.Match[str], text: str) -> str:
    begin, end = text.rfind("\n", 0, found.start()) + 1, text.find("\n", found.start())
    return text[begin : end if end >= 0 else None]


def around(found: re.Match[str], text: str) -> str:
    """The line in which something was found, with a few before and after it."""
    at = text.rfind("\n", 0, found.start()) + 1
    before, after = text[:at].splitlines()[-_NEAR:], text[at:].splitlines()[: _NEAR + 1]
    return "\n".join((*before, *after))
