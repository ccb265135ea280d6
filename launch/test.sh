#!/usr/bin/env bash
# Run the tests: launch/test.sh [pytest arguments ...]. Installs what they need the first time. Two files of tests run at
# the same time; without arguments, all that need nothing special and little time. See tests/README.md.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

[ -d "$root/tests" ] || {
  echo "launch/test.sh: the tests are in the project's repository, not in what pip installs" >&2
  exit 2
}
prepare_environment test
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
cd "$root"
default="not slow and not cluster and not browser and not real_data"
exec "$venv/bin/python" -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "$default" "$@"
