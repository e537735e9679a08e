"""Ends a cluster when the process that started it is gone, however it went.

`python -m tests.cluster.guard STATE_FOLDER` reads standard input, a pipe whose other end only the owner holds. The word
`keep` releases the cluster; the end of the pipe without it ends the cluster's processes. (A parent-death signal
would follow the starting *thread* and would need code between fork and exec.)
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.cluster.process import Record, find_marked, start_ticks
from tests.cluster.state import MARK, end_processes, read_state

KEEP = b"keep"


def main(folder: Path) -> None:
    said = sys.stdin.buffer.read()
    if said == KEEP:
        return
    state = read_state(folder)
    records = list(state.processes) if state is not None else []
    known = {record.pid for record in records} | {os.getpid()}
    # A process that was started a moment before the owner was killed may not be recorded yet.
    for pid in find_marked(MARK, str(folder)):
        ticks = start_ticks(pid)
        if pid not in known and ticks is not None:
            records.append(Record("unrecorded", pid, ticks, ""))
    end_processes(records)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
