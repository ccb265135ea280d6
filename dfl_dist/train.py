"""Train: `torchrun --nproc_per_node=8 -m dfl_dist.train [--config FILE] [--KEY VALUE ...]`.

Without torchrun one process hosts all the clients, for a debugger.
"""

import logging
import os
import sys
from typing import NoReturn

from dfl_dist import assemble, run_folder, runtime
from dfl_dist.arguments import parse
from dfl_dist.assemble import together
from dfl_dist.config import ConfigError, known
from dfl_dist.control import Control
from dfl_dist.evaluate import EvalSchedule, Evaluator
from dfl_dist.job import Job, make_schedule
from dfl_dist.layout import spread
from dfl_dist.rounds import Rounds, RunFaultError
from dfl_dist.runtime import StopSignal, World
from dfl_dist.waiting import PeerError

log = logging.getLogger(__name__)


def train(argv: list[str], world: World) -> None:
    """One run on this rank: settings, groups, data and model, rounds, results."""
    planned, built = assemble.lead(parse(argv), world) if world.rank == 0 else (None, None)
    runtime.connect(world)
    control = Control(rank=world.rank, world_size=world.size, timeout_s=runtime.STARTUP_TIMEOUT_S)
    job = Job.from_text(control.broadcast_text(planned.to_text() if planned else ""))
    config, folder = job.resolved, known(job.folder)
    layout = spread(known(config.num_clients), world.size, coordinator=config.rank0 == "coordinator")
    together(control, lambda: run_folder.check_seen(folder, job.start_id))
    dataset, model = together(control, lambda: built or assemble.build(config, world))
    backend = together(control, lambda: assemble.choose_backend(config, world, layout, control, model))
    transport = assemble.open_transport(config, layout, backend, model)
    clients = together(control, lambda: assemble.load_clients(job, layout.blocks[world.rank], dataset, model))
    exchange = assemble.make_exchange(job, layout, control, clients, transport)
    work = assemble.local_work(config)
    test = assemble.to_device(dataset.test_inputs, dataset.test_targets, model)
    schedule = together(control, lambda: make_schedule(config) if world.rank == 0 else None)
    coordinator = together(
        control, lambda: assemble.make_coordinator(job, layout, control, clients, exchange, work, backend, schedule)
    )
    stop = StopSignal().install()  # from here on; before, a signal simply ends the process
    rounds = Rounds(
        clients,
        model,
        work,
        control=control,
        exchange=exchange,
        overlap=config.overlap,
        coordinator=coordinator,
        evaluator=Evaluator(control, model, test, layout),
        eval_schedule=EvalSchedule(config.eval.every, config.eval.clients_every),
        checkpoints=assemble.checkpoints(job, model.size, layout),
        wish_to_stop=lambda: stop.received,
    )
    control.timeout_s = config.timeout_s
    try:
        result = rounds.run(job.rounds_done, config.rounds, drained=job.drained)
        if coordinator:
            run_folder.write_model(folder, model, result.mean)
            run_folder.mark_finished(folder, coordinator.next_line)
            coordinator.tell_end(result.scores)
    finally:
        if coordinator:
            coordinator.close()
    rounds.finish()


def main(argv: list[str] | None = None) -> int:
    """The command line: one line and exit code 2 for a user's mistake; everything else that fails names its rank."""
    argv = sys.argv[1:] if argv is None else argv
    code, world = 0, World()
    try:
        world = World.from_environment()
        runtime.set_up_logging(world.rank)
        if world.rank > 0 and {"-h", "--help"} & set(argv):
            return 0
        train(argv, world)
    except (ConfigError, RunFaultError) as error:  # all ranks know, and leave together
        if world.rank == 0:
            print(f"dfl_dist: {error}", file=sys.stderr, flush=True)
        code = 2 if isinstance(error, ConfigError) else 1
    except PeerError as error:
        log.error("%s", error)
        leave_at_once(1)
    except KeyboardInterrupt:
        leave_at_once(130)
    except Exception:
        log.exception("failed")
        leave_at_once(1)
    runtime.disconnect()
    return code


def leave_at_once(code: int) -> NoReturn:
    """Exit without a clean-up that would wait for ranks that are gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
