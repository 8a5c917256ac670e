"""Wait for news of hosts without a commit: one is added, then removed, by the file that discovery reads."""

import sys
import threading
from pathlib import Path

import gorun.elastic as elastic
from gorun import basics, objects
from horovod.common.elastic import HostUpdateResult, ObjectState

hosts = Path(sys.argv[1])
WANTED = {0: ("localhost:2", HostUpdateResult.added), 1: ("localhost:1", HostUpdateResult.removed)}


class State(ObjectState):
    """Notes the news it gets, and from which thread."""

    def __init__(self) -> None:
        self.came = threading.Event()
        self.news = []
        super().__init__(objects.broadcast_object, basics.rank, world=0)

    def on_hosts_updated(self, timestamp: int, update_res: int) -> None:
        super().on_hosts_updated(timestamp, update_res)
        pushed = threading.current_thread() is not threading.main_thread()
        self.news.append((timestamp, update_res, pushed))
        self.came.set()


@elastic.run
def train(state: State) -> None:
    while state.world in WANTED:
        listed, update = WANTED[state.world]
        state.came.clear()
        if basics.rank() == 0:
            hosts.write_text(listed)
        if not state.came.wait(30):
            sys.exit(f"rank {basics.rank()} of {basics.size()}: no news within 30 s")
        timestamp, told, pushed = state.news[-1]
        assert told == update and pushed and not state._host_messages.empty(), state.news
        print(f"world {state.world} of {basics.size()}: {told.name}", flush=True)
        state.world += 1
        state.commit()  # which raises, with what was told
        raise AssertionError("the news was not taken")


basics.init()
train(State())
print(f"done rank {basics.rank()} of {basics.size()}", flush=True)
