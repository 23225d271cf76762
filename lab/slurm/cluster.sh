#!/usr/bin/env bash
# A practice cluster: a real Slurm of two small nodes on this machine (Linux, root), in namespaces of its own.
#
#   cluster.sh run [CMD...]         start it, run CMD (or a shell) on its login node, and take everything down
#   cluster.sh exec DIR CMD...      run CMD on the login node of a cluster that runs; DIR is its $CLUSTER_DIR
#   cluster.sh on DIR NODE CMD...   run CMD on one of its nodes, like ssh
#
# Its files are in $CLUSTER_DIR, a new folder in /tmp that is gone afterwards. The nodes share this machine's file
# system; $LOCAL_SCRATCH is a folder that each node has for itself. CPUs, memory and GPUs are what slurm.conf says,
# not what the machine has: good for practice, not for measurements.
set -euo pipefail

NODES=2 CPUS=16 MEMORY=80000 GPUS=4 # of each node; memory in MB
NET=10.77.0                         # addresses in a network of its own
SELF=$(readlink -f "$0")
PATH=$PATH:/usr/sbin:/sbin
PACKAGES="slurm-wlm munge slurmdbd mariadb-server-core iproute2 util-linux procps" # Debian's names

fail() {
    echo "practice cluster: $*" >&2
    exit 1
}

wait_for() { # what, command...: until it succeeds
    local what=$1 end=$((SECONDS + 180)) # a busy machine is slow to start two nodes
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || fail "$what did not start: $(tail -n 3 "$CLUSTER_DIR"/log/* 2>/dev/null)"
        sleep 0.05
    done
}

require() {
    [[ $(uname) == Linux ]] || fail "it needs Linux; use a Linux machine, or a virtual one"
    local program lab
    if ((EUID != 0)); then # sudo has a PATH of its own, and finds no lab in it
        lab=$(command -v lab) &&
            fail "it needs root: type  sudo $(printf %q "$lab") cluster  or, in the repository,  sudo make cluster"
        fail "it needs root: type  sudo make cluster  in the repository"
    fi
    for program in slurmctld slurmd slurmdbd munged mariadbd ip nsenter; do
        command -v "$program" >/dev/null ||
            fail "$program is not installed; type  apt-get install $PACKAGES  (Debian or Ubuntu), or install Slurm, munge, MariaDB and iproute2"
    done
    unshare --net --uts --mount --pid --fork -- sh -c 'mount -t proc proc /proc && ip link add bridge0 type bridge' 2>/dev/null ||
        fail "this machine allows no namespaces, as most containers do not; use a (virtual) machine, or a container started with --privileged"
}

# ---- the configuration --------------------------------------------------------------------------------

# A real cluster never gives a number twice. This one begins after the jobs that have left something in this folder:
# a second job 1 would find the run's folder of the first, and be refused.
first_job() {
    { find results -maxdepth 4 -name 'slurm-[0-9]*' || true; find . -maxdepth 1 -name 'train-[0-9]*.*' || true; } 2>/dev/null |
        sed -E 's/.*(slurm|train)-0*([0-9]{1,8}).*/\2/' | sort -n | tail -n 1 | awk '{ last = $1 } END { print last + 1 }'
}

