#!/usr/bin/env bash
# Train on several hosts: the same command on each of them, but for the host's own number.
#   launch/multi_node.sh --head ADDRESS --hosts N --host K [-n RANKS] [--port P] [trainer arguments ...]
# Host 0 is the head. All hosts need this folder, or a clone of it, and must see the run folder (runs/ or --out).
# With --doctor instead of trainer arguments it looks at the hosts and at what is between them.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

[[ " $* " == *" --hosts"[\ =]* ]] || {
  echo "launch/multi_node.sh: --hosts: given nothing, allowed: --head ADDRESS --hosts N --host K" >&2
  exit 2
}
prepare_environment
exec "$venv/bin/dfl-dist" launch "$@"
