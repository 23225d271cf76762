#!/usr/bin/env bash
#
# Copy a folder to this node's own disk: stage_data.sh FROM TO. run.sh with STAGE starts it once on each node.

set -euo pipefail

from=$1 to=$2 node=$(hostname -s)
fail() {
    echo "run.sh: STAGE: $*" >&2
    exit 1
}

mkdir -p "${to%/*}" 2>/dev/null || true
[[ -d ${to%/*} && -w ${to%/*} ]] || fail "$node cannot write to ${to%/*}: STAGE=DIR names another folder"

# Nodes of a practice cluster are one machine with one disk: the first of them copies.
exec 9>"$to.lock"
flock 9
start=${SLURM_RESTART_COUNT:-0}
if [[ $(cat "$to.start" 2>/dev/null) == "$start" ]]; then
    echo "$node: $from lies in $to already"
    exit
fi

rm -rf "$to" # of this job's earlier start, before Slurm started it again
needed=$(du --summarize --block-size=1M "$from" | cut --fields=1)
free=$(df --output=avail --block-size=1M "${to%/*}" | tail --lines=1)
((needed <= free)) || fail "$from has $needed MiB, and ${to%/*} on $node has $((free)) MiB left: STAGE=DIR names another folder"

mkdir "$to"
tar --directory="$from" --create . | tar --directory="$to" --extract || fail "$node could not copy $from"
echo "$start" >"$to.start"
echo "$node: $needed MiB of $from copied to $to in $SECONDS s"
