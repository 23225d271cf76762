#!/usr/bin/env bash
#
# The baseline: one GPU, no wrapper. Its time for an epoch is T(1), what every speed-up is measured against.
#
#   sbatch slurm/baseline.sh [flags of main.py]
#
#SBATCH --job-name=baseline
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

exec ./run.sh --strategy none --scaling strong --global-batch-size 1024 "$@"
