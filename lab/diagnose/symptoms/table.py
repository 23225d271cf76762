"""All tables of symptoms as one. Of two that fit, the lower order counts, then the earlier place in the log."""

from lab.diagnose.symptoms.code import CODE
from lab.diagnose.symptoms.collectives import COLLECTIVES
from lab.diagnose.symptoms.containers import CONTAINERS
from lab.diagnose.symptoms.devices import DEVICES
from lab.diagnose.symptoms.files import FILES
from lab.diagnose.symptoms.launch import LAUNCH
from lab.diagnose.symptoms.memory import MEMORY
from lab.diagnose.symptoms.network import NETWORK
from lab.diagnose.symptoms.program import PROGRAM
from lab.diagnose.symptoms.software import SOFTWARE

_FAMILIES = (LAUNCH, SOFTWARE, CONTAINERS, MEMORY, DEVICES, FILES, NETWORK, COLLECTIVES, PROGRAM, CODE)
SYMPTOMS = tuple(symptom for family in _FAMILIES for symptom in family)
_FAMILY = {symptom.name: number for number, family in enumerate(_FAMILIES) for symptom in family}
# What the other ranks meet when one has failed.
_BETWEEN_RANKS = (_FAMILY[NETWORK[0].name], _FAMILY[COLLECTIVES[0].name])
# A cause, and what is known to be seen of it in another family.
_BRINGS_ABOUT = {
    ("container-without-driver", "no-gpu"),
    ("container-without-driver", "container-not-started"),
    ("launched-twice", "port-in-use"),
    ("same-gpu", "out-of-gpu-memory"),
    ("same-gpu", "gpu-memory-of-others"),
    ("same-gpu", "gpu-memory-in-pieces"),
    ("same-gpu", "gpu-memory-full"),
    ("lookup-not-found", "no-meeting-point"),
    ("lookup-not-found", "no-launcher"),
    ("lookup-not-found", "host-not-found"),
    ("lookup-not-found", "meeting-point-elsewhere"),
    ("lookup-not-found", "ranks-missing"),
    ("lookup-not-found", "launch-value-empty"),
    ("program-not-found", "launch-value-empty"),
    ("access-lost", "no-permission"),
    ("stub-driver", "no-gpu"),
    ("mps-daemon", "no-gpu"),
    ("gpu-closed", "no-gpu"),
    ("driver-mismatch", "no-gpu"),
    ("cpu-binding", "node-trouble"),
    ("launched-twice", "ranks-missing"),
    ("link-down", "infiniband"),
    ("no-temporary-folder", "shared-memory"),
    ("device-assert", "gpu-memory-full"),
    ("folder-not-on-node", "file-not-found"),
    ("shared-memory", "disk-full"),
    ("container-not-started", "node-trouble"),
    ("failing-gpu", "gpu-fault"),
    ("too-many-threads", "keyboard"),
    ("dos-line-ends", "program-not-found"),
    ("dos-line-ends", "option-refused"),
    ("dos-line-ends", "file-not-found"),
    ("not-picklable", "broken-checkpoint"),
    ("renamed-by-all", "file-not-found"),
    ("compiler-cache", "library-not-loaded"),
    ("cache-made-by-all", "file-not-found"),
    ("file-system", "compiler-cache"),
    ("rank-twice", "ranks-missing"),
    ("meeting-point-elsewhere", "ranks-missing"),
}
# What a shell, a module system or Slurm says before the program, which may then run all the same.
BEFORE_IT_RAN = frozenset(
    {
        "environment-not-active",
        "folder-not-on-node",
        "lookup-not-found",
        "module-unknown",
        "not-executable",
        "profiler-not-found",
        "program-not-found",
        "slurm-away",
        "step-waits",
    }
)
# What says that it ran: all but what a wrong environment, too, brings about.
_NEEDS_THE_RIGHT_ONE = ("driver-too-old", "driver-mismatch", "card-not-supported", "no-gpu", "no-launcher")
_IT_RAN = frozenset(
    symptom.name
    for family in (MEMORY, DEVICES, NETWORK, COLLECTIVES, PROGRAM, CODE)
    for symptom in family
    if symptom.name not in _NEEDS_THE_RIGHT_ONE
)
# What a line may complain of while the user's own error, further down, is another matter.
_ANOTHER_MATTER = frozenset(
    symptom.name for family in (FILES, SOFTWARE, CONTAINERS, NETWORK) for symptom in family
)


def brings_about(cause: str, other: str) -> bool:
    """Whether one symptom is known to be the cause of the other."""
    return (cause, other) in _BRINGS_ABOUT


def explains(cause: str, other: str) -> bool:
    """Whether a symptom that was seen beside the cause may well come of it."""
    return _FAMILY[cause] == _FAMILY[other] or _FAMILY[other] in _BETWEEN_RANKS or brings_about(cause, other)


def needs_a_run(name: str) -> bool:
    """Whether a program must have begun to show this symptom."""
    return name in _IT_RAN


def may_be_another_matter(name: str) -> bool:
    """Whether an exception of the user's code that comes after it may have nothing to do with this symptom."""
    return name in _ANOTHER_MATTER
