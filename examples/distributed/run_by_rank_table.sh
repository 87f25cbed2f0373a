#!/usr/bin/env bash
# Runs the two ranks as plain processes that a rank table brings together. Variable: PYTHON; arguments go to each rank.
# The exit status is that of a rank that failed, if one did.
set -euo pipefail
folder=$(cd "$(dirname "$0")" && pwd)
# Two runs of this script at a time are two jobs, though they have one rank table.
export LITEHOUSE_JOB=${LITEHOUSE_JOB:-by-rank-table-$$}
ranks=()
for rank in 0 1; do
  "${PYTHON:-python3}" "$folder/by_rank_table.py" --model_path="$folder/Matmul$rank.mindir" \
    --device_id="$rank" --rank_id="$rank" --config_file="$folder/config_file.ini" "$@" &
  ranks+=($!)
done
status=0
for process in "${ranks[@]}"; do
  wait "$process" || status=$?
done
exit "$status"
