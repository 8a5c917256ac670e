"""horovodrun's command line, read as Horovod's parse_args() does."""

import contextlib
import io
import sys
import unittest
from unittest import mock

from gorun.arguments import parse_args

# The attributes that Horovod 0.28.1 has for `horovodrun -np 2 python x.py`, less those that are None.
STOCK = {
    "command": ["python", "x.py"], "disable_cache": False, "num_proc": 2,
    "prefix_output_with_timestamp": False, "tcp_flag": False, "use_gloo": False, "use_jsrun": False,
    "use_mpi": False, "verbose": False,
}  # fmt: skip
NONE = """autotune autotune_bayes_opt_max_samples autotune_gaussian_process_noise autotune_log_file
autotune_steps_per_sample autotune_warmup_samples binding_args cache_capacity check_build config_file
cooldown_range cycle_time_ms elastic_timeout executable fusion_threshold_mb gloo_timeout_seconds
hierarchical_allgather hierarchical_allreduce host_discovery_script hostfile hosts log_level
log_with_timestamp max_num_proc min_num_proc mpi_args mpi_threads_disable nics no_stall_check num_nccl_streams
output_filename reset_limit run_func slots ssh_identity_file ssh_port stall_check_shutdown_time_seconds
stall_check_warning_time_seconds start_timeout thread_affinity timeline_filename timeline_mark_cycles
torus_allreduce""".split()


class ArgumentsTest(unittest.TestCase):
    def test_nothing_said(self):
        with mock.patch.object(sys, "argv", "horovodrun -np 2 python x.py".split()):
            self.assertEqual(vars(parse_args()), {**STOCK, **dict.fromkeys(NONE)})

    def test_everything_said(self):
        args = parse_args(
            """-np 3 --min-np 2 --max-num-proc 4 --host-discovery-script d.sh --slots-per-host 2 --verbose
            --fusion-threshold-mb 3 --cycle-time-ms 0.5 --autotune --no-hierarchical-allreduce --stall-check
            --network-interfaces a,b --network-interface c --blacklist-cooldown-range 1 2 --tcp --gloo
            --log-hide-timestamp -prefix-timestamp -p 22 python x.py -np 9 --verbose""".split()
        )
        want = {
            "num_proc": 3, "min_num_proc": 2, "max_num_proc": 4, "host_discovery_script": "d.sh", "slots": 2,
            "verbose": True, "fusion_threshold_mb": 3, "cycle_time_ms": 0.5, "autotune": True,
            "hierarchical_allreduce": False, "no_stall_check": False, "nics": {"a", "b", "c"},
            "cooldown_range": [1, 2], "tcp_flag": True, "use_gloo": True, "log_with_timestamp": False,
            "prefix_output_with_timestamp": True, "ssh_port": 22,
            "command": ["python", "x.py", "-np", "9", "--verbose"],
        }  # fmt: skip
        for name, value in want.items():
            with self.subTest(name):
                self.assertEqual(getattr(args, name), value)

    def test_number_of_processes(self):
        self.assertTrue(parse_args(["--check-build"]).check_build)
        said = io.StringIO()
        with contextlib.redirect_stderr(said), self.assertRaises(SystemExit):
            parse_args(["python", "x.py"])
        self.assertIn("-np", said.getvalue())
