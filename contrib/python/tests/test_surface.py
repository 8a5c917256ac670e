"""Every name of Horovod's interface, module by module, with its parameters and their defaults."""

import importlib
import inspect
import json
import os
import subprocess
import sys
import tempfile
import unittest
import warnings
from pathlib import Path
from unittest import mock

from tests_path import need_torch

need_torch()
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "shim"))

import horovod.torch as hvd  # noqa: E402
import torch  # noqa: E402
from horovod.common import exceptions  # noqa: E402
from horovod.runner.common.util import hosts  # noqa: E402

WILD = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

# The same things under gorun's own name, where they are not at the same place.
OURS = {
    "common.util": "features", "runner": "launch", "runner.common.util.hosts": "hosts",
    "runner.elastic.discovery": "discovery", "runner.elastic.worker": "elastic",
    "runner.util.threads": "helpers", "runner.common.util.env": "helpers",
    "runner.common.util.secret": "helpers",
}  # fmt: skip

# Names with an underscore that programs, or Horovod's own tests, look for all the same.
PRIVATE = {
    "": ["__version__", "run", "torch"], "torch.mpi_ops": ["_basics"], "common.util": ["_cache"],
    "runner": ["_HorovodArgs"], "runner.launch": ["_run"], "torch.optimizer": ["_DistributedOptimizer"],
}  # fmt: skip

# Public names of stock Horovod that are not here, and why.
COMPILED = "the compiled extension, of which there is none"
AUTOGRAD = "an autograd class behind a function; the function is here"
IMPORTED = "another module's, which this one happens to import"
LAUNCHER = "a part of horovodrun's launcher, whose place the binary takes"
MPI = "the type of mpi4py, or the mark that it is missing"
EXCEPTIONS_TO = {
    "torch": {"mpi_lib_v2": COMPILED},
    "torch.mpi_ops": {
        "mpi_lib": COMPILED,
        **dict.fromkeys(
            """HorovodAllgather HorovodAllreduce HorovodAlltoall HorovodBroadcast HorovodGroupedAllgather
            HorovodGroupedAllreduce HorovodGroupedReducescatter HorovodReducescatter""".split(), AUTOGRAD,
        ),
    },
    "torch.functions": dict.fromkeys(
        """ProcessSet allgather broadcast_ broadcast_async_ global_process_set rank size
        synchronize""".split(), IMPORTED,
    ),
    "torch.optimizer": dict.fromkeys(
        """Sum allreduce_async_ broadcast_object grouped_allreduce_async_ rocm_built size
        sparse_allreduce_async synchronize""".split(), IMPORTED,
    ),
    "torch.sync_batch_norm": dict.fromkeys(
        "Sum allgather_async allreduce_async size synchronize".split(), IMPORTED
    ),
    "torch.elastic.state": dict.fromkeys(["allgather_object", "rank"], IMPORTED),
    "torch.elastic.sampler": dict.fromkeys(["rank", "size"], IMPORTED),
    "common.util": {"get_extension_full_path": COMPILED},
    "common.process_sets": {"HorovodBasics": IMPORTED, "is_iterable": IMPORTED, "MPI": MPI},
    "common.basics": {**dict.fromkeys(["ProcessSet", "global_process_set", "util"], IMPORTED), "MPI": MPI},
    "runner": {"http": LAUNCHER},
    "runner.util.threads": dict.fromkeys(["execute_function_multithreaded", "on_event"], LAUNCHER),
    "runner.common.util.env": {"secret": IMPORTED},
    "runner.launch": dict.fromkeys(
        """CACHE_FOLDER CACHE_STALENESS_THRESHOLD_MINUTES KVStoreServer SSH_ATTEMPTS SSH_CONNECT_TIMEOUT_S
        cache ccl_built config_parser ddl_built discovery driver_service elastic_settings
        extension_available get_remote_command gloo_built gloo_run gloo_run_elastic horovod hosts
        hvd_settings is_gloo_used is_jsrun_installed js_run lsf make_check_build_action
        make_deprecated_bool_action make_nic_action make_override_action make_override_bool_action
        make_override_false_action make_override_true_action mpi_built mpi_run nccl_built network
        put_data_into_kvstore read_data_from_kvstore run_controller safe_shell_exec secret threads
        timeout""".split(), LAUNCHER,
    ),
    "runner.elastic.discovery": dict.fromkeys(
        """DEFAULT_COOLDOWN_LOWER_LIMIT_SECONDS DEFAULT_COOLDOWN_UPPER_LIMIT_SECONDS DiscoveredHosts
        HostManager HostState HostUpdateResult safe_shell_exec""".split(), LAUNCHER,
    ),
    "runner.elastic.worker": dict.fromkeys(
        """HOROVOD_GLOO_IFACE HOROVOD_GLOO_RENDEZVOUS_ADDR HOROVOD_GLOO_RENDEZVOUS_PORT HOROVOD_HOSTNAME
        HOROVOD_LOCAL_RANK HostsUpdatedRequest PUT_WORKER_ADDRESSES WorkerNotificationClient
        WorkerNotificationService network put_data_into_kvstore secret""".split(), LAUNCHER,
    ),
}  # fmt: skip


