"""What main.py refuses, what it says of itself, and mistakes in how a program starts processes."""

from lab.diagnose.symptoms.entry import case, symptom

# Of click, absl, fire, hydra and the Trainer's parser.
_OTHER_PARSERS = (
    r"Error: (?=No such option|no such option)|FATAL Flags parsing error: |ERROR: (?=Could not consume arg)"
    r"|(?:ValueError: )(?=Some specified arguments are not used by the HfArgumentParser)"
)
_REFUSED = (
    r"(?:[Uu]nrecognized (?:arguments|override)|[Nn]o such option|Unknown command line flag"
    r"|Could not consume arg"
    r"|not used by the HfArgumentParser|LexerNoViableAlt\w*)"
)
_TAKES_BOTH = (
    "grep -n -E 'local.rank' *.py    # parser.add_argument('--local-rank', '--local_rank', type=int, "
    "default=int(os.environ.get('LOCAL_RANK', 0)))"
)
_READS_THE_VARIABLE = "grep -n -E 'local.rank' *.py    # int(os.environ['LOCAL_RANK']): torchrun sets it"
_MADE_BY_THE_LAUNCHER = (
    case(
        rf"{_REFUSED}.{{0,60}}\blocal-rank",
        "It is the launcher's own argument, not yours: since PyTorch 2 torch.distributed.launch calls it "
        "--local-rank, and a program that was written for an older one knows --local_rank, or none.",
        "torchrun --standalone --nproc-per-node 2 exercises/main.py    # gives none: LOCAL_RANK is in the "
        "environment",
        _TAKES_BOTH,
        saw="The program does not know an argument that its launcher has added: {why}.",
    ),
    case(
        rf"{_REFUSED}.{{0,60}}\blocal_rank",
        "It is the launcher's own argument, not yours: torch.distributed.launch before PyTorch 2, and "
        "deepspeed, "
        "add --local_rank, and the program knows none, or --local-rank.",
        "torchrun --standalone --nproc-per-node 2 exercises/main.py    # gives none: LOCAL_RANK is in the "
        "environment",
        _TAKES_BOTH,
        saw="The program does not know an argument that its launcher has added: {why}.",
    ),
    case(
        r"(?:required|Missing option).{0,60}\blocal[-_]rank",
        "It waits for an argument of an older launcher: torchrun gives none, and sets LOCAL_RANK instead.",
        _READS_THE_VARIABLE,
        "python -m torch.distributed.launch --nproc_per_node=2 exercises/main.py    # until then: adds it",
        saw="The program wants an argument that its launcher does not give: {why}.",
    ),
    case(
        rf"{_REFUSED}.{{0,60}}--(?P<name>n?proc[-_]per[-_]node|nnodes|node[-_]rank|master[-_](?:addr"
        rf"|port)|rdzv\S*"
        r"|standalone|num_processes|num_machines|machine_rank)",
        "It is an option of the launcher, and stands behind the program's name: what stands there is the "
        "program's.",
        "torchrun --standalone --nproc-per-node 2 exercises/main.py    # the launcher's options first, "
        "then the program",
        saw="The program was given an option of its launcher: {why}.",
    ),
    case(
        rf"ipykernel_launcher\.py: error: |{_REFUSED}.{{0,80}}-f \S{{1,200}}kernel\S{{1,80}}\.json",
        "In a notebook the command line is that of the notebook's kernel, not the program's: parse_args() "
        "reads it.",
        "grep -n parse_args *.py    # parse_args([]), or with a list of options, in a notebook",
        saw="A notebook's cell read the command line of its kernel: {why}.",
    ),
)

