"""Litehouse as a user calls it: `Session.run`, all options at their defaults but the count of threads."""

from loop import Task, serve

import litehouse


def load(task):
    session = litehouse.load(task.model, threads=task.threads)
    facts = {"version": litehouse.__version__, "engine": str(session.engine)}
    if reason := session.engine.reason:
        facts["reason"] = reason
    inputs = task.inputs
    if task.model.endswith(".mge"):  # MegEngine keeps the names of the inputs, but not their order
        inputs = [inputs[int(info.name.removeprefix("input_"))] for info in session.inputs]
    return lambda: session.run(inputs), facts


if __name__ == "__main__":
    serve(Task(), load)