# Of what its modules define, by the names in stock_signatures.json; or what differs in it.
PASSES_ON = "passes any arguments on to a function that takes these"
SIGNATURES_TO = {
    "torch.mpi_ops": dict.fromkeys(["init", "shutdown"], PASSES_ON),
    "torch.optimizer": {
        **dict.fromkeys(
            ["_DistributedOptimizer.__init__", "_DistributedAdasumOptimizer.__init__"],
            "called by DistributedOptimizer only",
        ),
        "_DistributedOptimizer.find_duplicates": "a part of its constructor",
    },
    "torch.elastic.sampler": {"ElasticSampler.processed_indices": "always empty"},
    "runner.elastic.worker": {"WorkerNotificationManager.init": "the session knows where news comes from"},
    "common.basics": {
        "HorovodBasics.MPI_LIB_CTYPES": COMPILED,
        **{
            f"HorovodBasics.HOROVOD_PROCESS_SET_ERROR_{name}": COMPILED
            for name in "INIT SHUTDOWN UNKNOWN_SET FOREIGN_SET EXISTING_SET DYNAMIC".split()
        },
    },
}

# Objects to look for attributes in.
MADE = {
    "_DistributedOptimizer": lambda: hvd.DistributedOptimizer(sgd()),
    "_DistributedAdasumOptimizer": lambda: hvd.DistributedOptimizer(sgd(), op=hvd.Adasum),
    "ElasticSampler": lambda: hvd.elastic.ElasticSampler(range(3)),
    "ProcessSet": lambda: hvd.ProcessSet([0]),
    "StateHandler": lambda: hvd.elastic.state.ModelStateHandler(torch.nn.Linear(1, 1)),
    "HostInfo": lambda: hosts.HostInfo("a", 1),
    "SlotInfo": lambda: hosts.get_host_assignments([hosts.HostInfo("a", 1)], 1)[0],
    "HostsUpdatedInterrupt": lambda: exceptions.HostsUpdatedInterrupt(True),
    "HorovodVersionMismatchError": lambda: exceptions.HorovodVersionMismatchError("torch", "1", "2"),
}


def sgd():
    return torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1)


def table(name):
    return json.loads((Path(__file__).resolve().parent / name).read_text())


def difference(value, text, names):
    """Say how the parameters of value are not those of the text; more, with defaults, may follow."""
    want, got = (
        [p for p in inspect.signature(of).parameters.values() if p.name != "self"]
        for of in (eval(f"lambda {text}: 0", names), value)
    )
    for kind in {p.kind for p in want if p.kind in WILD} - {p.kind for p in got}:
        return f"has no {kind.description} parameters"
    want, got = ([p for p in of if p.kind not in WILD] for of in (want, got))
    for theirs, ours in zip(want, got):
        if theirs.name != ours.name or theirs.default not in (ours.default, theirs.empty):
            return f"has {ours} where Horovod has {theirs}"
    if len(got) < len(want):
        return f"has no {want[len(got)].name}"
    needed = [p.name for p in got[len(want) :] if p.default is p.empty]
    return f"needs {needed}, which Horovod does not have" if needed else ""