PROGRAM = (
    symptom(
        "not-done-yet",
        0,
        r"(?P<todo>Exercise \d\.\d\w? is not done yet: .+)$",
        "{rank}{todo}.",
        "The program has come to a TODO that is still open.",
        "lab check",
    ),
    symptom(
        "no-launcher",
        0,
        r"(?P<why>environment variable (?:RANK|WORLD_SIZE) expected, but not set"
        r"|KeyError: '(?:(?:LOCAL_|NODE_|GROUP_)?RANK|(?:LOCAL_)?WORLD_SIZE"
        r"|SLURM_(?:(?:PROC|LOCAL|NODE)ID|NTASKS))'"
        r"|this process was started by no launcher|\S.* not set: start this program with torchrun or srun)",
        "The program does not know its rank: {why}.",
        "The program was started with python alone: no launcher told it its rank and the number of ranks.",
        "torchrun --standalone --nproc-per-node 2 exercises/main.py",
        "sbatch run.sh   # on a cluster",
        cases=(
            case(
                r"^srun: error: \S+: tasks? |\bSLURM_(?:NTASKS|PROCID) ?=",
                "srun numbers the processes, as SLURM_PROCID and SLURM_NTASKS: RANK, WORLD_SIZE and the "
                "address where "
                "they meet are names that torchrun sets, or the job script from those.",
                "srun --ntasks-per-node=1 torchrun --nnodes $SLURM_NNODES --nproc-per-node gpu "
                "--rdzv-backend c10d "
                "--rdzv-endpoint $MASTER_ADDR:29500 exercises/main.py    # one torchrun for each node",
                "srun bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS python "
                "exercises/main.py'    # MASTER_ADDR and MASTER_PORT exported before",
                anywhere=True,
            ),
        ),
        source="docs.pytorch.org/docs/stable/distributed.html",
    ),
    symptom(
        "not-by-srun",
        0,
        r"this process is in a Slurm job, but srun did not start it",
        "The program does not know its rank: python was typed in a job, without srun.",
        "A job's script runs once, on its first node. srun in it starts the ranks, and numbers them.",
        "sbatch run.sh   # has srun in it, and tells the ranks where they meet",
    ),
    symptom(
        "no-meeting-point",
        0,
        r"environment variable (?P<what>MASTER_ADDR|MASTER_PORT) expected, but not set"
        r"|KeyError: '(?P<key>MASTER_ADDR|MASTER_PORT)'",
        "The ranks do not know where they meet: {what}{key} is not set.",
        "srun numbers the ranks, but names no place to meet: a job script exports MASTER_ADDR and MASTER_PORT.",
        "sbatch run.sh   # exports both; so does torchrun",
    ),
    symptom(
        "run-id-taken",
        0,
        r"main\.py: (?P<folder>\S+) already holds a finished run",
        "The job did not train: {folder} already holds a finished run.",
        "Its --run-id is that of an older run, which was left as it is.",
        "{rerun}   # without --run-id: the folder is then named after the job",
    ),
    symptom(
        "wrong-world-size",
        1,
        r"main\.py: .*(?:contradict each other: rank|trains on one device, but there are"
        r"|ranks, but Slurm|torchruns, but)",
        "The number of ranks does not fit: {line}",
        "The number of ranks that were started is not the one that the program was told of.",
        "echo $SLURM_NTASKS $WORLD_SIZE     # inside the job: which launcher has spoken?",
        "sbatch --nodes=2 --ntasks-per-node=4 run.sh   # 2 x 4 ranks",
    ),
    symptom(
        "uneven-batch",
        1,
        r"main\.py: .*cannot be divided evenly among.*",
        "{line}.",
        "Every rank computes an equal share of the global batch.",
        "{rerun} --per-device-batch-size 64    # any number of ranks",
    ),
    symptom(
        "option-refused",
        1,
        rf"^(?:\[rank\d+\]: ?|\d+: )?(?:\S{{0,100}}\.py: error: |{_OTHER_PARSERS})(?P<why>.+)$",
        "The program did not understand its command line: {why}.",
        "An option is misspelt, has a value that it does not take, or stands before run.sh instead of after it.",
        "python exercises/main.py --help",
        cases=_MADE_BY_THE_LAUNCHER,
        source="docs.python.org/3/library/argparse.html",
    ),
    symptom(
        "tasks-differ",
        1,
        r"You set `(?P<what>devices|num_nodes)=(?P<wanted>\d+)` in Lightning, but the number of (?:tasks per node"
        r"|nodes) "
        r"configured in SLURM `(?P<name>--[\w-]+)=(?P<given>\d+)`",
        "Lightning was told {what}={wanted}, and Slurm {name}={given}: they must be the same.",
        "Slurm starts the processes, one for each GPU, and Lightning only counts them. To change the Trainer's "
        "number instead, as the message proposes, leaves GPUs or nodes without work.",
        "sbatch --nodes=2 --ntasks-per-node=4 --gpus-per-node=4 run.sh    # num_nodes nodes with devices "
        "tasks each",
        "grep -n -E '#SBATCH|srun' *.sh ; grep -n -E 'devices|num_nodes' *.py",
        source="lightning.ai/docs/pytorch/stable/clouds/cluster_advanced.html",
    ),
    symptom(
        "program-said",
        3,
        r"^(?:\[rank\d+\]: ?|\d+: )?main\.py: (?!another rank has ended)(?P<why>.+)$",
        "The program ended with the words: {why}.",
        "One rank's error ends the job: the others cannot go on without it.",
        "lab check    # finds most mistakes on this machine, within seconds",
    ),
    symptom(
        "not-finite",
        1,
        r"main\.py: .*(?:the loss (?:is|was|became)|no finite number)|[Ll]oss is (?:nan|inf)\b"
        r"|[Ll]oss (?:became|is|was) (?:infinite|NaN|non-?finite|not finite|nan|inf)\b"
        r"|Error: .{0,40}(?:NaN|nan|[Nn]on-finite|[Ii]nfinite) (?:loss|values? in (?:the )?(?:loss|gradient))",
        "Training has run away: {line}",
        "The rate is too high for this batch, or numbers are too small or too large for fp16.",
        "{rerun} --warmup-epochs 1 --clip-norm 1",
        "{rerun} --precision bf16    # where it was fp16",
    ),
    symptom(
        "loss-scale",
        1,
        r"Current loss scale already at minimum|[Mm]inimum loss scale (?:\(.{0,20}\) )?reached"
        r"|[Ll]oss scal(?:e|ing factor) .{0,40}(?:has reached its minimum|is too small|below (?:the )?min)",
        "{rank}got no finite gradient in fp16, however small the loss scale: {line}",
        "Every step overflowed: numbers of the network or its gradients are above 65504, the largest of fp16. "
        "Mostly it was trained in bf16, which has the range of fp32 (Llama, T5, Gemma and most newer ones), or "
        "training has run away.",
        "grep -n dtype config.json */config.json    # bfloat16? then fp16 does not fit that model",
        "{rerun} --precision bf16    # cards since Ampere (A100) have it; on older ones, as V100, fp32",
        source="github.com/microsoft/DeepSpeed/issues/1773",
    ),
    symptom(
        "not-logged-in",
        1,
        r"api_key not configured|wandb\.errors\S{0,30}: .{0,80}(?:api_?key|log ?in)|401 Client Error"
        r"|GatedRepoError|Access to model .{0,120} is restricted|Invalid user token|Please login using",
        "{rank}was refused by a service that wants to know who asks: {line}",
        "A job has no terminal to ask at: the key or token is there before it begins, or the service is left out.",
        "wandb login ; huggingface-cli login    # once, on the login node; the key is kept in your home",
        "WANDB_MODE=offline {rerun}",
        source="github.com/OptimalScale/LMFlow/issues/65",
    ),
    symptom(
        "cuda-in-fork",
        1,
        r"Cannot re-initialize CUDA in forked subprocess",
        "{rank}used CUDA in a process that was forked.",
        "A GPU cannot be used in both halves of a fork: data sets of loader processes return tensors on the CPU.",
        "lab check 3.2    # no .cuda() or .to(device) in a data set or its transforms",
        source="docs.pytorch.org/docs/stable/notes/multiprocessing.html",
    ),
    symptom(
        "no-main-guard",
        1,
        r"before the current process has finished its bootstrapping phase",
        "The program starts processes while it is being imported.",
        "Each new process imports the program again: what starts them must stand below if __name__ == '__main__'.",
        "lab check 5.1",
        source="docs.python.org/3/library/multiprocessing.html",
    ),
    symptom(
        "not-picklable",
        1,
        r"Can't pickle (?:local object|<|attribute)|Can't get local object|cannot pickle '"
        r"|Can't get attribute .{0,120}\(built-in\)",
        "{rank}could not hand an object to a loader process: {line}",
        "What goes to a process that was not forked is pickled: no lambdas, local functions, open files or locks.",
        "{rerun} --num-workers 0    # needs no other process",
        cases=(
            case(
                r"multiprocessing/spawn\.py|mp\.spawn|popen_spawn|popen_forkserver|from_parent",
                "What spawn() or Process.start() hands over is pickled: no lambdas, local functions, open files "
                "or "
                "locks. That the child then says of truncated data or EOFError follows from it: no file is "
                "damaged.",
                "grep -n -E 'spawn\\(|Process\\(|lambda' *.py    # a function at the top level of a module "
                "instead",
                saw="{rank}could not hand an object to the process it starts: {line}",
            ),
        ),
        source="docs.python.org/3/library/pickle.html",
    ),
)
