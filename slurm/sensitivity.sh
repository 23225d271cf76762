#!/usr/bin/env bash
#
# Sensitivity: does DDP's bucket size matter, and does it matter more when the gradients are half the size? A job
# array: Slurm starts this script once for each index, and the index chooses the pair.
#
#   sbatch slurm/sensitivity.sh                all eight
#   sbatch --array=2,3 slurm/sensitivity.sh    some of them; --array=0-7%2 runs at most two at a time
#
# A bucket can only matter where there is more than one: a model of many megabytes.
#
#SBATCH --job-name=sensitivity
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
#SBATCH --array=0-7

set -euo pipefail

buckets=(1 5 25 100) # MiB
precisions=(fp32 bf16)
index=${SLURM_ARRAY_TASK_ID:?this script is for a job array: sbatch slurm/sensitivity.sh, with --array=2 for one of its jobs}
bucket=${buckets[index / ${#precisions[@]}]}
precision=${precisions[index % ${#precisions[@]}]}
echo "index $index: --bucket-cap-mb $bucket --precision $precision"
exec ./run.sh --strategy ddp --model resnet18 --bucket-cap-mb "$bucket" --precision "$precision" "$@"
