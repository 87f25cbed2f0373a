"""Litehouse's Pool, all options at their defaults.

The option is `JOINED,AHEAD`: how many requests are joined at most, and how many a client has under way. With 0 ahead,
it waits for each answer.
"""

import threading
from collections import deque

from loop import Task, serve

import litehouse


def load(task):
    joined, ahead = map(int, (task.option or "0,0").split(","))
    pool = litehouse.Pool(task.model, batching=litehouse.Batching(max_size=joined) if joined else None)
    facts = {"version": litehouse.__version__, "engine": str(pool.engine), "workers": pool.workers}
    if joined:
        facts["batching"] = pool.batching.reason
    return (client(pool, task.inputs, ahead) if ahead else lambda: pool.ask(task.inputs)), facts


def client(pool, inputs, ahead):
    """What a client calls to send a request and take the answer of an earlier one."""
    own = threading.local()

    def run():
        if not hasattr(own, "under_way"):
            own.under_way = deque(pool.submit(inputs) for _ in range(ahead))
        own.under_way.append(pool.submit(inputs))
        return own.under_way.popleft().result()

    return run


if __name__ == "__main__":
    serve(Task(), load)
