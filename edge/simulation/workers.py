"""Forked worker processes that run nodes side by side, which threads cannot: training holds Python's lock.

A worker shares what this process had loaded when it was forked. It is sent instructions over a pipe, and
both ways arrays travel through shared memory that has no name, so nothing is left behind.
"""

import mmap
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.common.constant import ErrorCode

from edge.flower import content_bytes, error_reply, metadata_fields, received
from edge.simulation import shared
from edge.simulation.host import Host, answer

_FORK = multiprocessing.get_context("fork")
_LEAST_REGION_BYTES = 1 << 20
_WATCH_S = 1.0
# What a busy worker's pipe is sure to take: waiting for it to read, while it waits for us to, would be for ever.
_MOST_UNREAD_BYTES = 1 << 15
# Small models train faster than this process turns round; of large ones a second reply would only take memory.
_MOST_BYTES_AHEAD = 1 << 22


@dataclass(slots=True, eq=False)
class _Worker:
    """One process, its pipe and its memory: one region for the content of instructions, two for states and replies.

    It has up to two jobs, so that it never waits for this process: the next is there when it ends one.
    """

    process: Any
    pipe: Connection
    region: mmap.mmap
    slots: tuple[mmap.mmap, mmap.mmap]
    content: RecordDict | None = None
    slot: int = 0  # of the latest job
    jobs: deque[Message] = field(default_factory=deque)


class WorkerPool:
    """Runs a host in worker processes; started at first use, enlarged or replaced when needed."""

    def __init__(self, host: Host, context_of: Callable[[int], Context], workers: int) -> None:
        """Keep what workers will run.

        Args:
            host: What every node runs.
            context_of: Gives a node's context by its address; node state stays in this process.
            workers: How many processes.
        """
        self._host, self._context_of, self._num = host, context_of, workers
        self._workers: list[_Worker] = []
        self._ahead = True

    def answers(self, messages: Sequence[Message]) -> Iterator[Message]:
        """Yield a reply to each instruction, in the order in which they are ready."""
        if any(w.jobs for w in self._workers):
            raise RuntimeError("the replies of one exchange must be read, or dropped, before the next one begins")
        waiting = deque(messages)
        largest = max(content_bytes(m.content) for m in messages)
        self._ahead = largest <= _MOST_BYTES_AHEAD
        self._reserve(2 * largest)
        try:
            self._assign(waiting)
            while busy := [w for w in self._workers if w.jobs]:
                for pipe in wait([w.pipe for w in busy]):
                    reply = self._take(next(w for w in busy if w.pipe is pipe), waiting)
                    self._assign(waiting)
                    if reply:
                        yield reply
                    del reply  # or it would stay in memory beside the next one
        finally:
            if any(w.jobs for w in self._workers):  # the reader stopped early: what is still running is of no use
                self.close()

    def close(self) -> None:
        """End all workers, whatever they are doing."""
        for worker in self._workers:
            _end(worker)
        self._workers = []

    def _reserve(self, num_bytes: int) -> None:
        """See that there are workers and that their memory has room, and holds nothing of an earlier exchange."""
        for worker in self._workers:
            worker.content = None
        if any(len(w.region) < num_bytes or not w.process.is_alive() for w in self._workers):
            self.close()
        while len(self._workers) < self._num:
            self._workers.append(self._start(2 * num_bytes))

    def _start(self, num_bytes: int) -> _Worker:
        region, *slots = (mmap.mmap(-1, max(_LEAST_REGION_BYTES, num_bytes)) for _ in range(3))
        ours, theirs = _FORK.Pipe()
        # A worker ends when its pipe does, so no other process may hold our end of it open.
        inherited = [ours, *(w.pipe for w in self._workers)]
        arguments = (self._host, self._context_of, theirs, inherited, region, slots)
        process = _FORK.Process(target=_serve, args=arguments, daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours, region, (slots[0], slots[1]))

    def _replace(self, worker: _Worker, num_bytes: int, waiting: deque[Message]) -> None:
        """Put a new worker in a worker's place; what it had yet to do waits again."""
        _end(worker)
        waiting.extendleft(reversed(worker.jobs))
        self._workers.remove(worker)
        self._workers.append(self._start(num_bytes))

    def _assign(self, waiting: deque[Message]) -> None:
        """Hand out jobs, in order, as long as a worker can take the next."""
        while waiting and (worker := self._ready_for(waiting[0])):
            slot = 1 - worker.slot if worker.jobs else 0
            try:
                header = self._packed(worker, waiting[0], slot)
                if worker.jobs and len(header) > _MOST_UNREAD_BYTES:
                    return
                worker.pipe.send_bytes(header)
            except (shared.RegionFullError, ConnectionError) as error:
                if worker.jobs:
                    return  # it is replaced when it has ended, or is found dead
                needed = 2 * error.needed if isinstance(error, shared.RegionFullError) else len(worker.region)
                self._replace(worker, needed, waiting)
            else:
                worker.slot = slot
                worker.jobs.append(waiting.popleft())

    def _ready_for(self, message: Message) -> _Worker | None:
        """Return a worker that can take a job: an idle one or else, if it has the job's content, one with a single job."""
        node = message.metadata.dst_node_id
        if any(job.metadata.dst_node_id == node for w in self._workers for job in w.jobs):
            return None  # what the node keeps is on its way
        able = [w for w in self._workers if not w.jobs or (self._ahead and len(w.jobs) == 1 and w.content is message.content)]
        return min(able, key=lambda w: len(w.jobs), default=None)

    def _packed(self, worker: _Worker, message: Message, slot: int) -> bytes:
        """Put what a job needs into a worker's memory, and return the rest as its header."""
        described = None  # the worker has it: a cohort shares one content
        if worker.content is not message.content:
            described, _ = shared.pack(message.content, worker.region, 0)
            worker.content = message.content
        context = self._context_of(message.metadata.dst_node_id)
        state, _ = shared.pack(context.state, worker.slots[slot], 0)
        header = {"metadata": metadata_fields(message), "content": described, "state": state, "slot": slot}
        return shared.encode(header)

    def _take(self, worker: _Worker, waiting: deque[Message]) -> Message | None:
        """Return a worker's reply; None when its memory was too small, and the job waits again."""
        try:
            header = shared.decode(worker.pipe.recv_bytes())
        except (EOFError, OSError):
            message = worker.jobs.popleft()
            self._replace(worker, len(worker.region), waiting)
            return error_reply(message, ErrorCode.CLIENT_APP_CRASHED, "the worker process died while it ran this node")
        if "needed" in header:
            self._replace(worker, 2 * header["needed"], waiting)
            return None
        message, slot = worker.jobs.popleft(), worker.slots[header["slot"]]
        self._context_of(message.metadata.dst_node_id).state = shared.unpack(header["state"], slot, copy=True)
        if "error" in header:
            return error_reply(message, *header["error"])
        return Message(shared.unpack(header["content"], slot, copy=True), reply_to=message)


