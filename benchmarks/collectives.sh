#!/bin/sh
# collectives.sh [FOLDER]: hetccl between CPU ranks against gloo and Open MPI, the whole table of docs/performance.md.
#
# Needs 'pip install hetccl[bench]' and an idle machine; takes about ten minutes on two cores. Writes a JSON file for each
# measurement to FOLDER (default: build/bench), then plots and the table, both of which plot.py makes.
set -eu
folder=${1:-build/bench}
mkdir -p "$folder"
here=$(dirname "$0")
python=${PYTHON:-.venv/bin/python}

measure() { # name, then the arguments of hetccl bench
  name=$1
  shift
  "$python" -m hetccl bench "$@" --json "$folder/$name.json" 2>/dev/null
}

measure all_reduce-2-shm all_reduce --sizes 4,1K,64K,1M,16M,256M --busy --peer gloo --peer openmpi
for op in all_gather reduce_scatter broadcast all_to_all; do
  measure "$op-2-shm" "$op" --sizes 4,64K,1M,16M,64M --peer gloo --peer openmpi
done
for op in all_reduce all_gather; do
  measure "$op-4-shm" "$op" --islands 2+2 --sizes 4,64K,1M,16M --peer gloo --peer openmpi
done
measure all_reduce-2-tcp all_reduce --wire tcp --sizes 4,64K,1M,16M,64M --peer gloo
"$python" "$here/plot.py" "$folder"
