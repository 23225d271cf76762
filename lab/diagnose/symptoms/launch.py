"""Before the program ran: Slurm, the job script, the launcher."""

from lab.diagnose.symptoms.empty_values import EMPTY_VALUES, LAUNCH_VALUE_EMPTY, LOOKED_UP
from lab.diagnose.symptoms.entry import case, symptom
from lab.slurm import messages

_AWAY = r"Socket timed out|Unable to contact slurm controller|[Zz]ero [Bb]ytes were transmitted"
_NOT_SET_UP = r"s_p_parse_file|Unable to process configuration file|Could not establish a configuration source"
_CREDENTIAL = (
    r"(?:slurm|srun|sbatch|salloc|munge|auth).{0,120}(?:[Ii]nvalid|[Ee]xpired"
    r"|[Rr]ewound)(?: \w+){0,2} credential"
    r"|[Mm]unge (?:decode|encode) failed"
    r"|[Jj]ob credential (?:expired|invalid|revoked)"
)

LAUNCH = (
    symptom(
        "slurm-away",
        0,
        rf"^(?:sbatch|srun|salloc|squeue|slurm_\w+)\b.{{0,200}}(?:{_AWAY}|{_NOT_SET_UP})",
        "Slurm cannot be reached from here: {line}",
        "Its controller is overloaded or restarts, or this machine does not know where it is: nothing that your "
        "job did.",
        "sinfo    # does it answer now? then submit again",
        unless=r"Task launch|slurm_receive_msgs|Application launch",  # a node did not answer, not the controller
        source="slurm.schedmd.com/troubleshoot.html",
    ),
    symptom(
        "slurm-credential",
        0,
        rf"(?:{_CREDENTIAL}|Protocol authentication error)",
        "A node did not believe Slurm's credential: {line}",
        "munge does not run on a node, has another key, or the nodes' clocks differ: the administrators mend "
        "that.",
        "sbatch --exclude=NODE run.sh   # without that node",
        "sinfo --list-reasons   # tell your administrators the node in the line above",
        source="github.com/dun/munge/wiki",
    ),
    symptom(
        "slurm-option",
        0,
        r"^(?P<program>sbatch|srun|salloc): (?:error: |fatal: )?(?:(?:unrecognized|invalid) option"
        r"|(?=.{0,120}mutually exclusive))(?P<what>.{0,160})",
        "{program} does not accept an option:{what}.",
        "This Slurm is older or lacks the plugin that adds it (--environment and --container-image are "
        "plugins'); "
        "or variables that an outer job left (SLURM_MEM_PER_CPU, SBATCH_...) speak against it.",
        "srun --help",
        "printenv | grep -E '^(SLURM|SBATCH|SALLOC)_'    # where you submit: unset what another job has left",
        source="slurm.schedmd.com/spank.html",
    ),
    symptom(
        "dos-line-ends",
        0,
        r"DOS line breaks|bad interpreter: \S{0,100}\^M|(?:bash|sh|python)\\r\W?: No such file|\$'\\r': "
        r"|\\r\W?: command not found|'\$'\\r'|\^M: \w|(?:No such|invalid|[Uu]nknown|argument).{0,200}\w\\r'",
        "A script, or what it reads, has the line ends of DOS: {line}",
        "It was edited or unpacked on Windows: to bash the end of the line is a part of its last word.",
        "sed -i 's/\\r$//' run.sh slurm/*.sh env/*",
        source="slurm.schedmd.com/sbatch.html",
    ),
    symptom(
        "sbatch-refused",
        0,
        rf"{messages.NOT_TAKEN}: (?P<why>.+)$"
        r"|^sbatch: error: (?P<said>(?:Failed to validate job spec|Cannot find \w+ specification)\b.+)$",
        "Slurm did not take the job, or a step of it: {why}{said}.",
        "The request does not fit this cluster: partition, account, nodes, GPUs, memory or time.",
        "sinfo --format='%P %l %D %c %m %G'   # partition, time limit, nodes, cores, memory, GPUs",
        "sbatch --partition=NAME --account=NAME --time=00:10:00 run.sh",
        cases=(
            case(
                r"Unable to create step .{0,60}(?:More processors|Requested node config"
                r"|[Ii]nvalid generic resource"
                r"|[Mm]emory required|[Tt]ask count|More nodes)",
                "The step asks for more than its job was given: srun's options go beyond those of #SBATCH. The "
                "cluster could well have more.",
                "grep -n -E '#SBATCH|srun' *.sh    # tasks, CPUs, GPUs, memory: the job's must hold the step's",
                "sbatch --ntasks-per-node=4 run.sh    # what srun asks for, asked of the job",
                saw="Slurm did not take a step of the job: {why}{said}.",
            ),
            case(
                r"\b(?P<limit>(?:QOS|Assoc|Max|Grp)\w*(?:Per(?:User|Job|Account|Node)|Limit)\w*)\b",
                "It is a limit of your account or of its QOS, not of the partition: the job asks for more "
                "than it "
                "lets you have, with those that are in the queue already or without.",
                "sacctmgr show qos format=Name,MaxWall,MaxTRESPerUser%40,MaxJobsPU,MaxSubmitPU    # the limits",
                "squeue --me    # what you have already; then fewer nodes, less time, or another --qos",
                saw="Slurm did not take the job, for the limit {limit}: {why}{said}.",
            ),
            case(
                r"QOS|job submit limit",
                "A limit of your account or of its QOS, not of the partition; which one, Slurm does not say here.",
                "sacctmgr show qos format=Name,MaxWall,MaxTRESPerUser%40,MaxJobsPU,MaxSubmitPU    # the limits",
                "squeue --me    # what you have already; then fewer nodes, less time, or another --qos",
            ),
            case(
                r"[Ii]nvalid account|account/partition",
                "The account is none of yours, or may not use this partition.",
                "sacctmgr show assoc user=$USER format=Account,Partition,QOS%40    # which are yours?",
                "sbatch --partition=NAME --account=NAME run.sh",
            ),
            case(
                r"[Ii]nvalid partition",
                "There is no partition of this name here, or you may not use it.",
                "sinfo --format='%P %a %l %D'   # which are there?",
                "sbatch --partition=NAME run.sh",
            ),
            case(
                r"time limit",
                "The job asks for more time than the partition allows.",
                "sinfo --format='%P %l'   # partition, time limit",
                "sbatch --time=00:10:00 run.sh",
            ),
        ),
        unless=rf"{_AWAY}|{_NOT_SET_UP}|{_CREDENTIAL}|Protocol authentication error|DOS line"
        r"|already completing or completed",  # a step that had not begun when its job ended
    ),
    symptom(
        "step-waits",
        2,
        r"step creation (?:temporarily disabled|still disabled), retrying",
        "srun waits for what another step of the same job holds: {line}",
        "A step inside of a step, or beside one that took all CPUs, GPUs or memory, never begins: more "
        "time does "
        "not "
        "help.",
        "sbatch run.sh      # instead of srun run.sh: the script calls srun itself",
        "srun --overlap --ntasks=1 hostname    # a second step, on what the first one has",
        source="slurm.schedmd.com/srun.html",
    ),
    symptom(
        "cpu-binding",
        1,
        r"CPU binding outside of job step allocation|Unable to satisfy cpu bind request"
        r"|failed to distribute tasks|Unable to layout tasks",
        "srun could not bind the tasks to CPUs: {line}",
        "SLURM_CPU_BIND or --cpu-bind names CPUs that are not the step's; often a variable of an outer job.",
        "unset SLURM_CPU_BIND SLURM_CPU_BIND_LIST SLURM_CPU_BIND_TYPE SLURM_CPU_BIND_VERBOSE   # then submit "
        "again",
        source="slurm.schedmd.com/srun.html",
    ),
    symptom(
        "mpi-type",
        1,
        r"Invalid MPI (?:type|plugin)|cannot find mpi plugin|couldn't find the specified plugin name for mpi/"
        r"|not built with SLURM's PMI support|PMI2?_Init failed",
        "Slurm and MPI do not fit each other: {line}",
        "SLURM_MPI_TYPE or --mpi names a plugin that this site does not have, or that its MPI was not "
        "built for; "
        "PyTorch needs none.",
        "srun --mpi=list",
        "SLURM_MPI_TYPE=none {rerun}",
        source="slurm.schedmd.com/mpi_guide.html",
    ),
    symptom(
        "log-not-writable",
        0,
        r"(?:Could not open std\w+ file|Unable to open (?:output|error) file|IO setup failed)",
        "Slurm could not open the job's log: {line}",
        "The folder of --output or --error is not there on the node, or not yours to write to.",
        "scontrol show job {job}    # StdOut= and StdErr=: is the folder there?",
        "mkdir -p results ; sbatch run.sh   # Slurm makes no folders",
        source="slurm.schedmd.com/sbatch.html",
    ),
    symptom(
        "folder-not-on-node",
        1,
        r"(?:couldn't|could not|can't) chdir to",
        "The node does not have the folder that the job was submitted from: {line}",
        "It is on a disk of the login node's own, or not mounted there.",
        "srun --ntasks=1 df -h .    # is this folder on a file system that the nodes see?",
        source="slurm.schedmd.com/sbatch.html",
    ),
    symptom(
        "profiler-not-found",
        0,
        r"(?:execve\(\): |error: |line \d+: |exec: )(?P<what>nsys|ncu)\b.{0,60}(?:No such file|not found)"
        r"|(?P<also>nsys|ncu): command not found",
        "The profiler is not on the node's PATH: {line}",
        "Nsight is not installed there, or its module is not loaded.",
        "module avail nsight    # then module load, before sbatch; or: {rerun} --profile needs no Nsight",
        source="docs.nvidia.com/nsight-systems",
    ),
    *EMPTY_VALUES,
    symptom(
        "program-not-found",
        1,
        r"execve\(\): .{0,200}No such file or directory|: command not found|executable file not found in \$PATH"
        r"|^/usr/bin/env: .{0,80}: No such file or directory"
        r"|^\S{1,80}: \d+: (?:exec: )?\S{1,80}: not found$|^srun: error: .{0,200}Unable to exec",
        "A program is not there on the node: {line}",
        "The environment that was active where you typed is not active on the node, or its path is not mounted "
        "there.",
        "LAB_ENV=~/venvs/torch sbatch run.sh    # names the environment: see docs/cluster.md",
        "srun --ntasks=1 bash -c 'which python; echo $PATH'",
        cases=(
            case(
                LAUNCH_VALUE_EMPTY,
                "What it should have said was to be the value of a launcher's option, which is empty now.",
                "torchrun --nproc-per-node gpu exercises/main.py    # counts the GPUs itself",
                "srun --ntasks=1 bash -c 'echo $PATH'    # in the job: is the program's folder among these?",
                anywhere=True,
            ),
        ),
        unless=rf"{LOOKED_UP}|slurm_script: No such|\\r|\b(?:module|ml): command not found"
        r"|\bnsys\b|\bncu\b|conda: command",
        source="slurm.schedmd.com/faq.html",
    ),
    symptom(
        "not-executable",
        1,
        r"execve\(\): .{0,200}Permission denied|\.(?:sh|sif|py): Permission denied|cannot execute binary file"
        r"|[Ee]xec format error|bin/python\d?\S{0,8}: (?:bad interpreter: )?Permission denied",
        "A program may not or cannot be executed on the node: {line}",
        "It has no x permission, or lies on a file system mounted noexec or closed to you.",
        "chmod +x run.sh slurm/*.sh",
        "srun --ntasks=1 bash -c 'ls -lL $(which python)'    # in the job: may you run it there?",
        cases=(
            case(
                r"[Ee]xec format error|cannot execute binary file",
                "It was made for another processor: an environment or image from an x86_64 login node does not "
                "run on "
                "aarch64 (Grace, Graviton), nor the other way round. A script without #! in its first line says "
                "the "
                "same.",
                "uname -m ; srun --ntasks=1 uname -m    # alike here and on the node?",
                "file -L $(which python)    # for which it is; then make the environment anew, on such a node",
            ),
        ),
        source="slurm.schedmd.com/faq.html",
    ),
    symptom(
        "node-trouble",
        1,
        r"slurm_script: No such file|[Tt]ask \d+ launch failed|slurm_receive_msgs: .{0,80}failed"
        r"|Task launch for (?:StepId=)?\S+ failed on node|Application launch failed|[Pp]rolog(?: \w+)? (?:failed"
        r"|error)"
        r"|launch failed requeued held|Unable to launch (?:batch )?job|Slurmd could not (?:connect IO|execve)"
        r"|slurmstepd: error: .{0,80}unable to (?:create|instan\w+) .{0,40}cgroup|Failed to invoke task plugins"
        r"|container_[pg]_(?:join|create)|job_container(?:/tmpfs)?: |_(?:create|join)_ns\b"
        r"|cgroup_[pg]_\w+ .{0,60}(?:fail|error)"
        r"|slurmstepd: error: .{0,120}(?:cgroup|namespace|pam_\w+|prolog|epilog|spank_(?!pyxis)).{0,80}(?:fail"
        r"|error|not)"
        r"|slurmstepd: (?:error|fatal): .{0,60}(?:_fork_all_tasks|exec_task|job_manager|setup_\w+|initgroups"
        r"|setuid"
        r"|getpwuid|mkdir).{0,40}(?:fail|error|not)|task/\w+: .{0,60}failed",
        "A node could not start its part of the job: {line}",
        "The node is not in order, or Slurm's own scripts failed there: nothing that your program did.",
        "sbatch --exclude=NODE run.sh   # without that node",
        "sinfo --list-reasons   # then tell your administrators",
        unless=r"(?<!slurm_script: )(?<!\.ns: )(?<!\.active: )No such file|Permission denied|credential"
        r"|layout tasks|memory cgroup out|oom|Memory cgroup",
        source="slurm.schedmd.com/troubleshoot.html",
    ),
    symptom(
        "slurm-daemon",
        7,  # where nothing else is known: some of these are printed by jobs that do well
        r"^(?:slurmstepd|slurmd|pam_slurm\w*)(?:-\S{1,60})?: (?:error|fatal): (?!\*\*\*|.{0,80}(?:execve"
        r"|write to unblock|[Ee]xceeded"
        r"|oom|chdir|pyxis|spank|Detected|Broken pipe|Connection refused|CANCELLED|x11|X11))\S.{1,300}",
        "A part of Slurm on a node says that something failed, and nothing else does: {line}",
        "That is said by Slurm itself, not by your program: the node, or Slurm's set-up there.",
        "sbatch --exclude=NODE run.sh   # without that node: does it run?",
        "sinfo --list-reasons   # then tell your administrators that line",
        source="slurm.schedmd.com/troubleshoot.html",
    ),
    symptom(
        "module-unknown",
        0,
        r"Lmod has detected the following error|The following module\(s\) are unknown"
        r"|Unable to locate a modulefile|/lmod\S{0,20}: No such file"
        r"|\b(?:module|ml): command not found",
        "A module could not be loaded: {line}",
        "env/modules.txt names one that this site does not have, or the node's shell has no module command.",
        "module avail    # which are there? env/modules.txt has the names",
        source="lmod.readthedocs.io",
    ),
    symptom(
        "environment-not-active",
        0,
        r"CommandNotFoundError: Your shell has not been properly configured|CondaError: Run 'conda init'"
        r"|EnvironmentNameNotFound|EnvironmentLocationNotFound|bin/activate: No such file"
        r"|conda: command not found|Could not find conda environment",
        "The environment could not be activated: {line}",
        "A job's shell has not read what conda init wrote, or the environment is not there under this name.",
        "LAB_ENV=$CONDA_PREFIX sbatch run.sh    # its folder is enough: nothing needs to be activated",
        "source $(conda info --base)/etc/profile.d/conda.sh    # in a script of your own, before conda activate",
        source="docs.conda.io",
    ),
    symptom(
        "not-submitted-right",
        0,
        rf"{messages.REFUSED_BY_RUN_SH}(?!no Python with torch)(?P<why>.+)$",
        "No rank was started: {why}.",
        "It looks at what it was given before it starts anything.",
        "sbatch run.sh   # from the folder that holds it, once that is mended",
    ),
)
