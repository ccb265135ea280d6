#!/usr/bin/env bash
# Run the tests: launch/test.sh [pytest arguments ...]. Installs what they need the first time.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

prepare_environment test
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
cd "$root"
exec "$venv/bin/python" -m pytest "$@"