def _end(worker: _Worker) -> None:
    worker.pipe.close()
    worker.process.kill()
    worker.process.join()


def _serve(
    host: Host,
    context_of: Callable[[int], Context],
    pipe: Connection,
    inherited: Sequence[Connection],
    region: mmap.mmap,
    slots: Sequence[mmap.mmap],
) -> None:
    """Be a worker: answer until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the coordinator, which then closes the pipes
    for end in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(end, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)  # other threads were not forked: to wait for them would be to hang
    for connection in inherited:
        connection.close()
    content = RecordDict()
    while True:
        try:
            header = shared.decode(pipe.recv_bytes())
            if header["content"] is not None:
                content = shared.unpack(header["content"], region, copy=False)
            message, slot = received(header["metadata"], content), slots[header["slot"]]
            context = context_of(message.metadata.dst_node_id)
            context.state = shared.unpack(header["state"], slot, copy=True)
            packed = _packed_answer(answer(host, message, context), context, slot)
            pipe.send_bytes(shared.encode({**packed, "slot": header["slot"]}))
        except (EOFError, OSError):
            return


def _end_with(coordinator: int) -> None:
    """End this process soon after the coordinator has died, even in the middle of a job."""
    while os.getppid() == coordinator:
        time.sleep(_WATCH_S)
    os._exit(1)


def _packed_answer(reply: Message, context: Context, slot: mmap.mmap) -> dict[str, Any]:
    try:
        state, free = shared.pack(context.state, slot, 0)
        if reply.has_error():
            return {"state": state, "error": [reply.error.code, reply.error.reason]}
        content, _ = shared.pack(reply.content, slot, free)
    except shared.RegionFullError as full:
        return {"needed": full.needed}
    return {"state": state, "content": content}
