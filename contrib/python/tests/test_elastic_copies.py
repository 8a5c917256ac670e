"""How often the bytes of a state are copied on their way to a rank that is new, and when it is kept."""

import collections
import pickle
import threading
import unittest
from unittest import mock

from tests_path import need

np = need("numpy")
from fake import run_ranks  # noqa: E402

from gorun import basics, objects  # noqa: E402
from gorun.elastic import ObjectState  # noqa: E402


class Copies:
    """Counts the bytes that the methods of a binding move."""

    def __init__(self, binding):
        self.moved = collections.Counter()
        self.lock = threading.Lock()
        self.patches = [
            mock.patch.object(binding, name, self.counting(name, getattr(binding, name)))
            for name in ("overwrite", "load")
        ]

    def counting(self, name, method):
        def counted(binding, *args):
            with self.lock:
                self.moved[name] += len(args[0]) if isinstance(args[0], memoryview) else 1
            return method(binding, *args)

        return counted

    def __enter__(self):
        for patch in self.patches:
            patch.start()
        return self.moved

    def __exit__(self, *_):
        for patch in self.patches:
            patch.stop()


class ArraysTest(unittest.TestCase):
    def test_once_in_and_once_out(self):
        """Large arrays are not in the pickle, wherever they are: one rank stores them, others load them."""
        large = [np.arange(5 << 20, dtype=np.float64), np.ones((1 << 10, 1 << 10), np.float32).T]
        dumps = []

        def body(rank):
            mine = {"weights": large[0], "more": [large[1]], "small": np.arange(3)} if rank == 1 else None
            state = ObjectState(objects.broadcast_object, basics.rank, step=rank, tensors=mine)
            state._take_over(1)
            self.assertEqual(state.step, 1)
            for array, want in zip((state.tensors["weights"], *state.tensors["more"]), large):
                np.testing.assert_array_equal(array, want)
                self.assertTrue(array.flags.writeable)
            np.testing.assert_array_equal(state.tensors["small"], np.arange(3))

        def dump(*args, **kwargs):
            dumps.append(pickle.dumps(*args, **kwargs))
            return dumps[-1]

        with Copies(objects._Bytes) as moved, mock.patch.object(objects, "pickle", wraps=pickle) as patched:
            patched.dumps = dump
            run_ranks(3, body)
        small = sum(map(len, dumps))
        self.assertLess(small, 2000)
        self.assertEqual(moved["overwrite"], 0)  # what is large goes from array to array
        self.assertLessEqual(moved["load"], 3 * small)

    def test_names(self):
        """What has a name has several pieces, and the name again is another use."""

        def body(rank):
            for use in range(2):
                sent = np.full(3 << 20, use, np.int64)
                got = objects.broadcast_object(sent if rank == 0 else None, 0, name="weights")
                self.assertEqual((got.min(), got.max()), (use, use))

        run_ranks(2, body)


try:
    import torch
except ImportError:
    torch = None


