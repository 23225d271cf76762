#!/usr/bin/env bash
#
# Profile with Nsight Compute: why is one kernel as fast as it is?
#
#   sbatch slurm/profile_ncu.sh [flags of main.py]
#
# ncu runs each kernel several times, one metric after the other. With NCCL's kernels, which wait for other ranks,
# that never ends: so one GPU, without a wrapper, and twenty kernels after the first two hundred. The file is
# rank-0.ncu-rep in the run's folder: open it in ncu-ui. Some sites let only certain jobs read the counters
# (ERR_NVGPUCTRPERM): ask them.
#
#SBATCH --job-name=ncu
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=1
#SBATCH --cpus-per-task=4
#SBATCH --time=00:30:00
#SBATCH --output=train-%j.log
#SBATCH --error=train-%j.err
#SBATCH --signal=USR1@60
#SBATCH --requeue
#SBATCH --open-mode=append

set -euo pipefail

export PROFILER='ncu --launch-skip 200 --launch-count 20 --set basic --force-overwrite --export %q{RUN_FOLDER}/rank-%q{SLURM_PROCID}'
exec ./run.sh --strategy none --epochs 1 --no-checkpoints "$@"
