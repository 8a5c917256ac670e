"""News of hosts reaches a State from a thread: when, from where, and what becomes of it in the next world."""

import io
import os
import threading
import time
import unittest
from contextlib import redirect_stderr
from types import SimpleNamespace
from unittest import mock

from gorun import basics, elastic
from gorun.elastic import HostUpdateResult, State
from gorun.exceptions import HorovodInternalError
from gorun.session import HostsChanged

PATIENCE = 20


class Told(State):
    """Notes that it got news."""

    def __init__(self):
        super().__init__(bcast_object=lambda value: value, get_rank=lambda: 0)
        self.heard = threading.Event()

    def on_hosts_updated(self, timestamp, update_res):
        super().on_hosts_updated(timestamp, update_res)
        self.heard.set()

    def save(self):
        pass

    restore = sync = save


class World:
    """A world of one rank, as far as news is concerned."""

    def __init__(self, *news):
        self.told = list(news)
        self.session = SimpleNamespace(rank=0, size=1, news=self.news)

    def news(self):
        told, self.told = self.told, []
        return told


def watchers():
    return [thread for thread in threading.enumerate() if thread.name == "gorun: news of hosts"]


class NewsTest(unittest.TestCase):
    def setUp(self):
        self.assertEqual(watchers(), [])
        self.enter(mock.patch.dict(os.environ, HOROVOD_ELASTIC="1"))
        self.enter(mock.patch.object(basics._state, "world", World()))

    def enter(self, patch):
        patch.start()
        self.addCleanup(patch.stop)

    def test_a_thread_tells_a_state_as_long_as_there_is_one(self):
        state = Told()

        @elastic.run
        def train(state):
            basics._state.world.told.append(HostsChanged(1, 7))
            self.assertTrue(state.heard.wait(PATIENCE))
            return state._host_messages.get()

        self.assertEqual(train(state), (7, HostUpdateResult.removed))
        self.assertEqual(watchers(), [], "a thread is left")

    def test_the_daemon_hears_of_a_commit(self):
        """A commit, or a copy before a look for news: the script's own commit() may consist of these."""
        state, told = Told(), []
        basics._state.world.session.kept = lambda: told.append("kept")
        state.check_host_updates()
        self.assertEqual(told, [])
        state.commit()
        self.assertEqual(told, ["kept"])
        with mock.patch.dict(os.environ, HOROVOD_ELASTIC="0"):
            state.commit()
        self.assertEqual(told, ["kept"])

    def test_a_listener_removes_itself_while_it_gets_news(self):
        manager, state = elastic.WorkerNotificationManager(), Told()

        def listen(timestamp, update_res):
            time.sleep(5 * elastic.NEWS_SECONDS)  # the thread looks for news meanwhile
            manager.remove_listener(state)

        def poll():
            with manager.quiet():
                basics._state.world.told.append(HostsChanged(1, 7))
                manager.poll()

        manager.register_listener(state)
        with mock.patch.object(state, "on_hosts_updated", listen):
            script = threading.Thread(target=poll, daemon=True)
            script.start()
            script.join(PATIENCE)
        self.assertFalse(script.is_alive(), "they wait for each other")
        self.assertEqual(watchers(), [])

    def test_no_thread_in_a_fixed_job(self):
        with mock.patch.dict(os.environ, HOROVOD_ELASTIC="0"):
            self.assertEqual(elastic.run(lambda state: watchers())(Told()), [])

    def test_news_of_the_next_world_is_not_forgotten_with_the_old(self):
        """It may come before on_reset() has emptied the state: then the state must get it after that."""
        state, worlds = Told(), []

        def reset():
            basics._state.world = World(HostsChanged(2, 9))
            time.sleep(5 * elastic.NEWS_SECONDS)  # the thread looks meanwhile

        def train(state):
            worlds.append(basics._state.world)
            if len(worlds) == 1:
                raise HorovodInternalError("a host died")
            self.assertTrue(state.heard.wait(PATIENCE))
            return state._host_messages.get(timeout=PATIENCE)

        with redirect_stderr(io.StringIO()):
            self.assertEqual(elastic.run_fn(train, reset)(state), (9, HostUpdateResult.added))

    def test_a_script_that_fails_to_listen_gets_the_next_news(self):
        state, said = Told(), io.StringIO()

        def listen(timestamp, update_res):
            if timestamp == 1:
                raise ValueError("cannot listen")
            state.heard.set()

        def train(state):
            basics._state.world.told.append(HostsChanged(2, 1))
            time.sleep(5 * elastic.NEWS_SECONDS)
            basics._state.world.told.append(HostsChanged(2, 2))
            self.assertTrue(state.heard.wait(PATIENCE))

        with mock.patch.object(state, "on_hosts_updated", listen), redirect_stderr(said):
            elastic.run(train)(state)
        self.assertIn("ValueError: cannot listen", said.getvalue())
