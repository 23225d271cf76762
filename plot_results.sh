#!/usr/bin/env bash
#
# Section 7: collect the results of a sweep, draw the figures, and open them where there is a screen.
#
#   ./plot_results.sh                  the runs in results/
#   ./plot_results.sh results/demo     those of another folder

set -euo pipefail

# Work in the caller's folder, as the other scripts do; the programs are beside this one.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
results=${1:-results}

# The active Python if it can draw, else the one in .venv beside this script.
can_draw() {
    "$1" -c 'import sys; from importlib.util import find_spec; sys.exit(not find_spec("matplotlib") or not find_spec("pandas"))' \
        2>/dev/null
}
if can_draw python; then
    python=python
elif can_draw "$here/.venv/bin/python"; then
    python=$here/.venv/bin/python
else
    echo "plot_results.sh: no Python with matplotlib and pandas: activate your environment, or make one in $here/.venv" >&2
    exit 1
fi

"$python" "$here/collect_results.py" "$results"
"$python" "$here/plot_results.py" "$results/results.csv"

if [[ $(uname) == Darwin ]] && command -v open >/dev/null; then
    viewer=open
elif [[ -n ${DISPLAY:-}${WAYLAND_DISPLAY:-} ]] && command -v xdg-open >/dev/null; then
    viewer=xdg-open
else
    exit 0 # no screen, as on a login node: plot_results.py has said where the figures are
fi
for figure in "$results"/figures/*.png "$results"/figures/*/*.png; do # those of a second setting have a folder
    [[ -e $figure ]] || continue
    "$viewer" "$figure" >/dev/null 2>&1 || echo "plot_results.sh: $viewer could not show $figure" >&2
done