class SurfaceTest(unittest.TestCase):
    def test_signatures_of_stock_horovod(self):
        """stock_signatures.json has what the source of Horovod 0.28.1, its last release, defines.

        Functions and methods as "a, b=1, *args", classes as "class of" their bases, everything else as "".
        """
        hvd.init()
        self.addCleanup(hvd.shutdown)
        made = {name: make() for name, make in MADE.items()}
        stock = table("stock_signatures.json")
        self.assertLessEqual(set(SIGNATURES_TO), set(stock))
        for module, definitions in stock.items():
            there = importlib.import_module(f"horovod.{module}")
            missing = {**EXCEPTIONS_TO.get(module, {}), **SIGNATURES_TO.get(module, {})}
            names = {**vars(hvd), **vars(there)}  # that defaults are made of
            for name, how in definitions.items():
                first, _, rest = name.partition(".")
                if first in EXCEPTIONS_TO.get(module, ()) or first == "__all__":
                    continue
                with self.subTest(f"horovod.{module}.{name}"):
                    kind = type(made[first]) if first.startswith("_Dist") else getattr(there, first)
                    value = made.get(first, kind) if rest and not how else kind
                    if rest and not hasattr(value, rest):
                        self.assertIn(name, missing)
                    elif not rest and how.startswith("class of"):
                        bases = {base.__name__ for base in kind.__mro__}
                        for base in filter(None, how[len("class of ") :].split(", ")):
                            self.assertIn(base.rpartition(".")[2], bases)
                    elif how:
                        wrong = difference(getattr(value, rest) if rest else value, how, names)
                        self.assertEqual(bool(wrong), name in missing, wrong or "as in Horovod")

    def test_numpy_has_what_torch_has(self):
        from gorun import numpy
        from gorun.torch import mpi_ops

        only = """Compression check_installed_version get_average_backwards_compatibility_fun gpu_available
            handle_average_backwards_compatibility num_rank_is_power_2 sparse_allreduce_async""".split()
        self.assertEqual(set(mpi_ops.__all__) - set(numpy.__all__), set(only))
        self.assertEqual([name for name in numpy.__all__ if not hasattr(numpy, name)], [])

    def test_both_have_the_table_of_operations(self):
        from gorun import numpy
        from gorun.operations import Operations
        from gorun.torch import mpi_ops

        hooks = {"convert", "several", "split_sizes", "received"}
        table = [name for name in vars(Operations) if not name.startswith("_") and name not in hooks]
        self.assertGreater(len(table), 30)
        for name in table:
            self.assertEqual(getattr(numpy, name).__func__, getattr(Operations, name))
            both = [inspect.signature(getattr(module, name)).parameters for module in (numpy, mpi_ops)]
            added = {"compression", "device"}  # to functions that PyTorch has of its own
            plain = [[p.replace(annotation=None) for p in of.values() if p.name not in added] for of in both]
            self.assertEqual(*plain, name)

    def test_names_of_stock_horovod(self):
        """stock_names.json has the public names of its modules, without those from elsewhere."""
        stock = table("stock_names.json")
        self.assertLessEqual(set(EXCEPTIONS_TO), set(stock))
        modules = {module: importlib.import_module(f"horovod.{module}") for module in stock}
        for module, names in stock.items():
            with self.subTest(module):
                missing = {name for name in names if not hasattr(modules[module], name)}
                self.assertEqual(missing, set(EXCEPTIONS_TO.get(module, ())))

    def test_private_names(self):
        for module, names in PRIVATE.items():
            there = importlib.import_module(f"horovod.{module}".rstrip("."))
            for name in names:
                with self.subTest(f"horovod.{module}.{name}"):
                    self.assertTrue(hasattr(there, name))

    def test_cache(self):
        from horovod.common.util import _cache

        calls = []
        remembered = _cache(lambda *args, **kwargs: calls.append(args) or len(calls))
        self.assertEqual([remembered(), remembered(), remembered(1), remembered(1, a=2), remembered(1)],
                         [1, 1, 2, 3, 2])  # fmt: skip

    def test_helpers_of_the_runner(self):
        from horovod.runner.common.util import env, secret
        from horovod.runner.util.threads import in_thread

        came = []
        thread = in_thread(came.append, (5,), name="five", daemon=False)
        thread.join()
        self.assertEqual((came, thread.name, thread.daemon), ([5], "five", False))
        self.assertTrue(in_thread(came.clear).daemon)
        with mock.patch("threading.excepthook") as told:
            in_thread(int, ("x",), silent=True).join()
            self.assertFalse(told.called)
            in_thread(int, ("x",)).join()
            self.assertTrue(told.called)
        self.assertRaises(ValueError, in_thread, came.append, 5)

        key = secret.make_secret_key()
        digest = secret.compute_digest(key, b"said")
        self.assertEqual((len(key), len(digest)), (secret.SECRET_LENGTH, secret.DIGEST_LENGTH))
        self.assertTrue(secret.check_digest(key, b"said", digest))
        self.assertFalse(secret.check_digest(key, b"Said", digest))
        self.assertNotEqual(key, secret.make_secret_key())

        exported = {name for name in ("PATH", "OLDPWD", "CUDA_VISIBLE_DEVICES") if env.is_exportable(name)}
        self.assertEqual(exported, {"PATH"})
        for environ, want in (
            ({}, (0, 1)),
            ({"PMI_RANK": "1", "PMI_SIZE": "3"}, (1, 3)),
            ({"PMI_RANK": "1", "PMI_SIZE": "3", "HOROVOD_RANK": "2", "HOROVOD_SIZE": "4"}, (2, 4)),
        ):
            with mock.patch.dict(os.environ, environ, clear=True):
                self.assertEqual(env.get_env_rank_and_size(), want)
        with mock.patch.dict(os.environ, {"HOROVOD_RANK": "1"}, clear=True):
            self.assertRaisesRegex(RuntimeError, "HOROVOD_SIZE", env.get_env_rank_and_size)

    def test_bindings_that_are_not_there_say_what_is(self):
        there = "import sys; sys.modules['pyspark'] = sys.modules['ray'] = None; import horovod."
        for name, says in {
            "mxnet": r"horovod\.mxnet: gorun has no binding for MXNet, .*",
            "spark": r"horovod\.spark needs PySpark: pip install pyspark .*",
            "spark.torch": r"horovod\.spark needs PySpark: pip install pyspark .*",
            "ray": r"horovod\.ray needs Ray: pip install ray .*",
            "ray.elastic": r"horovod\.ray needs Ray: pip install ray .*",
        }.items():
            with self.subTest(name):
                run = subprocess.run([sys.executable, "-c", there + name], capture_output=True, text=True)
                self.assertRegex(run.stderr.splitlines()[-1], f"^(ImportError|ModuleNotFoundError): {says}$")

    def test_drop_in_only_passes_on(self):
        """A module of the drop-in holds no code of its own, and gorun has the same things."""
        root = Path(__file__).resolve().parent.parent / "shim" / "horovod"
        for path in sorted(root.rglob("*.py")):
            if path.parent == root and path.name == "__init__.py":
                continue  # this one steps aside for a real Horovod
            lines = path.read_text().splitlines()
            self.assertLessEqual(len(lines), 4, path)
            passes_on = ("from gorun", "from horovod import __version__")
            self.assertTrue(all(line.startswith(passes_on) for line in lines), path)
        for module, definitions in table("stock_signatures.json").items():
            if module == "runner.launch":
                continue
            theirs = importlib.import_module(f"horovod.{module}")
            ours = importlib.import_module(f"gorun.{OURS.get(module) or module.replace('common.', '', 1)}")
            for name in {name.partition(".")[0] for name in definitions} & set(vars(theirs)):
                if name != "__all__":
                    self.assertIs(getattr(theirs, name), getattr(ours, name), name)

    def test_run(self):
        import horovod

        import gorun

        self.assertIs(horovod.run, gorun.run)

    def test_handlers_of_state(self):
        from horovod.torch.elastic import TorchState, state

        class Counter:
            value = 0

        class CounterHandler(state.StateHandler):
            def save(self):
                self.saved = self.value.value

            def restore(self):
                self.value.value = self.saved

        before = state.get_handler_registry()
        self.addCleanup(state.set_handler_registry, before)
        state.set_handler_registry([(Counter, CounterHandler), *before])
        kept = TorchState(counter=Counter(), step=1)
        kept.counter.value = kept.step = 7
        kept.restore()
        self.assertEqual((kept.counter.value, kept.step), (0, 1))

    def test_util(self):
        from horovod.common import util
        from horovod.torch import mpi_ops

        with mock.patch.dict(os.environ, GORUN_TEST_A="before"):
            with util.env(GORUN_TEST_A="1", GORUN_TEST_B="2", GORUN_TEST_C=None):
                self.assertEqual([os.environ.get(f"GORUN_TEST_{c}") for c in "ABC"], ["1", "2", None])
            self.assertEqual([os.environ.get(f"GORUN_TEST_{c}") for c in "ABC"], ["before", None, None])
        self.assertTrue(util.gloo_built(verbose=True))
        self.assertFalse(util.mpi_built() or util.nccl_built() or util.ccl_built() or util.ddl_built())
        choose = mpi_ops.handle_average_backwards_compatibility
        self.assertEqual((choose(None, None), choose(mpi_ops.Max, None)), (mpi_ops.Average, mpi_ops.Max))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            self.assertEqual((choose(None, True), choose(None, False)), (mpi_ops.Average, mpi_ops.Sum))
        self.assertEqual([warning.category for warning in said], [DeprecationWarning] * 2)
        with self.assertRaises(ValueError):
            choose(mpi_ops.Sum, True)

    def test_host_files(self):
        from horovod.runner.common.util import hosts

        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory, "hosts")
            file.write_text("# mine\nhost1 slots=2\n\nhost2  slots = 1 # the old one\n")
            self.assertEqual(hosts.parse_host_files(str(file)), "host1:2,host2:1")
            file.write_text("host1\n")
            with self.assertRaisesRegex(ValueError, "host1"):
                hosts.parse_host_files(str(file))

    def test_hosts(self):
        from horovod.runner.common.util import hosts
        from horovod.runner.elastic import discovery

        slots = hosts.get_host_assignments(hosts.parse_hosts("a:2,b:1"), 3)
        self.assertEqual(
            [(slot.hostname, slot.to_response_string()) for slot in slots],
            [("a", "0,3,0,2,0,2"), ("a", "1,3,1,2,0,1"), ("b", "2,3,0,1,1,2")],
        )
        self.assertEqual(len(hosts.get_host_assignments(hosts.parse_hosts("a:2,b:4"), 1, 3)), 3)
        with self.assertRaisesRegex(ValueError, "available slots"):
            hosts.get_host_assignments(hosts.parse_hosts("a:2"), 3)
        self.assertEqual(hosts.parse_hosts_and_slots("a:2, b:1"), (["a", "b"], {"a": 2, "b": 1}))
        for wrong in ("a", "a:", "a:2,", "a:x"):
            with self.assertRaises(ValueError):
                hosts.parse_hosts_and_slots(wrong)
        found = discovery.HostDiscoveryScript("printf 'a:3\\nb\\n'", 2).find_available_hosts_and_slots()
        self.assertEqual(found, {"a": 3, "b": 2})
        with self.assertRaisesRegex(RuntimeError, "exit status 3"):
            discovery.HostDiscoveryScript("exit 3", 2).find_available_hosts_and_slots()
