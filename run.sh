#!/usr/bin/env bash
#
# Train on a cluster, or here:
#
#   sbatch run.sh                                 one node, four GPUs, the code in exercises/
#   sbatch run.sh --strategy fsdp --epochs 10     options after run.sh go to main.py
#   sbatch --nodes=2 run.sh                       two nodes, eight GPUs; options before run.sh go to Slurm
#   sbatch --ntasks-per-node=1 run.sh             one rank (add --gpus-per-node=1 to leave three GPUs to others)
#   sbatch --gpus-per-node=0 run.sh               four ranks on a node without GPUs
#   ./run.sh --strategy ddp                       the same without Slurm, on this machine
#
# Each of these can stand before sbatch or ./run.sh:
#
#   CODE=solutions        the reference instead of your own code
#   LAUNCHER=torchrun     one torchrun for each node instead of one srun task for each GPU
#   LAB_ENV=...           where PyTorch comes from: the folder of a virtual environment; env/load_modules.sh;
#                         an Apptainer image (env/project.sif); edf.toml, where Slurm has a container engine
#   STAGE=1               copy --data-dir to each node's own disk first, to $TMPDIR there; STAGE=DIR to another folder
#   NCCL_DEBUG=INFO       what NCCL says of its network, in the run's folder
#   FLIGHT_RECORDER=1     each rank's last collectives there, if one hangs: lab diagnose reads them
#   PROFILER=...          what to start each rank's Python with; see slurm/profile_nsys.sh
#
# Then: squeue --me, and tail -f train.log
#
# Slurm reads the #SBATCH lines below; to bash they are comments. They only count above the first command.
# Account and partition differ from site to site: env/site.sh is the place for them.
#
#SBATCH --job-name=scaling-lab
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=4
#SBATCH --time=00:30:00
#SBATCH --output=train-%j.log
#SBATCH --error=train-%j.err
# A minute before the time is up, tell the ranks to save. Then the job queues again, and goes on in the same log.
#SBATCH --signal=USR1@60
#SBATCH --requeue
#SBATCH --open-mode=append

set -euo pipefail

fail() {
    echo "run.sh: $*" >&2
    exit 1
}

# sbatch hands on what is set in the shell. A rank and a number of ranks found there are those of another launcher: each
# process would train alone, without a word. What this script starts is numbered anew.
for name in $(compgen -A variable | grep -E '^(OMPI_COMM_WORLD|PMI|PMIX|TORCHELASTIC|ROLE|GROUP)_|^SLURM_CPU_BIND'); do
    unset "$name"
done
unset RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR

# srun run.sh runs this script once for each task, and each would call srun again, for what the others hold.
if [[ $(tr '\0' ' ' 2>/dev/null <"/proc/$PPID/cmdline") =~ ^slurmstepd:\ \[[0-9]+\.[0-9]+\] ]]; then
    fail "srun has started this script, which calls srun itself: sbatch run.sh, or in an allocation bash run.sh"
fi

# Slurm runs a copy of this script, in a folder of its own and under another name. There the folder to work in
# is the job's (sbatch --chdir), or else the one that sbatch was typed in.
CODE=${CODE:-exercises}
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [[ ! -f $HERE/run.sh && -n ${SLURM_SUBMIT_DIR:-} ]]; then
    HERE=$SLURM_SUBMIT_DIR
    if [[ -f run.sh && -f $CODE/main.py ]]; then HERE=$PWD; fi
fi
cd "$HERE"
[[ -f $CODE/main.py ]] || fail "no $CODE/main.py in $HERE: submit from the folder that holds run.sh; CODE=solutions works in the repository only"

# To bash, the end of a line that was edited on Windows is a part of the line's last word.
parts=(env/site.sh slurm/system_records.sh slurm/stage_data.sh)
if [[ ${LAB_ENV:-} == *.sh ]]; then parts+=("$LAB_ENV" env/modules.txt); fi
for part in "${parts[@]}"; do
    if grep -qs $'\r$' "$part"; then fail "$part has the line ends of DOS: sed -i 's/\\r\$//' $part"; fi
