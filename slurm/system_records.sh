#!/usr/bin/env bash
#
# Sourced by run.sh: what Slurm and the GPUs know of a job goes to the run's folder, in slurm-JOB/. A site without
# accounting, or a node without GPUs, leaves out its file; nothing here can end the job.
#
#   scontrol.txt       the job as it was asked for and placed, and what stood before sbatch
#   sacct.txt          time, memory and exit code of each step so far, divided by |; a job cannot see its own end:
#                      lab diagnose writes it again when the job has ended
#   gpus-NODE.csv      utilization, memory and power of each GPU, every few seconds
#   gpus.err           why there is none, where Slurm did not start what samples them

SAMPLE_EVERY=5 # seconds

begin_system_records() { # run folder, job
    local records=$1/slurm-$2 name
    mkdir -p "$records" || return 0
    if scontrol show job "$2" >"$records/scontrol.txt" 2>/dev/null; then
        for name in CODE LAUNCHER LAB_ENV; do
            if [[ -n ${!name:-} ]]; then echo "   $name=${!name}"; fi
        done >>"$records/scontrol.txt"
    else
        rm -f "$records/scontrol.txt"
    fi

    # A second step, on the same GPUs as the ranks and out of the same memory: with a share of its own, whichever of the
    # two comes later could be refused. It ends with the job.
    sampler=
    if command -v nvidia-smi >/dev/null; then
        # shellcheck disable=SC2016 # the host name is wanted on each node, not here
        env -u SLURM_GPUS_PER_TASK -u SLURM_TRES_PER_TASK -u SLURM_MEM_PER_CPU -u SLURM_MEM_PER_GPU \
            srun --overlap --mem=0 --ntasks="${SLURM_JOB_NUM_NODES:-1}" --ntasks-per-node=1 --cpus-per-task=1 --job-name=gpus \
            bash -c 'exec nvidia-smi --format=csv,nounits --loop="$1" --query-gpu="$2" >>"$0/gpus-$(hostname -s).csv"' \
            "$records" "$SAMPLE_EVERY" \
            timestamp,index,utilization.gpu,utilization.memory,memory.used,power.draw,temperature.gpu \
            >/dev/null 2>"$records/gpus.err" &
        sampler=$!
    fi
}

end_system_records() { # run folder, job
    local records=$1/slurm-$2 try
    if [[ -n ${sampler:-} ]]; then
        kill "$sampler" 2>/dev/null || true
        wait "$sampler" 2>/dev/null || true
        if compgen -G "$records/gpus-*.csv" >/dev/null; then rm -f "$records/gpus.err"; fi
    fi
    # Accounting hears of the end of a step some seconds late.
    for try in 1 2 3 4 5; do
        timeout 10 sacct --jobs="$2" --duplicates --parsable2 \
            --format=JobID,JobName,State,ExitCode,Start,End,Elapsed,NodeList,AllocTRES,MaxRSS,AveCPU,AveRSS \
            >"$records/sacct.txt" 2>/dev/null || { rm -f "$records/sacct.txt" && return 0; }
        if grep -q "^[0-9_]*\.[0-9][0-9]*|.*|RUNNING|" "$records/sacct.txt" && ((try < 5)); then sleep 1; else break; fi
    done
}
