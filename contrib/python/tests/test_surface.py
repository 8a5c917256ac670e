"""Every name of Horovod's interface, module by module, with its parameters and their defaults."""

import importlib
import inspect
import json
import os
import sys
import tempfile
import unittest
import warnings
from pathlib import Path
from unittest import mock

from tests_path import need_torch

need_torch()
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "shim"))

REDUCE = "average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=*"
REDUCE_NOW = REDUCE.replace("op=None", "compression=*, op=None")
SCATTER = "op=0, process_set=*, prescale_factor=1.0, postscale_factor=1.0"

# What horovod.torch and .mpi_ops have in common. "a, b=1, c=*": parameters, defaults, and any default.
OPERATIONS = {
    "allreduce": f"tensor, {REDUCE_NOW}",
    "allreduce_": f"tensor, {REDUCE}",
    "allreduce_async": f"tensor, {REDUCE}",
    "allreduce_async_": f"tensor, {REDUCE}",
    "grouped_allreduce": f"tensors, {REDUCE_NOW}",
    "grouped_allreduce_": f"tensors, {REDUCE}",
    "grouped_allreduce_async": f"tensors, {REDUCE}",
    "grouped_allreduce_async_": f"tensors, {REDUCE}",
    "sparse_allreduce_async": "tensor, name, op, process_set=*",
    "allgather": "tensor, name=None, process_set=*",
    "allgather_async": "tensor, name=None, process_set=*",
    "grouped_allgather": "tensors, name=None, process_set=*",
    "grouped_allgather_async": "tensors, name=None, process_set=*",
    "broadcast": "tensor, root_rank, name=None, process_set=*",
    "broadcast_": "tensor, root_rank, name=None, process_set=*",
    "broadcast_async": "tensor, root_rank, name=None, process_set=*",
    "broadcast_async_": "tensor, root_rank, name=None, process_set=*",
    "alltoall": "tensor, splits=None, name=None, process_set=*",
    "alltoall_async": "tensor, splits=None, name=None, process_set=*",
    "reducescatter": f"tensor, name=None, compression=*, {SCATTER}",
    "reducescatter_async": f"tensor, name=None, {SCATTER}",
    "grouped_reducescatter": f"tensors, name=None, compression=*, {SCATTER}",
    "grouped_reducescatter_async": f"tensors, name=None, {SCATTER}",
    "barrier": "process_set=*",
    "poll": "handle",
    "synchronize": "handle",
}
BASICS = {
    "init": "comm=None, process_sets=None",
    "start_timeline": "file_path, mark_cycles=False",
    **{
        name: ""
        for name in """shutdown is_initialized stop_timeline size local_size cross_size rank local_rank
        cross_rank mpi_threads_supported mpi_enabled mpi_built gloo_enabled gloo_built nccl_built ddl_built
        ccl_built cuda_built rocm_built is_homogeneous""".split()
    },
}
OPS = {"Average": 0, "Sum": 1, "Adasum": 2, "Min": 3, "Max": 4, "Product": 5}
COMPRESSION = {
    "Compression": None, "Compression.none.compress": "tensor", "Compression.none.decompress": "tensor, ctx",
    "Compression.fp16.compress": "tensor", "Compression.fp16.decompress": "tensor, ctx",
}  # fmt: skip
FUNCTIONS = {
    "broadcast_parameters": "params, root_rank",
    "broadcast_optimizer_state": "optimizer, root_rank, model=None",
    "broadcast_object": "obj, root_rank=0, name=None, process_set=*",
    "allgather_object": "obj, name=None",
}
OPTIMIZER = {
    "DistributedOptimizer": "optimizer, named_parameters=None, compression=*, backward_passes_per_step=1, "
    "op=0, gradient_predivide_factor=1.0, num_groups=0, groups=None, sparse_as_dense=False, process_set=*",
}
NORM = {"SyncBatchNorm": "num_features, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True"}
PROCESS_SETS = {
    "ProcessSet": "ranks_or_comm", "ProcessSet.size": "self", "ProcessSet.rank": "self",
    "ProcessSet.included": "self", "global_process_set": None, "add_process_set": "process_set",
    "remove_process_set": "process_set",
}  # fmt: skip
SAMPLER = {
    "ElasticSampler": "dataset, shuffle=True, seed=0", "ElasticSampler.set_epoch": "self, epoch",
    "ElasticSampler.record_batch": "self, batch_idx, batch_size",
    "ElasticSampler.record_indices": "self, indices",
    "ElasticSampler.get_indices": "self, batch_idx, batch_size", "ElasticSampler.state_dict": "self",
    "ElasticSampler.load_state_dict": "self, state_dict", "ElasticSampler.reset": "self",
    "ElasticSampler.__iter__": "self", "ElasticSampler.__len__": "self",
}  # fmt: skip
STATE = {
    f"{name}.{method}": "self"
    for name in ("State", "ObjectState")
    for method in ("on_reset", "commit", "check_host_updates", "save", "restore", "sync", "reset")
}
TORCH_STATE = {
    "TorchState": "model=None, optimizer=None",
    **{f"TorchState.{method}": "self" for method in ("commit", "save", "restore", "sync", "reset")},
}
EXCEPTIONS = {"HorovodInternalError": None, "HostsUpdatedInterrupt": "skip_sync=*"}

