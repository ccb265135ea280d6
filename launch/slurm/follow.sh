# Sourced by the scripts beside this file: `follow COMMAND ...` runs the job's work in the background. When SLURM says
# with USR1 that the time is nearly up, it calls `stop`, and waits. USR1 itself never reaches the work: torchrun would
# die of it and leave its ranks behind. Afterwards $code is the exit code, and $stopped is 1 if the time was up.

code=0 stopped=0 work=

time_is_up() {
  echo "launch/slurm: the time is nearly up, stopping after the current round" >&2
  stopped=1
  stop
}

follow() {
  trap time_is_up USR1
  "$@" &
  work=$!
  while true; do
    code=0
    wait "$work" || code=$? # a signal ends the wait, not the work
    kill -0 "$work" 2>/dev/null || break
  done
}

# Put this very job into the queue again; it goes on where it stopped.
requeue() {
  echo "launch/slurm: job $SLURM_JOB_ID goes into the queue again" >&2
  scontrol requeue "$SLURM_JOB_ID"
}
