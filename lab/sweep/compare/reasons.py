"""Why a run has no figures, in words: results.csv keeps what was raised, tables say what it means."""

import re

from lab.diagnose.logs import symptoms

_RAISED = re.compile(r"(?:\w+\.)*(?P<type>\w*(?:Error|Exception|Exit|Interrupt)): (?P<said>.+)")


def in_words(reason: str) -> str:
    """A reason; of an exception what `lab diagnose` makes of it, else what the exception says."""
    raised = _RAISED.fullmatch(reason)
    if not raised:
        return reason
    for finding in symptoms(reason)[:1]:
        saw = re.split(rf":? *(?:\w+\.)*{raised['type']}", finding.saw)[0].rstrip(".")
        return f"{saw[:1].lower()}{saw[1:]}"
    return f"{raised['said']} ({raised['type']})"