SURFACE = {
    "torch": {
        **OPERATIONS, **BASICS, **OPS, **COMPRESSION, **FUNCTIONS, **OPTIMIZER, **NORM, **PROCESS_SETS,
        "HorovodInternalError": None, "check_extension": "ext_name", "elastic.run": "func",
        "elastic.TorchState": None, "elastic.ElasticSampler": None, "__version__": None,
    },
    "torch.mpi_ops": {
        **OPERATIONS, **BASICS, **OPS, **PROCESS_SETS, "Compression": None, "HorovodInternalError": None,
        "handle_average_backwards_compatibility": "op, average", "check_installed_version": "name, version",
        "num_rank_is_power_2": "num_rank", "gpu_available": "ext_base_name, verbose=False",
    },
    "torch.compression": COMPRESSION,
    "torch.functions": FUNCTIONS,
    "torch.optimizer": OPTIMIZER,
    "torch.sync_batch_norm": NORM,
    "torch.elastic": {"run": "func", "run_fn": "func, reset", **SAMPLER, **TORCH_STATE},
    "torch.elastic.state": {
        **TORCH_STATE, "ModelStateHandler": "*", "OptimizerStateHandler": "*", "SamplerStateHandler": "*",
        "StateHandler": "*", "get_handler_registry": "", "set_handler_registry": "registry",
    },
    "torch.elastic.sampler": SAMPLER,
    "common.basics": {
        "HorovodBasics": "pkg_path=*", **{f"HorovodBasics.{name}": how for name, how in BASICS.items()},
    },
    "common.exceptions": {
        **EXCEPTIONS, "HorovodVersionMismatchError": "name, version, installed_version",
        "get_version_mismatch_message": "name, version, installed_version",
    },
    "common.process_sets": PROCESS_SETS,
    "common.elastic": {
        **STATE, "State": "bcast_object, get_rank", "ObjectState": "bcast_object, get_rank",
        "State.register_reset_callbacks": "self, callbacks",
        "State.on_hosts_updated": "self, timestamp, update_res", "run_fn": "func, reset",
        "WorkerNotificationManager": "", "notification_manager": None,
    },
    "common.util": {
        "check_extension": "ext_name", "extension_available": "ext_base_name, verbose=False",
        "gpu_available": "ext_base_name, verbose=False", "num_rank_is_power_2": "num_rank", "split_list": "*",
        "is_iterable": "*", "check_installed_version": "name, version, exception=None",
        "is_version_greater_equal_than": "ver, target",
        "get_average_backwards_compatibility_fun": "reduce_ops",
        **{f"{name}_built": "verbose=False" for name in ("gloo", "mpi", "nccl", "ddl", "ccl")}, "env": "",
    },
    "runner": {
        "run": "func, args=*, kwargs=None, num_proc=*, min_num_proc=None, max_num_proc=None, slots=None, "
        "reset_limit=None, cooldown_range=None, hosts=None, hostfile=None, host_discovery_script=None, "
        "start_timeout=None, ssh_port=None, ssh_identity_file=None, disable_cache=None, "
        "output_filename=None, verbose=None, use_gloo=None, use_mpi=None, mpi_args=None, "
        "network_interface=None, network_interfaces=None, executable=None, np=None, min_np=None, max_np=None",
    },
    "runner.launch": {"run_commandline": "", "check_build": "verbose=*", "parse_args": ""},
    "runner.common.util.hosts": {
        "HostInfo": "hostname, slots", "HostInfo.from_string": "host_string", "parse_hosts": "hosts_string",
        "parse_hosts_and_slots": "hosts", "parse_host_files": "filename",
        "get_host_assignments": "hosts, min_num_proc, max_num_proc=None",
        "SlotInfo": "hostname, rank, local_rank, cross_rank, size, local_size, cross_size",
        "SlotInfo.to_response_string": "self", "INVALID_SLOT_INFO": None,
    },
    "runner.elastic.discovery": {
        "HostDiscovery.find_available_hosts_and_slots": "self",
        "HostDiscoveryScript": "discovery_script, slots", "FixedHosts": "host_slots",
        "FixedHosts.set": "self, host_slots",
    },
}  # fmt: skip

