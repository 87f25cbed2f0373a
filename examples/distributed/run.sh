#!/usr/bin/env bash
# Runs the two ranks with mpirun (Open MPI, MPICH). Variables: PYTHON, MPIRUN, RANK_SIZE; arguments go to main.py.
set -euo pipefail
folder=$(cd "$(dirname "$0")" && pwd)
exec "${MPIRUN:-mpirun}" -n "${RANK_SIZE:-2}" "${PYTHON:-python3}" "$folder/main.py" --model_path="$folder/Matmul.mindir" "$@"