write_config() {
    local d=$CLUSTER_DIR i
    mkdir -p "$d"/{etc,log,state,db,munge,scratch,nodes}
    (umask 077 && head -c 128 /dev/urandom >"$d/munge.key")

    # The second line of a node: torchrun asks for the name of its IPv4 address in IPv6 form.
    {
        printf '127.0.0.1 localhost\n%s.1 login\n' "$NET"
        for ((i = 1; i <= NODES; i++)); do
            printf '%s.%d node%d\n::ffff:%s.%d node%d\n' "$NET" $((10 + i)) $i "$NET" $((10 + i)) $i
        done
    } >"$d/etc/hosts"

    # Devices that Slurm takes for GPUs. Where the machine has real ones, jobs are not shown those: see run().
    local flag=nvidia_gpu_env
    if [[ -e /dev/nvidia0 ]]; then flag=no_gpu_env; fi
    for ((i = 0; i < GPUS; i++)); do mknod "$d/gpu$i" c 1 3; done
    echo "NodeName=node[1-$NODES] Name=gpu File=$d/gpu[0-$((GPUS - 1))] Flags=$flag" >"$d/etc/gres.conf"

    cat >"$d/etc/slurm.conf" <<END
ClusterName=practice
SlurmctldHost=login($NET.1)
SlurmUser=root
AuthType=auth/munge
# A job goes back to the queue for as long as its credential lives: 120 s by default.
AuthInfo=cred_expire=10
StateSaveLocation=$d/state
SlurmdSpoolDir=$d/nodes/%n/spool
SlurmctldPidFile=$d/slurmctld.pid
SlurmdPidFile=$d/nodes/%n/slurmd.pid
SlurmctldLogFile=$d/log/slurmctld.log
SlurmdLogFile=$d/log/slurmd-%n.log
MailProg=/bin/true
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
PropagateResourceLimits=NONE
# A node may claim more than the machine has, and comes back by itself.
SlurmdParameters=config_overrides
ReturnToService=2
# Seconds between SIGTERM and SIGKILL; until a silent node counts as down.
KillWait=8
SlurmdTimeout=10
MinJobAge=3600
FirstJobId=$(first_job)
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=2000
GresTypes=gpu
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=login
AccountingStorageTRES=gres/gpu
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=2
JobAcctGatherParams=OverMemoryKill
NodeName=node[1-$NODES] CPUs=$CPUS RealMemory=$MEMORY Gres=gpu:$GPUS State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES DefaultTime=10 MaxTime=60 State=UP
END

    (umask 077 && cat >"$d/etc/slurmdbd.conf") <<END
AuthType=auth/munge
DbdHost=login
SlurmUser=root
LogFile=$d/log/slurmdbd.log
PidFile=$d/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StorageUser=root
StorageLoc=slurm
END
}

# ---- inside: process 1 of the cluster, whose end ends every daemon and every job ----------------------

start_accounting() {
    local d=$CLUSTER_DIR sql=/usr/share/mysql
    local options=(--no-defaults --user=root --datadir="$d/db" --innodb-log-file-size=8M)
    { printf 'create database mysql;\nuse mysql;\n' && cat "$sql"/mysql_{system_tables,performance_tables,system_tables_data}.sql; } |
        mariadbd "${options[@]}" --bootstrap >"$d/log/mariadb.log" 2>&1
    mariadbd "${options[@]}" --skip-grant-tables --skip-name-resolve --bind-address=127.0.0.1 --skip-networking=0 \
        --socket="$d/db.sock" --pid-file="$d/db.pid" --innodb-buffer-pool-size=64M \
        --innodb-flush-log-at-trx-commit=0 --innodb-lock-wait-timeout=900 >>"$d/log/mariadb.log" 2>&1 &
    wait_for mariadbd bash -c ': </dev/tcp/127.0.0.1/3306'
    slurmdbd
    wait_for slurmdbd sacctmgr -n show cluster
    sacctmgr -i add cluster practice >/dev/null
}

start_node() { # number
    local name=node$1 pid
    mkdir -p "$CLUSTER_DIR/nodes/$name"/{spool,scratch}
    unshare --net --uts --mount -- bash "$SELF" _node "$1" >>"$CLUSTER_DIR/log/$name.out" 2>&1 &
    pid=$!
    echo "$pid" >"$CLUSTER_DIR/nodes/$name/pid"
    wait_for "the network of $name" bash -c "[[ \$(readlink /proc/$pid/ns/mnt) != \$(readlink /proc/self/ns/mnt) ]]"
    ip link add "veth$1" type veth peer name eth0 netns "$pid"
    ip link set "veth$1" master bridge0 up
}

node() { # number; in a network, host name and mounts of its own
    local folder=$CLUSTER_DIR/nodes/node$1
    hostname "node$1"
    ip link set lo up
    wait_for eth0 ip link show eth0
    ip addr add "$NET.$((10 + $1))/24" dev eth0
    ip link set eth0 up
    mount -t tmpfs -o mode=1777 tmpfs /dev/shm
    mount --bind "$folder/scratch" "$CLUSTER_DIR/scratch"
    exec slurmd -D -N "node$1"
}