# The same things under gorun's own name, where they are not at the same place.
OURS = {
    "common.util": "features", "runner": "launch", "runner.launch": "console",
    "runner.common.util.hosts": "hosts", "runner.elastic.discovery": "discovery",
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
    "runner": {"http": LAUNCHER, "util": LAUNCHER},
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
}  # fmt: skip


def parameters(text):
    pairs = [part.strip().partition("=") for part in text.split(",") if part.strip()]
    return [(name, default) for name, _, default in pairs]


def difference(value, text):
    """Say how the signature of value is not that of the text; more parameters, with defaults, may follow."""
    got = list(inspect.signature(value).parameters.values())
    got = [p for p in got if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    want = parameters(text)
    for (name, default), parameter in zip(want, got):
        actual = "" if parameter.default is parameter.empty else repr(parameter.default)
        same = bool(actual) if default == "*" else actual == default
        if parameter.name != name or not same:
            return f"has {parameter} where Horovod has {name}={default}"
    if len(got) < len(want):
        return f"has no {want[len(got)][0]}"
    needed = [p.name for p in got[len(want) :] if p.default is p.empty]
    return f"needs {needed}, which Horovod does not have" if needed else ""


class SurfaceTest(unittest.TestCase):
    def test_names_and_signatures(self):
        for module, names in SURFACE.items():
            found = importlib.import_module(f"horovod.{module}")
            for name, how in names.items():
                with self.subTest(f"horovod.{module}.{name}"):
                    value = found
                    for part in name.split("."):
                        self.assertTrue(hasattr(value, part), f"horovod.{module} has no {name}")
                        value = getattr(value, part)
                    if isinstance(how, int):
                        self.assertEqual(value, how)
                    elif how not in (None, "*"):
                        self.assertEqual(difference(value, how), "")

    def test_names_of_stock_horovod(self):
        """stock_names.json is what stock_names.py printed with Horovod 0.28.1."""
        stock = json.loads((Path(__file__).resolve().parent / "stock_names.json").read_text())
        self.assertLessEqual(set(EXCEPTIONS_TO), set(stock))
        modules = {module: importlib.import_module(f"horovod.{module}") for module in stock}
        for module, names in stock.items():
            with self.subTest(module):
                missing = {name for name in names if not hasattr(modules[module], name)}
                self.assertEqual(missing, set(EXCEPTIONS_TO.get(module, ())))

    def test_drop_in_only_passes_on(self):
        """A module of the drop-in holds no code of its own, and gorun has the same things."""
        root = Path(__file__).resolve().parent.parent / "shim" / "horovod"
        for path in sorted(root.rglob("*.py")):
            if path.parent == root and path.name == "__init__.py":
                continue  # this one steps aside for a real Horovod
            lines = path.read_text().splitlines()
            self.assertLessEqual(len(lines), 3, path)
            self.assertTrue(all(line.startswith("from gorun") for line in lines), path)
        for module, names in SURFACE.items():
            if module == "runner.launch":
                continue
            theirs = importlib.import_module(f"horovod.{module}")
            place = OURS.get(module) or module.replace("common.", "", 1)
            ours = importlib.import_module(f"gorun.{place}")
            for name in names:
                first = name.split(".")[0]
                self.assertIs(getattr(theirs, first), getattr(ours, first), name)

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

    def test_the_check_can_fail(self):
        def wrong(tensor, nam=None):
            pass

        self.assertIn("nam=None", difference(wrong, "tensor, name=None"))
        self.assertIn("no process_set", difference(wrong, "tensor, nam=None, process_set=*"))
        self.assertIn("needs", difference(lambda tensor, extra: None, "tensor"))


if __name__ == "__main__":
    unittest.main()
