# shellcheck shell=bash
#
# Load the modules that modules.txt names, and then the virtual environment in .venv if there is one. For run.sh:
#
#   LAB_ENV=env/load_modules.sh sbatch run.sh
#
# and on a login node: source env/load_modules.sh

load_modules() {
    local here list name names=()
    here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
    list=$here/modules.txt
    if ! command -v module >/dev/null; then
        echo "load_modules.sh: there is no module command here: use a virtual environment or a container" >&2
        return 1
    fi
    while read -r name _ || [[ -n $name ]]; do # the last line may have no end
        if [[ -n $name && $name != \#* ]]; then names+=("$name"); fi
    done <"$list"
    if ((${#names[@]} == 0)); then
        echo "load_modules.sh: $list names no module: write those of your cluster into it" >&2
        return 1
    fi
    module purge
    for name in "${names[@]}"; do
        module load "$name" || {
            echo "load_modules.sh: module load $name failed: correct that line of $list" >&2
            return 1
        }
    done
    if [[ -f $here/../.venv/bin/activate ]]; then
        # shellcheck source=/dev/null
        source "$here/../.venv/bin/activate"
    fi
}
load_modules