done

# What is special at your site: see the comments there.
if [[ -f env/site.sh ]]; then
    # shellcheck source=env/site.sh
    source env/site.sh
fi

# ---- Where PyTorch comes from -------------------------------------------------------------------------

has_torch() {
    "$1" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' 2>/dev/null
}
python=(python)  # the command that starts Python
srun_options=()
case ${LAB_ENV:-} in
    "") # the active Python if it has torch, else the one in .venv beside this script
        if ! has_torch python; then
            python=("$HERE/.venv/bin/python")
            has_torch "${python[0]}" ||
                fail "no Python with torch: activate your environment before sbatch, make one in $HERE/.venv, or name one with LAB_ENV"
        fi
        ;;
    *.sh)
        set +u # the module command of some sites uses variables that are not set
        # shellcheck source=env/load_modules.sh
        source "$LAB_ENV" || fail "LAB_ENV=$LAB_ENV does not load: see above"
        set -u
        ;;
    *.sif) python=(apptainer exec --nv --bind "$HERE" --pwd "$HERE" "$LAB_ENV" python) ;;
    *.toml)
        [[ -n ${SLURM_JOB_ID:-} ]] || fail "LAB_ENV=$LAB_ENV needs Slurm with a container engine: use sbatch run.sh"
        srun_options+=(--environment="$(realpath "$LAB_ENV")")
        ;;
    *) python=("$LAB_ENV/bin/python") ;;
esac
[[ -z ${LAB_ENV:-} || -e $LAB_ENV ]] || fail "LAB_ENV=$LAB_ENV: there is no such file or folder in $HERE"

# In a clone of the repository, the lab can be imported without being installed.
if [[ -d lab ]]; then
    export PYTHONPATH=$HERE${PYTHONPATH:+:$PYTHONPATH}
fi

# Write each line to the log at once: that is what makes tail -f useful.
export PYTHONUNBUFFERED=1

# ---- The run's folder ---------------------------------------------------------------------------------

# The last value that an option of main.py is given, as --name VALUE or --name=VALUE; else the default.
option() { # --name default arguments...
    local name=$1 value=$2
    shift 2
    while (($#)); do
        case $1 in
            "$name") value=${2:-} ;;
            "$name"=*) value=${1#*=} ;;
        esac
        shift
    done
    echo "$value"
}
if [[ -n ${SLURM_JOB_ID:-} ]]; then
    job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID} # 12_3 is task 3 of array 12
    job=${job:-$SLURM_JOB_ID}
    run_id=${SLURM_JOB_NAME:-job}-$job
else
    run_id=local-$(date +%Y%m%d-%H%M%S)