@unittest.skipIf(torch is None, "torch is not installed")
class TensorsTest(unittest.TestCase):
    def make(self, rank):
        import gorun.torch as hvd

        torch.manual_seed(rank)
        layers = torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 64)
        model = torch.nn.Sequential(*layers)
        optimizer = torch.optim.Adam(model.parameters())
        if rank == 0:
            model(torch.randn(8, 64)).sum().backward()
            optimizer.step()
        return hvd.elastic.TorchState(model=model, optimizer=optimizer, step=rank)

    def test_once_in_and_once_out(self):
        """What a new rank receives is what its optimizer has from then on."""
        from gorun.torch.memory import Torch

        received = set()
        address = Torch.address

        def receive(binding, tensor):
            if basics.rank():
                received.add(tensor.data_ptr())
            return address(binding, tensor)

        def body(rank):
            state = self.make(rank)
            state._take_over(0)
            tensors = [*state.model.state_dict().values()]
            for per_parameter in state.optimizer.state.values():
                tensors += [value for value in per_parameter.values() if torch.is_tensor(value)]
            self.assertGreaterEqual(len(tensors), 9 + 2 * 6)
            self.assertFalse(any("__deepcopy__" in vars(tensor) for tensor in tensors))
            return state, {tensor.data_ptr() for tensor in tensors}

        with mock.patch.object(Torch, "address", receive), Copies(Torch) as moved:
            _, (state, has) = run_ranks(2, body)
        self.assertLessEqual(has, received)
        self.assertEqual((moved["overwrite"], moved["load"]), (0, 0))
        self.assertEqual(state.step, 0)

    def test_kept_where_it_was_kept_before(self):
        """A commit takes no fresh memory, and restore() gives what was kept and not what became of it."""

        def pointers(value):
            if torch.is_tensor(value):
                return {value.data_ptr()}
            values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
            return set().union(*map(pointers, values))

        def body(rank):
            state = self.make(0)
            state.save()
            before = [pointers(handler._saved) for handler in state._handlers.values()]
            self.assertTrue(all(before))
            kept = []
            for _ in range(2):
                state.model(torch.randn(8, 64)).sum().backward()
                state.optimizer.step()
                state.save()
                kept.append([value.clone() for value in state.model.state_dict().values()])
            self.assertEqual([pointers(handler._saved) for handler in state._handlers.values()], before)
            for _ in range(2):
                state.optimizer.step()
                state.restore()
                for value, want in zip(state.model.state_dict().values(), kept[-1]):
                    self.assertTrue(torch.equal(value, want))
            self.assertFalse(any(torch.equal(a, b) for a, b in zip(*kept) if a.dim() == 2))
            # Another model has other tensors: nothing of the former copy stays.
            state.model = torch.nn.Linear(3, 2)
            saved = state._handlers["model"]._saved
            self.assertEqual([tuple(value.shape) for value in saved.values()], [(2, 3), (2,)])
            state.optimizer.param_groups[0]["lr"] = 0.5
            state.save()
            state.optimizer.param_groups[0]["lr"] = 0.1
            state.restore()
            self.assertEqual(state.optimizer.param_groups[0]["lr"], 0.5)

        run_ranks(1, body)

    def test_what_shared_memory_once(self):
        """Tensors that shared memory when they were kept first, and no longer do, are kept one by one."""
        from gorun.torch.elastic.state import StateHandler

        tied = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False))
        tied[1].weight = tied[0].weight
        model = StateHandler(tied)
        before = model._saved["0.weight"].data_ptr()
        with torch.no_grad():
            tied[0].weight.fill_(5.0)
        model.save()
        copies = [model._saved[name] for name in ("0.weight", "1.weight")]
        self.assertEqual([copied.data_ptr() for copied in copies], [before, before])
        self.assertEqual([copied.unique().tolist() for copied in copies], [[5.0], [5.0]])
        tied[1].weight = torch.nn.Parameter(torch.full((2, 2), 7.0))
        with torch.no_grad():
            tied[0].weight.fill_(3.0)
        model.save()
        with torch.no_grad():
            tied[0].weight.zero_()
            tied[1].weight.zero_()
        model.restore()
        self.assertEqual([linear.weight.unique().tolist() for linear in tied], [[3.0], [7.0]])

        class Views:
            def __init__(self, *values):
                self.values = list(values)

            def state_dict(self):
                return {"values": self.values, "best": (self.values[0],)}

            def load_state_dict(self, state):
                self.values, (self.best,) = state["values"], state["best"]

        memory, array = torch.arange(8.0), np.arange(8.0)
        for kind, first, second in (
            ("overlap", [memory[:4], memory[2:6]], [torch.zeros(4), torch.ones(4)]),
            ("part", [torch.zeros(4), torch.ones(4)], [memory[:4], memory[2:6]]),
            ("other overlap", [memory[:4], memory[2:6]], [memory[:4], memory[3:7]]),
            ("strides", [torch.zeros(2, 2).T, memory[::2]], [torch.arange(4.0).view(2, 2), memory[1::2]]),
            ("NumPy", [array[:4], array[2:6]], [np.zeros(4), np.ones(4)]),
            ("NumPy's memory", list(map(torch.from_numpy, (array[:4], array[:4]))), list(torch.eye(2))),
        ):
            with self.subTest(kind):
                views = Views(*first)
                handler = StateHandler(views)
                views.values = second
                want = [value.tolist() for value in second]
                for _ in range(2):
                    handler.save()
                    handler.restore()
                    self.assertEqual([value.tolist() for value in views.values], want)
                    self.assertEqual(views.best.tolist(), want[0])
                    self.assertIs(views.best, views.values[0])

    def test_expanded(self):
        """A buffer whose elements are all in one place cannot be overwritten, so it is kept anew."""
        from gorun.torch.elastic.state import StateHandler

        module = torch.nn.Linear(2, 2)
        module.register_buffer("scale", torch.ones(1).expand(4))
        handler = StateHandler(module)
        weight = handler._saved["weight"].data_ptr()
        module.scale = torch.full((1,), 2.0).expand(4)
        for _ in range(2):
            handler.save()
            self.assertEqual(handler._saved["scale"].tolist(), [2.0] * 4)
        self.assertEqual(handler._saved["weight"].data_ptr(), weight)

    def test_failed_copy(self):
        """What cannot be copied leaves the copy before it whole."""
        from gorun.torch.elastic.state import StateHandler

        module = torch.nn.Linear(2, 2)
        want = module.weight.detach().clone()
        extra = None
        with mock.patch.object(module, "state_dict", lambda: {"weight": module.weight.data, "extra": extra}):
            handler = StateHandler(module)
            extra = threading.Lock()
            module.weight.data.zero_()
            with self.assertRaises(TypeError):
                handler.save()
        self.assertTrue(torch.equal(handler._saved["weight"], want))
