# Sourced by the other scripts: makes .venv beside the code and installs the project into it, once for each change of
# what it needs; beside no code, they take the dfl-dist in PATH. Usage: prepare_environment [EXTRA]; afterwards $venv/bin
# has everything.

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
venv="$root/.venv"

# Whether what is wanted was installed; without an extra, an installation with one is as good.
is_installed() {
  if [ -n "$1" ]; then grep -qsx "$2" "$venv/.installed-$1"; else grep -qsx "$2" "$venv"/.installed*; fi
}

# In a copy of these scripts, beside no code: what is installed already.
find_environment() {
  local found
  found="$(command -v dfl-dist)" || {
    echo "launch: no dfl-dist in PATH; activate the environment that it was installed into" >&2
    exit 2
  }
  venv="$(dirname "$(dirname "$found")")"
}

prepare_environment() {
  local extra="${1:-}" python="${PYTHON:-python3}" wanted
  [ -f "$root/setup.cfg" ] || {
    find_environment
    return 0
  }
  wanted="$(cat "$root/setup.cfg" "$root/pyproject.toml" "$root/constraints.txt" | cksum)"
  ! is_installed "$extra" "$wanted" || return 0
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
    echo "launch: $python is $("$python" --version 2>&1), needed: Python 3.10 or newer (set PYTHON to one)" >&2
    exit 2
  }
  # Hosts that share this folder may come here at the same time: one installs, the others wait for it.
  mkdir -p "$venv"
  exec 9>"$venv/.lock"
  ! command -v flock >/dev/null || flock --timeout 1800 9
  if ! is_installed "$extra" "$wanted"; then
    echo "launch: installing into ${venv#"$PWD"/} (once)" >&2
    [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
    local quiet=--quiet
    [ ! -t 2 ] || quiet=  # somebody watches
    "$venv/bin/python" -m pip install $quiet --disable-pip-version-check -c "$root/constraints.txt" -e "$root${extra:+[$extra]}"
    echo "$wanted" >"$venv/.installed${extra:+-$extra}"
  fi
  exec 9>&-
}
