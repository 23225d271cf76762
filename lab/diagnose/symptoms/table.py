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

SYMPTOMS = (
    *LAUNCH,
    *SOFTWARE,
    *CONTAINERS,
    *MEMORY,
    *DEVICES,
    *FILES,
    *NETWORK,
    *COLLECTIVES,
    *PROGRAM,
)