fi
run_id=$(option --run-id "${run_id//\//-}" "$@")
if [[ /$run_id/ == */../* || $run_id == /* ]]; then
    fail "--run-id $run_id leads out of the folder of the runs: --output-dir names another one"
fi
folder=$(option --output-dir results "$@")/$run_id
for argument; do
    case $argument in
        --dry-run) folder=${folder%/*}/.dry-run ;; # only a log: there is no run
        -h | --help) exec "${python[@]}" "$CODE/main.py" --help ;;
    esac
done
mkdir -p "$folder" || fail "cannot make the run's folder $folder: choose another with --output-dir"
folder=$(cd "$folder" && pwd)
arguments=("$@" --run-id "$run_id")

# Does its log go on below an older one: resumed, started again by Slurm, or to be refused because the run is done?
restarts=${SLURM_RESTART_COUNT:-0}
old=$(option --resume "" "$@")${restarts#0}$(grep -s '"status": "done"' "$folder/status.json" || true)
if [[ -e $folder/lock.json ]]; then old=yes; fi # a run that may go on: this one is refused then
if [[ ! -s $folder/train.log && ! -s $folder/train.err ]]; then old=; fi

# train.log and train.err beside this script always lead to the latest run.
for stream in log err; do
    ln -sfn "$folder/train.$stream" "train.$stream" || true # two jobs may do this at the same time
done

# Many ranks that read many small files of a shared file system wait for it, and make others wait.
data=
if [[ -n ${STAGE:-} ]]; then
    data=$(option --data-dir "" "$@")
    [[ -n $data ]] || fail "STAGE=$STAGE copies the folder that --data-dir names, and there is no --data-dir"
    [[ -d $data ]] || fail "STAGE=$STAGE: --data-dir $data is no folder: lab fetch makes one"
    [[ $STAGE == 1 || $STAGE == /* ]] || fail "STAGE=$STAGE: it is 1, or a folder's whole path, that each node has of its own"
fi

# NCCL's log goes to a file for each process, not between the ranks' lines.
if [[ -n ${NCCL_DEBUG:-} ]]; then
    export NCCL_DEBUG_FILE=${NCCL_DEBUG_FILE:-$folder/nccl-%h-%p.log}
fi
if [[ -n ${FLIGHT_RECORDER:-} ]]; then
    export TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1
    export TORCH_FR_DUMP_TEMP_FILE=$folder/flight-recorder-
    export TORCH_NCCL_DEBUG_INFO_TEMP_FILE=$TORCH_FR_DUMP_TEMP_FILE # its name before PyTorch 2.10
fi

# PROFILER is a command with its options. nsys and ncu put variables into file names: %q{RUN_FOLDER}
read -ra profiler <<<"${PROFILER:-}"
if ((${#profiler[@]})) && [[ ${LAB_ENV:-} != *.toml ]] && ! command -v "${profiler[0]}" >/dev/null; then
    fail "there is no ${profiler[0]} on $(hostname -s): load its module before sbatch, or in env/site.sh"
fi
export RUN_FOLDER=$folder

# ---- Without Slurm: torchrun starts the ranks ---------------------------------------------------------
#
# torchrun gives every process RANK, LOCAL_RANK and WORLD_SIZE, and MASTER_ADDR and MASTER_PORT to meet at.
if [[ -z ${SLURM_JOB_ID:-} ]]; then
    if command -v sbatch >/dev/null; then
        echo "note: this trains on $(hostname -s) itself, without a job; sbatch run.sh would submit one" >&2
    fi
    if [[ -n $data ]]; then
        echo "note: STAGE is for jobs; here $data is read where it is" >&2
    fi
    # Number of ranks: one for each GPU that torch sees, or two on the CPU. NPROC=3 ./run.sh starts three.
    NPROC=${NPROC:-$("${python[@]}" -c 'import torch; print(torch.cuda.device_count() or 2)')}
    # Share the cores among the ranks: with all cores for each of them, they would be in each other's way.
    cores=$(getconf _NPROCESSORS_ONLN)
    export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((cores > NPROC ? cores / NPROC : 1))}

    # The ranks meet at 127.0.0.1, because not every laptop can look up its own name.
    launcher=(-m torch.distributed.run --standalone --local-addr 127.0.0.1 --nproc-per-node "$NPROC")

    # Show the output and keep it, as Slurm does: train.log for what was printed, train.err for errors.
    # tee -i lives through Ctrl-C, so that the last lines of the ranks still arrive.
    export JOB_STDOUT=$folder/train.log JOB_STDERR=$folder/train.err
    {
        "${profiler[@]}" "${python[@]}" "${launcher[@]}" "$CODE/main.py" "${arguments[@]}" 2>&1 >&3 3>&- | tee -i ${old:+-a} "$JOB_STDERR" >&2
    } 3>&1 | tee -i ${old:+-a} "$JOB_STDOUT"
    exit
fi

# ---- With Slurm: srun starts the ranks ----------------------------------------------------------------
#
# This script runs once, on the first node. srun below starts main.py once for every task, on all nodes, and
# tells each process who it is:
#
#   SLURM_PROCID    the rank                    as RANK from torchrun
#   SLURM_LOCALID   the rank on its own node    as LOCAL_RANK
#   SLURM_NTASKS    the number of ranks         as WORLD_SIZE
#
# read_launch_environment() in distributed_utils.py reads them. They must be read there, inside the tasks:
# in this script SLURM_PROCID is always 0.
#
# What srun does not say is where the ranks meet, so we do: on the first node of the job, ...
hosts=$(scontrol show hostnames "${SLURM_JOB_NODELIST:-}") ||
    fail "scontrol cannot tell the nodes of this job (SLURM_JOB_NODELIST=${SLURM_JOB_NODELIST:-}), so the ranks cannot meet"
MASTER_ADDR=${hosts%%$'\n'*}
[[ -n $MASTER_ADDR ]] || fail "scontrol named no node for this job, so the ranks cannot meet"
# (Never fall back to localhost here: each node would wait for all ranks to come to itself, for ever.)

# ... at a port that no other job has: made of the job's number, and below 32768, where the ports begin that
# Linux hands out to anyone who asks.
MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))
export MASTER_ADDR MASTER_PORT

tasks=${SLURM_NTASKS:-1} nodes=${SLURM_JOB_NUM_NODES:-1} cpus=${SLURM_CPUS_PER_TASK:-1}

# As many threads for each rank as it has cores. PyTorch would otherwise start one for every core of the node.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$cpus}

# When one rank fails, the others would wait for it until their timeout: end the job at once instead.
srun_options+=(--kill-on-bad-exit=1)
launcher=()
case ${LAUNCHER:-srun} in
    srun) # by itself it does not take this over from sbatch
        if [[ -n ${SLURM_CPUS_PER_TASK:-} ]]; then srun_options+=(--cpus-per-task="$cpus"); fi
        ;;
    torchrun)
        # One task for each node, with the cores and the GPUs of all its ranks.
        ((tasks % nodes == 0)) || fail "$tasks tasks cannot be spread evenly over $nodes nodes, as torchrun needs it"
        per_node=$((tasks / nodes))
        srun_options+=(--ntasks="$nodes" --ntasks-per-node=1 --cpus-per-task=$((cpus * per_node)))
        if [[ -n ${SLURM_GPUS_PER_TASK:-} ]]; then # else srun would give the one task a single GPU
            srun_options+=(--gpus-per-node=$((${SLURM_GPUS_PER_TASK##*:} * per_node))) # of a100:2, the 2
            unset SLURM_GPUS_PER_TASK SLURM_TRES_PER_TASK
        fi
        launcher=(-m torch.distributed.run --nnodes "$nodes" --nproc-per-node "$per_node"
            --rdzv-backend c10d --rdzv-id "$SLURM_JOB_ID" --rdzv-endpoint "$MASTER_ADDR:$MASTER_PORT"
            --signals-to-handle "SIGTERM,SIGINT,SIGUSR1")
        ;;
    *) fail "LAUNCHER=$LAUNCHER: it is srun or torchrun" ;;
esac

# Slurm has opened train-12.log for job 12 before the run's folder was there. It becomes train.log in that folder,
# and a link stays: Slurm follows it when it starts this job again. What sbatch --output named stays where it is.
keep() { # log|err, number of the stream: sets opened, the file that the stream ends in
    local kept=$folder/train.$1 stream=/proc/$$/fd/$2
    opened=$(readlink "$stream")
    if [[ ! $stream -ef $kept && $opened != */train-$SLURM_JOB_ID.$1 ]]; then return; fi
    if [[ -n $old && $1 == err ]]; then echo "run.sh: here begins job $job" >>"$kept"; fi # train.log says so by itself
    if [[ $stream -ef $kept ]]; then return; fi
    if [[ -n $old ]]; then # go on below what is there
        cat "$opened" >>"$kept"
        if [[ $1 == log ]]; then exec >>"$kept"; else exec 2>>"$kept"; fi
    elif ! ln -f "$opened" "$kept" 2>/dev/null; then # on another file system
        ln -sfn "$opened" "$kept"
        return
    fi
    ln -sfn "$kept" "$opened"
    opened=$kept
}
# main.py keeps a log of its own in the run's folder, and has to know if that is the same file.
keep log 1 && export JOB_STDOUT=$opened
keep err 2 && export JOB_STDERR=$opened

