#!/usr/bin/env bash
# Train on this machine: launch/local.sh [-n RANKS] [trainer arguments ...]. Installs what it needs the first time.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

ranks=8
arguments=()
while [ $# -gt 0 ]; do
  if [ "$1" = "-n" ]; then
    ranks="${2:-}"
    [[ "$ranks" =~ ^[1-9][0-9]*$ ]] || {
      echo "launch/local.sh: -n: given ${ranks:-nothing}, allowed: the number of ranks, 1 or more" >&2
      exit 2
    }
    shift 2
  else
    arguments+=("$1")
    shift
  fi
done
prepare_environment
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
exec "$venv/bin/torchrun" --standalone --nproc_per_node="$ranks" -m dfl_dist.train "${arguments[@]}"
