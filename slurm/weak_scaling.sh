#!/usr/bin/env bash
#
# Weak scaling: more work on more GPUs. The batch of each GPU stays, so the global batch grows, and with it the
# learning rate.
#
#   for n in 1 2 4; do sbatch --nodes=$n slurm/weak_scaling.sh; done
#
# Efficiency is images/s on N GPUs / (N times those on one GPU at the same batch: --nodes=1 --ntasks-per-node=1).
#
#SBATCH --job-name=weak
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

exec ./run.sh --strategy ddp --scaling weak --per-device-batch-size 256 "$@"