# The job as Slurm sees it, and how busy the GPUs are, go to the run's folder too.
if [[ -f slurm/system_records.sh ]]; then
    source slurm/system_records.sh
    begin_system_records "$folder" "$job"
fi

# Started again, after a requeue or the loss of a node? Go on from what was saved, if there is anything; but not from
# what an older run had left in this folder before the job first began.
begun=$folder/slurm-$job/begun
[[ -e $begun ]] || { mkdir -p "${begun%/*}" && touch "$begun"; }
saved=$folder/checkpoints/latest # .pth, or .json of a sharded one
if [[ $restarts != 0 && ($saved.pth -nt $begun || $saved.json -nt $begun) ]]; then
    arguments+=(--resume auto)
fi

# With STAGE, the data lie on each node's own disk before a rank begins.
once_a_node() {
    srun --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 --cpus-per-task=1 "$@"
}
if [[ -n $data ]]; then
    if [[ $STAGE == 1 ]]; then STAGE=${TMPDIR:-/tmp}; fi
    staged=${STAGE%/}/scaling-lab-$SLURM_JOB_ID
    once_a_node bash slurm/stage_data.sh "$data" "$staged" || fail "the data could not be copied to the nodes"
    arguments+=(--data-dir "$staged")
    export APPTAINER_BIND=${APPTAINER_BIND:+$APPTAINER_BIND,}$staged
