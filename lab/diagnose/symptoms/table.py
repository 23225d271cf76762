"""All tables of symptoms as one. Of two that fit, the lower order counts, then the earlier place in the log."""

from lab.diagnose.symptoms.collectives import COLLECTIVES
from lab.diagnose.symptoms.containers import CONTAINERS
from lab.diagnose.symptoms.devices import DEVICES
from lab.diagnose.symptoms.files import FILES
from lab.diagnose.symptoms.launch import LAUNCH
from lab.diagnose.symptoms.memory import MEMORY
from lab.diagnose.symptoms.network import NETWORK
from lab.diagnose.symptoms.program import PROGRAM
from lab.diagnose.symptoms.software import SOFTWARE

_FAMILIES = (LAUNCH, SOFTWARE, CONTAINERS, MEMORY, DEVICES, FILES, NETWORK, COLLECTIVES, PROGRAM)
SYMPTOMS = tuple(symptom for family in _FAMILIES for symptom in family)
_FAMILY = {symptom.name: number for number, family in enumerate(_FAMILIES) for symptom in family}
# What the other ranks meet when one has failed.
_BETWEEN_RANKS = (_FAMILY[NETWORK[0].name], _FAMILY[COLLECTIVES[0].name])
# A cause, and what is known to be seen of it in another family.
_BRINGS_ABOUT = {
    ("container-without-driver", "no-gpu"),
    ("device-assert", "gpu-memory-full"),
    ("folder-not-on-node", "file-not-found"),
    ("shared-memory", "disk-full"),
}


def brings_about(cause: str, other: str) -> bool:
    """Whether one symptom is known to be the cause of the other."""
    return (cause, other) in _BRINGS_ABOUT


def explains(cause: str, other: str) -> bool:
    """Whether a symptom that was seen beside the cause may well come of it."""
    return _FAMILY[cause] == _FAMILY[other] or _FAMILY[other] in _BETWEEN_RANKS or brings_about(cause, other)
