"""Dividing the training set over the clients: every sample is used once, sizes differ by at most one.

All of them are called as `divide(targets, num_clients, rng, alpha=…, classes_per_client=…)` and return each client's
indices into the training set; the same generator gives the same partition. A user's own division (`read`) may have any
sizes.
"""

import zipfile
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dfl_dist.errors import ConfigError, one_line, refusal
from dfl_dist.text import count

Partition = list[np.ndarray]
TRIES, CLIENTS_TRIED = 10, 1000  # label shards: the best of this many tries, fewer with many clients


def shard_sizes(num_samples: int, num_clients: int) -> list[int]:
    """As equal as they can be; the first ones get one more."""
    if num_clients > num_samples:
        raise refusal("num_clients", num_clients, f"at most {num_samples}, the number of training samples")
    return [num_samples // num_clients + (client < num_samples % num_clients) for client in range(num_clients)]


def iid(
    targets: np.ndarray, num_clients: int, rng: np.random.Generator, *, alpha: float, classes_per_client: int
) -> Partition:
    """A random division, whatever the classes."""
    sizes = shard_sizes(len(targets), num_clients)
    return np.split(rng.permutation(len(targets)), np.cumsum(sizes)[:-1])


def dirichlet(
    targets: np.ndarray, num_clients: int, rng: np.random.Generator, *, alpha: float, classes_per_client: int
) -> Partition:
    """Each client wants classes in proportions drawn from Dirichlet(alpha).

    The places of all clients are filled in random order, each with a sample of a class that its client wants and that
    is still there; when none is left, of any class in proportion to what remains. So no client is favoured for its
    number, and it never stalls.
    """
    num_classes = int(targets.max()) + 1
    sizes = shard_sizes(len(targets), num_clients)
    wanted = rng.dirichlet(np.full(num_classes, alpha), size=num_clients)
    pools = [rng.permutation(np.flatnonzero(targets == label)).tolist() for label in range(num_classes)]
    left = np.array([len(pool) for pool in pools])
    places = rng.permutation(np.repeat(np.arange(num_clients), sizes))
    found: list[list[int]] = [[] for _ in range(num_clients)]
    chances: dict[int, tuple[list[float], int]] = {}  # of each client: they hold until a class runs out
    for client, draw in zip(places.tolist(), rng.random(len(places)).tolist(), strict=True):
        if client not in chances:
            chances[client] = stack(np.where(left > 0, wanted[client], 0.0))
        bounds, last = chances[client]
        if not bounds[-1] > 0:
            bounds, last = stack(left)
        label = min(bisect_right(bounds, draw * bounds[-1]), last)  # draw * total may round up to the total
        found[client].append(pools[label].pop())
        left[label] -= 1
        if not pools[label]:
            chances.clear()
    return [np.array(shard, dtype=np.int64) for shard in found]


def stack(chances: np.ndarray) -> tuple[list[float], int]:
    """The classes' chances on top of one another, and the last class that has any."""
    return np.cumsum(chances).tolist(), int(chances.nonzero()[0].max(initial=0))


def shards(
    targets: np.ndarray, num_clients: int, rng: np.random.Generator, *, alpha: float, classes_per_client: int
) -> Partition:
    """Label shards as in McMahan et al.: a client's shard is made of pieces of `classes_per_client` different classes.

    The pieces are about equally large; where the classes do not divide evenly, they grow and shrink until they fit.
    Where that cannot be, clients have more classes: none has if there are at most
    clients · (classes_per_client − 1) + 1 classes, else fewer clients than there are classes. They have less where
    samples, or those of a class, do not go round.
    """
    class_sizes = np.bincount(targets)
    num_classes = len(class_sizes)
    if not 1 <= classes_per_client <= num_classes:
        allowed = f"1 to {num_classes}, the number of classes"
        raise refusal("data.classes_per_client", classes_per_client, allowed)
    shard_sizes(len(targets), num_clients)  # refuses too many clients
    amounts = rng.permutation(share_out(class_sizes, num_clients, classes_per_client, rng))
    order = rng.permutation(len(targets))
    samples = order[np.argsort(targets[order], kind="stable")]  # class by class
    owners = np.repeat(np.tile(np.arange(num_clients), num_classes), amounts.T.reshape(-1))
    return np.split(samples[np.argsort(owners, kind="stable")], np.cumsum(amounts.sum(axis=1))[:-1])


def share_out(class_sizes: np.ndarray, num_clients: int, most: int, rng: np.random.Generator) -> np.ndarray:
    """How many samples of each class each client gets, see `shards`: [clients, classes]."""
    # The larger shards are spread among the others, so that classes that divide evenly fill their clients' shards.
    sizes = np.diff(np.arange(num_clients + 1) * class_sizes.sum() // num_clients)
    present = int(np.count_nonzero(class_sizes))
    found = []
    for _ in range(max(1, min(TRIES, CLIENTS_TRIED // num_clients))):
        amounts = fill(deal(class_sizes, num_clients, min(most, present, int(sizes.min())), rng), class_sizes, sizes)
        trade(amounts, most)
        found.append(amounts)
    best = min(found, key=lambda amounts: badness(amounts, most))
    if surplus(best, most).any() and present <= num_clients * (most - 1) + 1:
        return pack(class_sizes, np.sort(sizes), most)
    return best


def deal(class_sizes: np.ndarray, num_clients: int, pieces: int, rng: np.random.Generator) -> np.ndarray:
    """Which classes each client holds a piece of, `pieces` of them: [clients, classes], by chance.

    Classes have pieces in proportion to their size, at least one where there are enough, at most one for each client.
    Those whose first class is the same stand together.
    """
    left = np.minimum(class_sizes, 1 if np.count_nonzero(class_sizes) <= num_clients * pieces else 0)
    for _ in range(num_clients * pieces - left.sum()):
        left[np.argmax(np.where(left < num_clients, class_sizes / (left + 0.5), -1))] += 1
    held = np.zeros((num_clients, len(left)), dtype=bool)
    for client in range(num_clients):
        with np.errstate(divide="ignore"):
            keys = np.log(left) + rng.gumbel(size=len(left))  # the largest: drawn in proportion to what is left
        keys[left == num_clients - client] = np.inf  # as many as there are clients to come, so all of them take one
        held[client, np.argsort(keys)[-pieces:]] = True
        left -= held[client]
    together: np.ndarray = held[np.argsort(held.argmax(axis=1), kind="stable")]
    return together


def fill(held: np.ndarray, class_sizes: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """A piece of each class held, as far as these reach, then whatever is left: [clients, classes].

    The pieces of a class are equally large, but for what it takes to make shards of the right size.

    Every step fills a piece or uses up a class. So all clients together have fewer classes too many than there are
    classes.
    """
    bounds = np.cumsum(held * (class_sizes / np.maximum(held.sum(axis=0), 1)), axis=1)
    wanted = np.diff(np.rint(sizes[:, None] * bounds / bounds[:, -1:]).astype(np.int64), axis=1, prepend=0)
    amounts: np.ndarray = np.diff(np.minimum(np.cumsum(wanted, axis=0), class_sizes), axis=0, prepend=0)
    left, room = class_sizes - amounts.sum(axis=0), sizes - amounts.sum(axis=1)
    for client in np.flatnonzero(room):
        while room[client]:
            own = np.where(amounts[client] > 0, left, 0)
            label = np.argmax(own if own.any() else left)
            taken = min(room[client], left[label])
            amounts[client, label] += taken
            left[label] -= taken
            room[client] -= taken
    return amounts


def surplus(amounts: np.ndarray, most: int) -> np.ndarray:
    """How many classes more than `most` each client has: [clients]."""
    return np.maximum(np.count_nonzero(amounts, axis=1) - most, 0)  # type: ignore[no-any-return]


def badness(amounts: np.ndarray, most: int) -> tuple[int, int, int]:
    """What should be small: the classes too many of who has most of them, those of all, how uneven the pieces are."""
    over = surplus(amounts, most)
    return int(over.max()), int(over.sum()), int(np.square(amounts).sum())


def trade(amounts: np.ndarray, most: int) -> None:
    """Let clients that have more than `most` classes trade samples with others, as long as that rids one of a class."""
    while sum(drop_class(amounts, client, most) for client in np.flatnonzero(surplus(amounts, most)).tolist()):
        pass


def drop_class(amounts: np.ndarray, client: int, most: int) -> bool:
    """Let others take a class off a client, the one it has least of if they can; whether they could."""
    for label in np.argsort(amounts[client], kind="stable").tolist():
        amount = amounts[client, label]
        if amount and (trades := find_trades(amounts, client, label, most)):
            for other, taken, given in trades:
                amounts[other, taken] += amount
                amounts[other, given] -= amount
            amounts[client, trades[0][2]] += amount
            amounts[client, label] = 0
            return True
    return False


def find_trades(amounts: np.ndarray, client: int, label: int, most: int) -> list[tuple[int, int, int]]:
    """Others who together take a class off a client, each as (who, class taken, class given), the last one first.

    The first taker gives as many samples of another class, which the next one takes, until one gives a class that the
    client has too. All have the class they take, or room for one more. The shortest such chain, or none.
    """
    amount = amounts[client, label]
    can_give = amounts >= amount
    has_room = np.count_nonzero(amounts, axis=1) < most
    came_from: dict[int, tuple[int, int]] = {}  # for a class given: who gives it, and which one for it
    queue = [label]
    for taken in queue:
        takers = np.flatnonzero((amounts[:, taken] > 0) | has_room)
        takers = takers[takers != client]
        for given in np.flatnonzero(can_give[takers].any(axis=0)).tolist():
            if given == label or given in came_from:
                continue
            came_from[given] = int(takers[np.argmax(can_give[takers, given])]), taken
            queue.append(given)
            if amounts[client, given]:
                chain = []
                while given != label:
                    who, before = came_from[given]
                    chain.append((who, before, given))
                    given = before
                return chain
    return []


def pack(class_sizes: np.ndarray, sizes: np.ndarray, most: int) -> np.ndarray:
    """Few classes for each client, though of unequal amounts: [clients, classes]; sizes in ascending order.

    Each client takes `most` − 1 classes whole, the smallest as long as the largest can make up for them, and a part of
    one more. So with at most clients · (most − 1) + 1 classes nobody has more than `most`.
    """
    left = class_sizes.copy()
    amounts = np.zeros((len(sizes), len(left)), dtype=np.int64)
    for client, size in enumerate(sizes):
        labels = np.argsort(left, kind="stable")[np.count_nonzero(left == 0) :]
        for small in range(min(most, len(labels)), -1, -1):
            chosen = np.concatenate([labels[:small], labels[max(small, len(labels) - most + small) :]])
            if left[chosen].sum() >= size:
                break
        taken = np.diff(np.minimum(np.cumsum(left[chosen]), size), prepend=0)
        amounts[client, chosen] = taken
        left[chosen] -= taken
    return amounts


PARTITIONS: dict[str, Callable[..., Partition]] = {
    "iid": iid,
    "dirichlet": dirichlet,
    "shards": shards,
}


def counts(shards: Partition, targets: np.ndarray, classes: int) -> np.ndarray:
    """How many samples of each class each client has: [clients, classes]."""
    return np.array([np.bincount(targets[shard], minlength=classes) for shard in shards])


def distances(table: np.ndarray) -> np.ndarray:
    """How far each client's classes are from those of all clients together, given their `counts`: [clients].

    The total variation: the part of its samples that a client would have to exchange to be like the whole.
    """
    whole = table.sum(axis=0) / table.sum()
    return np.abs(table / table.sum(axis=1, keepdims=True) - whole).sum(axis=1) / 2  # type: ignore[no-any-return]


def client_name(client: int) -> str:
    """The name of a client's array in a partition.npz."""
    return f"client_{client:04d}"


def save(shards: Partition, path: Path) -> None:
    """Write each client's indices as `client_0000`, `client_0001`, …"""
    arrays = {client_name(client): shard for client, shard in enumerate(shards)}
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def read(path: Path, num_clients: int, num_samples: int) -> Partition:
    """A user's own division, as `save` writes it: sizes may differ, and samples may be left out."""

    def wrong(what: str, allowed: str) -> ConfigError:
        return refusal("data.file", f"{path}, {what}", allowed)

    names = [client_name(client) for client in range(num_clients)]
    try:
        with path.open("rb") as file, np.load(file) as arrays:
            found = {name: np.asarray(arrays[name]) for name in arrays.files}
    except (OSError, ValueError, AttributeError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise wrong(f"which cannot be read ({one_line(error)})", "a partition.npz, one array per client") from error
    if set(found) != set(names):
        ends = " to ".join(sorted({min(found), max(found)})) if found else ""
        held = f"{count(len(found), 'array')} ({ends})" if found else "no arrays"
        raise wrong(f"which has {held}", f"{names[0]} to {names[-1]}, with num_clients {num_clients}")
    holder = np.full(num_samples, -1)
    for client, name in enumerate(names):
        rows = found[name]
        if rows.ndim != 1 or len(rows) == 0 or not np.issubdtype(rows.dtype, np.integer):
            raise wrong(f"whose {name} is {rows.dtype} of shape {list(rows.shape)}", "a list of indices, one or more")
        beyond = rows[(rows < 0) | (rows >= num_samples)]
        if len(beyond):
            raise wrong(f"whose {name} has {beyond[0]}", f"0 to {num_samples - 1}, indices of training samples")
        values, times = np.unique(rows, return_counts=True)
        again = values[(times > 1) | (holder[values] >= 0)]
        if len(again):
            holders = {client if holder[again[0]] < 0 else int(holder[again[0]]), client}
            whose = " and ".join(names[one] for one in sorted(holders))
            raise wrong(f"which has sample {again[0]} more than once ({whose})", "every sample at most once")
        holder[rows] = client
    return [found[name].astype(np.int64) for name in names]


def load(path: Path, clients: range) -> Partition:
    """The indices of some clients."""
    with np.load(path) as arrays:
        return [arrays[client_name(client)] for client in clients]