fi

# scancel, and jobs that are more important than this one, send SIGTERM to the ranks and to this script. The ranks
# save; the script only takes note, so that it is there when they have ended.
ended_by_slurm=
trap 'ended_by_slurm=yes' TERM

echo "job $job: $tasks ranks on ${hosts//$'\n'/ }; they meet at $MASTER_ADDR:$MASTER_PORT"
status_before=$(cat "$folder/status.json" 2>/dev/null || true)
code=0
srun "${srun_options[@]}" "${profiler[@]}" "${python[@]}" "${launcher[@]}" "$CODE/main.py" "${arguments[@]}" || code=$?

if [[ -f slurm/system_records.sh ]]; then
    end_system_records "$folder" "$job"
fi
if [[ -n $data ]]; then
    once_a_node rm -rf "$staged" "$staged.start" "$staged.lock" || echo "run.sh: $staged may still lie on a node" >&2
fi

# Was it told to stop, and has it saved? Then it says so in status.json, under torchrun too, whose own code is 1.
status=$(cat "$folder/status.json" 2>/dev/null || true)
if [[ $status != "$status_before" && $status == *'"interrupted"'* ]]; then
    code=85
    # By the warning of the time limit, the only one that this script does not get: queue again.
    # (SIGTERM is not its warning, and sbatch --no-requeue wants no second start.)
    if [[ -z $ended_by_slurm && $status == *"SIGUSR1: saved at "* ]]; then
        if grep -qs 'Requeue=0' "$folder/slurm-$job/scontrol.txt"; then
            echo "job $job: saved before its time is up; submit it again with --run-id $run_id --resume auto"
            exit "$code"
        fi
        if ((restarts >= ${MAX_RESTARTS:-20})); then
            echo "job $job: saved before its time is up, for the ${restarts}th time: it does not queue again by itself." \
                "MAX_RESTARTS allows more; --run-id $run_id --resume auto goes on"
            exit "$code"
        fi
        echo "job $job: saved before its time is up; it queues again and goes on from there"
        scontrol requeue "$job" && exit "$code"
        echo "run.sh: the job could not be queued again: submit it again with --run-id $run_id --resume auto" >&2
    fi
fi

# The two links that Slurm needed are of no more use.
for stream in log err; do
    if [[ -L train-$SLURM_JOB_ID.$stream ]]; then rm -f "train-$SLURM_JOB_ID.$stream"; fi
done
exit "$code"
