"""Passes on a stream of the caller's, on an emulated GPU: they follow what is on it, and the host does not wait.

DISTATTN_LIBRARY is the shared library with that GPU, emulated.cpp.
"""

import ctypes
import os
import unittest

import numpy as np
import oracle

import distattn
from distattn import _capi
from distattn._tensors import View, dense_strides, layout_of

TOKENS, HEADS, DIM = 20, 2, 8
gpu = ctypes.CDLL(os.environ["DISTATTN_LIBRARY"])
for name, result, arguments in (
    ("stream", ctypes.c_void_p, []), ("handle", ctypes.c_void_p, [ctypes.c_void_p]),
    ("memory", ctypes.c_void_p, [ctypes.c_size_t, ctypes.c_int]), ("close", None, [ctypes.c_void_p]),
    ("copy", None, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]), ("open", None, []),
    ("finish", None, [ctypes.c_void_p]), ("pass", None, [ctypes.c_void_p]), ("waits", ctypes.c_int, []),
):
    function = getattr(gpu, f"emulated_{name}")
    function.restype, function.argtypes = result, arguments


def on_gpu(shape):
    """Memory that begins as NaN."""
    address = gpu.emulated_memory(4 * int(np.prod(shape)), 0)
    return View(address, layout_of(shape, dense_strides(shape), "float32", (_capi.CUDA, 0)), None)


def on_host(shape):
    """An array in pinned memory, into which copies do not wait."""
    address = gpu.emulated_memory(4 * int(np.prod(shape)), 1)
    return np.ctypeslib.as_array((ctypes.c_float * int(np.prod(shape))).from_address(address)).reshape(shape)


class Caller:
    """A stream, and copies on it."""

    def __init__(self):
        self.stream = gpu.emulated_stream()
        self.handle = gpu.emulated_handle(self.stream)

    def write(self, array):
        pinned, written = on_host(array.shape), on_gpu(array.shape)
        pinned[...] = array
        gpu.emulated_copy(self.stream, written.address, pinned.ctypes.data, array.nbytes)
        return written

    def read(self, view):
        pinned = on_host(view.shape)
        pinned[...] = np.nan
        gpu.emulated_copy(self.stream, pinned.ctypes.data, view.address, pinned.nbytes)
        return pinned


def attention_on(stream):
    return distattn.Attention(seq=TOKENS, heads=HEADS, head_dim=DIM, causal=True, backward=True, backend="cuda",
                              schedule="ring", cuda_stream=stream)


class Streams(unittest.TestCase):
    def setUp(self):
        random = np.random.default_rng(3)
        self.shape = (1, TOKENS, HEADS, DIM)
        self.given = [random.standard_normal(self.shape, np.float32) for _ in range(4)]
        self.caller = Caller()

    def layer(self, handle, q, k, v):
        views = {"q": q, "k": k, "v": v, "o": on_gpu(self.shape), "lse": on_gpu((1, HEADS, TOKENS))}
        handle.call("forward", views)
        return views

    def gradients(self, handle, views, d_o):
        views = {**views, "d_o": d_o, "dq": on_gpu(self.shape), "dk": on_gpu(self.shape), "dv": on_gpu(self.shape)}
        handle.call("backward", views)
        return [views[name] for name in ("dq", "dk", "dv")]

    def test_two_layers_and_gradients_without_a_wait(self):
        handle = attention_on(self.caller.handle)
        waits = gpu.emulated_waits()
        gpu.emulated_close(self.caller.stream)
        q, k, v, d_o = map(self.caller.write, self.given)
        first = self.layer(handle, q, k, v)
        second = self.layer(handle, first["o"], k, v)
        o = self.caller.read(second["o"])
        gradients = list(map(self.caller.read, self.gradients(handle, second, d_o)))
        self.assertEqual(gpu.emulated_waits(), waits)
        self.assertTrue(np.isnan(o).all())  # nothing has been computed yet
        gpu.emulated_open()
        gpu.emulated_finish(self.caller.stream)
        between = oracle.attention(*self.given[:3], causal=True)[0]
        self.assertLess(oracle.error(o, oracle.attention(between, *self.given[1:3], causal=True)[0]), 1e-5)
        expected = oracle.gradients(self.given[3], between, *self.given[1:3], causal=True)
        for found, right in zip(gradients, expected):
            self.assertLess(oracle.error(found, right), 1e-5)

    def test_another_stream_would_show(self):
        """The same on a stream that the inputs are not written on reads them before they are there."""
        other = Caller()
        handle = attention_on(other.handle)
        gpu.emulated_close(self.caller.stream)
        q, k, v, _ = map(self.caller.write, self.given)
        o = other.read(self.layer(handle, q, k, v)["o"])
        gpu.emulated_pass(other.stream)
        gpu.emulated_open()
        gpu.emulated_finish(self.caller.stream)
        self.assertFalse(np.isfinite(o).all())

    def test_a_handle_without_a_stream(self):
        with self.assertRaisesRegex(distattn.UsageError, "knows no stream"):
            attention_on(0)._views(q=GpuArray(on_gpu(self.shape)))


class GpuArray:
    """An array with DLPack, in CUDA memory."""

    def __init__(self, lies):
        self.described, self.lies = lies.layout.struct(), lies
        self.managed = _capi.DLManagedTensor(self.described, None, None)
        self.managed.dl_tensor.data = lies.address

    def __dlpack__(self, **_):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.managed), b"dltensor", None)


if __name__ == "__main__":
    unittest.main()
