#!/usr/bin/env bash
#
# Profile with Nsight Systems: a timeline of what CPU, GPU and NCCL do, on every rank.
#
#   sbatch slurm/profile_nsys.sh [flags of main.py]
#
# The files are rank-N.nsys-rep in the run's folder: open them in nsys-ui on your own machine. One short epoch is
# plenty; a timeline of minutes is too large to look at. The row NVTX shows data, forward, backward and optimizer.
#
#SBATCH --job-name=nsys
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=4
#SBATCH --time=00:30:00
#SBATCH --output=train-%j.log
#SBATCH --error=train-%j.err
#SBATCH --signal=USR1@60
#SBATCH --requeue
#SBATCH --open-mode=append

set -euo pipefail

export PROFILER='nsys profile --trace=cuda,nvtx,osrt --sample=none --force-overwrite=true --output=%q{RUN_FOLDER}/rank-%q{SLURM_PROCID}'
exec ./run.sh --epochs 1 --no-checkpoints --nvtx "$@"
