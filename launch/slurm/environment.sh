# THE PLACE FOR WHAT YOUR SITE NEEDS. The scripts beside this file source it on the first node of a job, in the folder
# that the job was submitted from; all other nodes get the environment that it leaves. For instance:
#   module load python/3.11 cuda
#   export GLOO_SOCKET_IFNAME=ib0 NCCL_SOCKET_IFNAME=ib0    # where the way to the first node is not the one to take
#   export DFL_HEAD=10.0.0.7                                # where node names are not host names
# DFL_ENVIRONMENT=FILE in the environment of sbatch names another file instead of this one.

export PATH="$PWD/.venv/bin:$PATH" # made by ./launch/local.sh, run once where there is a network
command -v dfl-dist >/dev/null || {
  echo "launch/slurm: no dfl-dist in .venv/bin or PATH; see launch/slurm/environment.sh" >&2
  exit 2
}
