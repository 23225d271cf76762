#!/usr/bin/env bash
#
# Train on a cluster, or here:
#
#   sbatch run.sh                                 one node, four GPUs, the code in exercises/
#   sbatch run.sh --strategy fsdp --epochs 10     options after run.sh go to main.py
#   sbatch --ntasks-per-node=1 run.sh             one GPU; options before run.sh go to Slurm
#   sbatch --nodes=2 run.sh                       two nodes, eight GPUs
#   CODE=solutions sbatch run.sh                  the reference instead of your own code
#   ./run.sh --strategy ddp                       the same without Slurm, on this machine
#
# Then: squeue --me, and tail -f train.log
#
# Slurm reads the #SBATCH lines below; to bash they are comments. They only count above the first command.
# Account and partition differ from site to site: give them to sbatch, or set SBATCH_ACCOUNT and
# SBATCH_PARTITION once.
#
#SBATCH --job-name=scaling-lab
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=00:30:00
#SBATCH --output=train.log
#SBATCH --error=train.err

set -euo pipefail

fail() {
    echo "run.sh: $*" >&2
    exit 1
}

CODE=${CODE:-exercises}

# Slurm runs a copy of this script, in a folder of its own and under another name. There the folder to work in
# is the one that sbatch was typed in.
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [[ ! -f $HERE/run.sh && -n ${SLURM_SUBMIT_DIR:-} ]]; then
    HERE=$SLURM_SUBMIT_DIR
fi
cd "$HERE"
[[ -f $CODE/main.py ]] || fail "no $CODE/main.py in $HERE: submit from the folder that holds run.sh; CODE=solutions works in the repository only"

# The Python to use: the active one if it has torch, else the one in .venv beside this script. In a container
# (EDF=edf.toml) the image brings its own.
has_torch() {
    "$1" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' 2>/dev/null
}
if [[ -n ${EDF:-} ]]; then
    PYTHON=python
elif has_torch python; then
    PYTHON=python
elif has_torch .venv/bin/python; then
    PYTHON=.venv/bin/python
else
    fail "no Python with torch: activate your environment before sbatch, or make one in $HERE/.venv"
fi

# In a clone of the repository, the lab can be imported without being installed.
if [[ -d lab ]]; then
    export PYTHONPATH=$HERE${PYTHONPATH:+:$PYTHONPATH}
fi

# Write each line to the log at once: that is what makes tail -f useful.
export PYTHONUNBUFFERED=1

# ---- Without Slurm: torchrun starts the ranks ---------------------------------------------------------
#
# torchrun gives every process RANK, LOCAL_RANK and WORLD_SIZE, and MASTER_ADDR and MASTER_PORT to meet at.
if [[ -z ${SLURM_JOB_ID:-} ]]; then
    # Number of ranks: one for each GPU that torch sees, or two on the CPU. NPROC=3 ./run.sh starts three.
    NPROC=${NPROC:-$("$PYTHON" -c 'import torch; print(torch.cuda.device_count() or 2)')}
    # Share the cores among the ranks: with all cores for each of them, they would be in each other's way.
    cores=$(getconf _NPROCESSORS_ONLN)
    export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((cores > NPROC ? cores / NPROC : 1))}

    # The ranks meet at 127.0.0.1, because not every laptop can look up its own name.
    launcher=(-m torch.distributed.run --standalone --local-addr 127.0.0.1 --nproc-per-node "$NPROC")

    # Show the output and keep it, as Slurm does: train.log for what was printed, train.err for errors.
    # tee -i lives through Ctrl-C, so that the last lines of the ranks still arrive.
    {
        "$PYTHON" "${launcher[@]}" "$CODE/main.py" "$@" 2>&1 >&3 3>&- | tee -i train.err >&2
    } 3>&1 | tee -i train.log
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

# As many threads for each rank as it has cores. PyTorch would otherwise start one for every core of the node.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-${SLURM_CPUS_PER_TASK:-1}}

# When one rank fails, the others would wait for it until their timeout: end the job at once instead.
options=(--kill-on-bad-exit=1)
if [[ -n ${SLURM_CPUS_PER_TASK:-} ]]; then # srun does not take this one over from sbatch by itself
    options+=(--cpus-per-task="$SLURM_CPUS_PER_TASK")
fi
if [[ -n ${EDF:-} ]]; then # a container, on clusters with the container engine of CSCS: EDF=edf.toml sbatch run.sh
    options+=(--environment="$HERE/$EDF")
fi

# What the ranks print goes through srun to the files that Slurm opened for this script. main.py keeps a log of
# its own in the run's folder, and has to know if that is the same file.
JOB_STDOUT=$(readlink "/proc/$$/fd/1")
JOB_STDERR=$(readlink "/proc/$$/fd/2")
export JOB_STDOUT JOB_STDERR

echo "job $SLURM_JOB_ID: ${SLURM_NTASKS:-?} tasks on ${hosts//$'\n'/ }; they meet at $MASTER_ADDR:$MASTER_PORT"
exec srun "${options[@]}" "$PYTHON" "$CODE/main.py" "$@"
