"""A rank that does what rank 0 does: `python -m litehouse.parallel.follower ORDER`, which `Launched` starts.

It loads its part of the model, and runs whenever rank 0 says so, with the inputs that it sends. It ends with rank 0.
"""

from __future__ import annotations

import json
import math
import signal
import sys
from typing import Any

import numpy as np

from litehouse.distributed.mail import Key, Mail
from litehouse.distributed.ranks import find_place
from litehouse.distributed.transports import open_mail
from litehouse.errors import LitehouseError, RankError
from litehouse.loading import load
from litehouse.options import Options
from litehouse.parallel.launched import CHANNEL

NEXT = "the next order of rank 0"


def main(arguments: list[str]) -> None:
    """Follow rank 0 until it leaves."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what stops rank 0 from a terminal is for rank 0 to decide
    order = json.loads(arguments[0])
    options = Options.of(order["options"])
    try:
        session = load(order["path"], options=options)
    except LitehouseError as error:  # rank 0 is told, and need not wait
        print(error, file=sys.stderr, flush=True)
        open_mail(find_place(options.job), options.job).fail(error)
        raise SystemExit(1) from error
    mail = open_mail(find_place(options.job), options.job)
    number = 0
    while mail.failure is None:
        number += 1
        try:
            told = json.loads(_heard(mail, number, "order").tobytes())
        except RankError:
            return  # rank 0 has left, or its process is gone
        inputs = [_heard(mail, number, f"input {place}") for place in range(told.get("inputs", 0))]
        try:
            if "shapes" in told:
                session.resize(told["shapes"])
            else:
                session.run(inputs)
        except LitehouseError as error:  # rank 0 is told, and decides
            print(error, file=sys.stderr, flush=True)


def _heard(mail: Mail, number: int, name: str) -> np.ndarray[Any, Any]:
    with mail.using, mail.fetched(0, Key(CHANNEL, number, name), NEXT, timeout=math.inf) as array:
        return array.copy()


if __name__ == "__main__":
    main(sys.argv[1:])
