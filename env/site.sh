# shellcheck shell=bash
#
# What is special at your site, in one place. Nothing here is needed on the practice cluster (make cluster).
#
# Load it before you submit, because sbatch reads its part from your shell:
#
#   source env/site.sh
#   sbatch run.sh
#
# run.sh loads it again inside the job, for the part below.

# ---- For sbatch: every option has a variable (man sbatch, INPUT ENVIRONMENT VARIABLES).
# export SBATCH_ACCOUNT=myproject
# export SBATCH_PARTITION=gpu
# export SBATCH_RESERVATION=course

# ---- For the job.
# Where PyTorch comes from; see the head of run.sh.
# export LAB_ENV=${LAB_ENV:-env/load_modules.sh}
#
# The network card of the nodes, where ranks on two nodes wait for each other at the start: `ip -brief address` on a
# node shows the names.
# export NCCL_SOCKET_IFNAME=hsn0 GLOO_SOCKET_IFNAME=hsn0