pod() { # command...
    local d=$CLUSTER_DIR i pid
    trap 'fail "it did not start: $(tail -n 3 "$CLUSTER_DIR"/log/*)"' ERR
    read -r pid _ </proc/self/stat # /proc is still the machine's: this is our number outside
    echo "$pid" >"$d/pid"
    mount -t proc proc /proc
    hostname login
    mount --bind "$d/etc/hosts" /etc/hosts
    mkdir -p /etc/slurm /run/munge
    mount --bind "$d/etc" /etc/slurm
    mount --bind "$d/munge" /run/munge
    ip link set lo up
    ip link add bridge0 type bridge
    ip addr add "$NET.1/24" dev bridge0
    ip link set bridge0 up
    munged --key-file="$d/munge.key" --pid-file="$d/munged.pid" --log-file="$d/log/munged.log" --seed-file="$d/munge.seed"
    start_accounting
    slurmctld
    for ((i = 1; i <= NODES; i++)); do start_node "$i"; done
    wait_for "the nodes" bash -c "[[ \$(sinfo -h -t idle -o %D) == $NODES ]]"
    trap - ERR
    "$@"
}

run() { # command...
    local command=("$@") status=0
    require
    CLUSTER_DIR=$(mktemp -d /tmp/practice-cluster.XXXXXX)
    outer=
    trap 'if [[ -n $outer ]]; then kill -KILL "$outer" 2>/dev/null || true; wait "$outer" 2>/dev/null || true; fi
        rm -rf "$CLUSTER_DIR"' EXIT
    trap 'exit 1' HUP INT TERM
    export CLUSTER_DIR LOCAL_SCRATCH=$CLUSTER_DIR/scratch
    export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} # run.sh would start a thread for each CPU that is pretended
    unset SLURM_CONF
    if [[ -e /dev/nvidia0 ]]; then export CUDA_VISIBLE_DEVICES=; fi
    write_config
    if ((${#command[@]} == 0)); then
        cat >"$CLUSTER_DIR/bashrc" <<END
if [[ -f ~/.bashrc ]]; then source ~/.bashrc; fi
PATH=$(printf %q "$PATH")
PS1='(practice cluster) \w\\$ '
cat <<'WELCOME'
A practice cluster of $NODES nodes, each with $CPUS CPUs and $GPUS GPUs. The GPUs are pretended: your ranks train on this
machine's CPU. Try  sinfo  and  srun --nodes=2 hostname ; docs/cluster.md goes on from there.
Ctrl-D, or exit, ends the cluster with all its jobs.
WELCOME
END
        # shellcheck disable=SC2016 # expanded inside
        # The exit code of a shell is that of its last command, which says nothing here.
        command=(bash -c 'bash --rcfile "$CLUSTER_DIR/bashrc" -i; exit 0')
    fi
    # If this script is killed, so is the cluster. What is mounted inside cannot be seen outside. In the background, so
    # that a signal ends this script at once; Ctrl-C is still for what runs inside.
    setpriv --pdeathsig KILL env --default-signal=INT,QUIT unshare --net --uts --mount --pid --fork --kill-child -- \
        bash "$SELF" _pod "${command[@]}" <&0 &
    outer=$!
    wait "$outer" || status=$?
    exit "$status"
}

case ${1:-} in
run) shift && run "$@" ;;
exec)
    export CLUSTER_DIR=$2
    shift 2
    exec nsenter -t "$(cat "$CLUSTER_DIR/pid")" --net --uts --mount --pid --wd="$PWD" -- "$@"
    ;;
on)
    export CLUSTER_DIR=$2
    node_pid=$(cat "$CLUSTER_DIR/nodes/$3/pid")
    shift 3
    exec bash "$SELF" exec "$CLUSTER_DIR" nsenter -t "$node_pid" --net --uts --mount --wd="$PWD" -- "$@"
    ;;
_pod) shift && pod "$@" ;;
_node) node "$2" ;;
*) sed -n '2,10s/^# \{0,1\}//p' "$SELF" && exit 2 ;;
esac
