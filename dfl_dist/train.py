"""Train: `torchrun --nproc_per_node=8 -m dfl_dist.train [--config FILE] [--KEY VALUE ...]`.

Without torchrun one process hosts all the clients, for a debugger. From a script of one's own, under torchrun too:
`dfl_dist.train({"rounds": 50}, model=…, data=…, on_round=…)`.
"""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from torch import nn

from dfl_dist import assemble, launched, run_folder, runtime
from dfl_dist.arguments import from_script, parse
from dfl_dist.build import Own
from dfl_dist.config import Config, ConfigError, known
from dfl_dist.control import Control
from dfl_dist.evaluate import EvalSchedule, Evaluator
from dfl_dist.job import Job, make_schedule
from dfl_dist.launched import Launcher
from dfl_dist.layout import spread
from dfl_dist.progress import tell_report
from dfl_dist.rounds import Rounds, RunFaultError
from dfl_dist.runtime import StopSignal, World
from dfl_dist.start import lead, load_alike, together
from dfl_dist.waiting import PeerError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """How a run ended: its folder, the rounds it has done, the scores of the mean model."""

    folder: Path
    rounds: int
    scores: dict[str, float]
    finished: bool  # whether these were all the rounds that were asked for


def run(
    given: Callable[[], Mapping[str, Any]],
    world: World,
    own: Own,
    *,
    heard_by_all: bool,
    on_folder: Callable[[Path], None] = lambda folder: None,
) -> Result:
    """One run on this rank: settings, which rank 0 alone reads, groups, data and model, rounds, results.

    What rank 0 refuses it refuses before there is any group, and ends the job, unless all ranks are to hear it.
    """
    planned, built, refused = None, None, None
    try:
        planned, built = lead(given(), world, own) if world.rank == 0 else (None, None)
    except ConfigError as error:
        if not heard_by_all:
            raise
        refused = str(error)
    runtime.connect(world)
    control = Control(rank=world.rank, world_size=world.size, timeout_s=runtime.STARTUP_TIMEOUT_S)
    if heard_by_all and (problem := control.agree(refused, "plan the run")):
        raise ConfigError(problem)
    job = Job.from_text(control.broadcast_text(planned.to_text() if planned else "", "what to run"))
    config, folder = job.resolved, known(job.folder)
    on_folder(folder)
    control.timeout_s = max(runtime.STARTUP_TIMEOUT_S, config.timeout_s)
    layout = spread(known(config.num_clients), world.size, coordinator=config.rank0 == "coordinator")
    together(control, lambda: run_folder.check_seen(folder, job.start_id))
    model, clients, test = load_alike(control, world, job, layout.blocks[world.rank], own, built)
    del built  # a rank keeps its own clients' samples only
    backend = together(control, lambda: assemble.choose_backend(config, world, layout, control, model))
    transport = assemble.open_transport(config, layout, backend, model)
    exchange = assemble.make_exchange(job, layout, control, clients, transport)
    work = assemble.local_work(config)
    schedule = together(control, lambda: make_schedule(config) if world.rank == 0 else None)
    coordinator = together(
        control,
        lambda: assemble.make_coordinator(job, layout, control, clients, exchange, work, backend, schedule, own),
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
    if coordinator and config.report:
        tell_report(folder)
    return Result(folder, rounds.done, result.scores, finished=rounds.done == config.rounds)


def train(
    config: Config | Mapping[str, Any] | str | Path | None = None,
    *,
    model: Callable[[], nn.Module] | None = None,
    data: Callable[[], Any] | None = None,
    on_round: Callable[[dict[str, Any]], None] | None = None,
) -> Result:
    """The library call, made by every rank: `config` is a mapping, nested or with dotted keys, or a YAML file.

    `model` returns a module, `data` the arrays train_inputs, train_targets, test_inputs, test_targets; rank 0 calls
    `on_round` with the metrics of each round. A user's mistake is a ConfigError, on all ranks.
    """
    world = World.from_environment()
    if not logging.getLogger().hasHandlers():
        runtime.set_up_logging(world.rank)
    runtime.check_unconnected()
    try:
        with runtime.signals_restored():
            return run(lambda: from_script(config), world, Own(model, data, on_round), heard_by_all=True)
    finally:
        runtime.disconnect()


def main(argv: list[str] | None = None) -> int:
    """The command line: one line and exit code 2 for a user's mistake; everything else that fails names its rank."""
    argv = sys.argv[1:] if argv is None else argv
    code, world, launcher = 0, World(), Launcher()
    try:
        world = World.from_environment()
        launcher = Launcher.from_environment(world.local_rank)
        runtime.set_up_logging(world.rank)
        if world.rank > 0 and {"-h", "--help"} & set(argv):
            return 0
        result = run(lambda: parse(argv), world, Own(), heard_by_all=launcher.is_there, on_folder=launcher.tell_folder)
        launcher.tell_ending(launched.FINISHED if result.finished else launched.STOPPED)
    except (ConfigError, RunFaultError) as error:  # all ranks know, and leave together
        if world.rank == 0:
            print(f"dfl_dist: {error}", file=sys.stderr, flush=True)
        ending = launched.REFUSED if isinstance(error, ConfigError) else launched.FAILED
        launcher.tell_ending(ending)
        code = 0 if launcher.is_there else launched.EXIT_CODES[ending]
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


class Callable_(ModuleType):  # noqa: N801
    """Lets `dfl_dist.train(…)` be the library call though `dfl_dist.train` is this module."""

    __call__ = staticmethod(train)


sys.modules[__name__].__class__ = Callable_

if __name__ == "__main__":
    sys.exit(main())
