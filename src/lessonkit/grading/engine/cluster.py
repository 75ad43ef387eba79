"""Many machines with no shared disk: jobs are executed by the workers of a Dask scheduler, and executions come back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import pkgutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any

from commandkit.commands import typed
from commandkit.errors import CommandError, require_extra
from lessonkit.grading.engine.pool import PutOff, WorkerLost

CONNECT_SECONDS = 10
EMPTY_SECONDS = 60  # to wait for a worker when the last one has gone
# As text, so that the scheduler, which unpickles what it is sent, needs nothing of ours; a worker without it says so.
CALL = "__import__('lessonkit.grading.engine.cluster', fromlist=['on_node']).on_node(function, arguments)"
AGAIN = "what is graded stays; call this again and it goes on from there"


@contextlib.contextmanager
def executor(address: str) -> Iterator[tuple[Executor, Callable[[], int]]]:
    """An executor on the workers of the Dask scheduler at `address`, and how many threads they have just now.

    What is submitted must be a function of a module, on JSON data and to JSON data; nothing else crosses the network.
    Certificates for tls:// are Dask's to configure. CommandError if the scheduler cannot be reached, or has no workers.
    """
    with require_extra(typed("grade --cluster"), "cluster"):
        from distributed import Client
    with _quiet("distributed"):
        reach(address)
        try:
            client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TypeError, RuntimeError, ImportError) as error:
            raise CommandError(f"no Dask scheduler answers at {address}: {error}") from None
        on_cluster = OnCluster(client, address)
        try:
            if not on_cluster.threads:
                raise CommandError(f"{address} has no workers: start `dask worker {address}` on each machine")
            yield on_cluster, lambda: max(1, on_cluster.threads)
        finally:
            on_cluster.shutdown()
            client.close(timeout=2)


class NoWorkersLeft(CommandError):
    """Every worker is gone, and something that was being executed may be why."""


class OnCluster(Executor):
    """Futures whose result is the function's, or a CommandError with what to mend and on which machine.

    WorkerLost for what has taken several workers with it.
    """

    def __init__(self, client: Any, address: str) -> None:
        self.client, self.address = client, address
        self._pool = client.get_executor(pure=False)
        self._pending: dict[Future, Future] = {}  # ours -> Dask's
        self._ended = threading.Event()
        self.threads = self._count_threads()  # of all workers that the scheduler has just now
        threading.Thread(target=self._watch, daemon=True).start()

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **no: Any) -> Future:
        """`function(*arguments)` on some worker."""
        given = {"function": f"{function.__module__}:{function.__qualname__}", "arguments": json.dumps(arguments)}
        ours: Future = Future()
        ours.set_running_or_notify_cancel()
        self._pending[ours] = theirs = self._pool.submit(eval, CALL, given)
        theirs.add_done_callback(lambda done: self._hand_on(done, ours))
        return ours

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take back what no worker has begun. What is being executed goes on there, and is not waited for."""
        self._ended.set()
        for theirs in list(self._pending.values()):
            theirs.cancel()

    def _hand_on(self, theirs: Future, ours: Future) -> None:
        if self._pending.pop(ours, None) is None:
            return
        try:
            if theirs.cancelled():
                raise CommandError(f"the connection to the scheduler at {self.address} was lost: start it; {AGAIN}")
            ours.set_result(_result(theirs))
        except BaseException as error:
            ours.set_exception(error)

    def _count_threads(self) -> int:
        return sum(self.client.nthreads().values())

    def _watch(self) -> None:
        """Notice workers that come and go, and end what nobody is left to execute: Dask would wait for ever."""
        seen = time.monotonic()
        while not self._ended.wait(1):
            try:
                self.threads = self._count_threads()
            except Exception:  # the scheduler is gone, of which the futures hear, or this is the end
                continue
            if self.threads:
                seen = time.monotonic()
            elif time.monotonic() - seen > EMPTY_SECONDS:
                for ours in list(self._pending):
                    if self._pending.pop(ours, None) is not None:
                        ours.set_exception(NoWorkersLeft(f"no worker is left at {self.address}: start some; {AGAIN}"))


def _result(theirs: Future) -> Any:
    from distributed import KilledWorker

    try:
        text = theirs.result()
    except KilledWorker as error:
        last = error.last_worker.address
        raise WorkerLost(f"the cluster's workers that executed it died, the last one {last}") from None
    except ModuleNotFoundError as error:
        raise CommandError(f"a worker has no {error.name}: install the course's package on every machine") from None
    try:
        answer = json.loads(text)
    except (ValueError, TypeError) as error:
        raise RuntimeError(f"a worker answered something else than JSON: {error}") from None
    if not isinstance(answer, dict):
        raise RuntimeError("a worker answered something else than a result")
    if "put off" in answer:
        raise PutOff
    if "refused" in answer:
        raise CommandError(f"the worker at {answer.get('node')} cannot execute: {answer['refused']}")
    return answer.get("result")


def on_node(function: str, arguments: str) -> str:
    """In a worker: call a function ("module:name") on JSON data. What the machine lacks is said, with its name."""
    try:
        return json.dumps({"result": pkgutil.resolve_name(function)(*json.loads(arguments))})
    except PutOff:
        return json.dumps({"put off": True})
    except CommandError as error:
        from distributed import get_worker

        return json.dumps({"refused": str(error), "node": f"{get_worker().address} ({socket.gethostname()})"})


def reach(address: str) -> None:
    """Find out soon, where Dask's client would try for long, whether a scheduler listens there. CommandError if not."""
    from distributed.comm import parse_address, parse_host_port

    try:
        scheme, place = parse_address(address)
        if scheme in ("tcp", "tls"):
            socket.create_connection(parse_host_port(place), timeout=CONNECT_SECONDS).close()  # refused at once
        asyncio.run(asyncio.wait_for(_identity(address), CONNECT_SECONDS))
    except (ValueError, TypeError) as error:
        raise CommandError(f"--cluster: got {address!r}, expected an address as tcp://host:8786 ({error})") from None
    except Exception as error:
        why = str(error) or f"no answer in {CONNECT_SECONDS} seconds"
        raise CommandError(
            f"no Dask scheduler can be reached at {address} ({why}): is `dask scheduler` running there?"
        ) from None


async def _identity(address: str) -> Any:
    from distributed import Security
    from distributed.core import rpc

    async with rpc(address, connection_args=Security().get_connection_args("client")) as scheduler:
        return await scheduler.identity()


@contextlib.contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Dask logs a lost connection many times; it is said once."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)
