#!/usr/bin/env bash
# Train on this machine: launch/local.sh [-n RANKS] [trainer arguments ...]. Installs what it needs the first time.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

prepare_environment
exec "$venv/bin/dfl-dist" launch "$@"
