"""Values of a launch that came out empty or too small, and what a job script asked for them in vain."""

from lab.diagnose.symptoms.entry import case, symptom

# A shell that did not find what tells the first node's name or address.
LOOKED_UP = (
    r"(?:\bline \d+: |:\d+: |: \d+: |\b(?:ba)?sh: )(?P<tool>scontrol|hostname|host|getent|ip|ifconfig|dig"
    r"|nslookup): (?:command )?not found$"
)
_OPTIONS = (
    r"--(?:master[-_](?:addr|port)|nn?odes|nproc[-_]per[-_]node|node[-_]rank|rdzv[-_]\w+|num[-_](?:processes"
    r"|machines)"
    r"|machine[-_]rank|main[-_]process[-_](?:ip|port)|num[-_](?:gpus|nodes))"
)
LAUNCH_VALUE_EMPTY = (
    rf"error: argument (?P<what>\S{{0,60}}{_OPTIONS})\b\S{{0,60}}: "
    r"(?:expected one argument|invalid .{0,40}value: '')|Unsupported (?P<also>nproc_per_node) value: ?$"
)
_OUTSIDE = "grep -n {tool} *.sh    # outside of the container, before it starts: then export what it says"
_NOT_INSIDE = "Containers have no Slurm inside (scontrol, srun), slim images neither hostname nor ip."

EMPTY_VALUES = (
    symptom(
        "mpi-slots",
        1,
        r"There are not enough slots available|not enough slots available in the system",
        "There are fewer slots for mpirun than processes: {line}",
        "A slot is a place for a process, not a GPU: a host without :N after its name counts as one, and within "
        "a Slurm "
        "job there are as many as tasks.",
        "mpirun -np 2 -H localhost:2 python exercises/main.py    # horovodrun too: -H HOST:N",
        "sbatch --ntasks-per-node=4 run.sh    # in a job: as many tasks as processes",
        source="docs.open-mpi.org",
    ),
    symptom(
        "lookup-not-found",
        1,
        LOOKED_UP,
        "The job's script asked {tool} where the nodes are, and it is not there: {line}",
        f"The name or address that it should have said is empty where the script uses it. {_NOT_INSIDE}",
        _OUTSIDE,
        "srun --ntasks=1 bash -c 'which {tool}; echo $PATH'    # in the job, as the script runs there",
        cases=(
            case(
                r"environment variable (?P<empty>[A-Z_]+) expected, but not set",
                f"So {{empty}} stayed empty, and the ranks found no place to meet. {_NOT_INSIDE}",
                _OUTSIDE,
                "export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)    # there",
                anywhere=True,
            ),
        ),
        source="slurm.schedmd.com/scontrol.html",
    ),
    symptom(
        "launch-value-empty",
        0,
        LAUNCH_VALUE_EMPTY,
        "The launcher was given an option without its value: {what}{also}.",
        "A variable stands behind it that is empty: it was never set, or the command that should have filled it "
        "failed or is not there.",
        "bash -x run.sh 2>&1 | grep -n -E 'torchrun|srun'    # shows each command with its values",
        "torchrun --nproc-per-node gpu exercises/main.py    # as many ranks as there are GPUs",
        source="docs.pytorch.org/docs/stable/elastic/run.html",
    ),
)
