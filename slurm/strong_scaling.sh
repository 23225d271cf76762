#!/usr/bin/env bash
#
# Strong scaling: the same work on more GPUs. The global batch stays, so each GPU gets less of it.
#
#   for n in 1 2 4; do sbatch --nodes=$n slurm/strong_scaling.sh; done
#
# Efficiency is T(1) / (N T(N)), with T(1) from slurm/baseline.sh.
#
#SBATCH --job-name=strong
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

exec ./run.sh --strategy ddp --scaling strong --global-batch-size 1024 "$@"
