#!/usr/bin/env python3
"""Uses libparamd.so in a process with others' libraries, whichever came first.

    guest.py SERVER LIBPARAMD THING...

Loads the things in this order: `paramd`, which then does its work; a shared library, as a program that was linked with
it would have it, whose function `greet` is called if there is one; or a Python module, such as tensorflow. At the end
paramd works once more.
"""

import ctypes
import importlib
import os
import sys

OK = 0
server, path, *things = sys.argv[1:]


class Guest:
    def __init__(self):
        self.library = ctypes.CDLL(path)
        for name in ("model_spec_new", "worker_options_new", "error_message"):
            getattr(self.library, "paramd_" + name).restype = ctypes.c_char_p if name == "error_message" else ctypes.c_void_p

    def call(self, name, *arguments):
        if getattr(self.library, "paramd_" + name)(*arguments) != OK:
            sys.exit(f"guest: {name}: {self.library.paramd_error_message().decode()}")

    def work(self, transport):
        """A worker's life, so that messages, errors and floats go both ways."""
        floats = 1 << 20
        center = (ctypes.c_float * floats)(*[1.0] * floats)
        spec = ctypes.c_void_p(self.library.paramd_model_spec_new(b"guest"))
        self.call("model_spec_add_tensor", spec, b"w", (ctypes.c_int64 * 1)(floats), ctypes.c_size_t(1))
        self.call("model_spec_set_algorithm", spec, b"downpour")
        options = ctypes.c_void_p(self.library.paramd_worker_options_new())
        settings = {"server": server, "model": "guest", "worker": str(os.getpid()), "transport": transport}
        for key, value in settings.items():
            self.call("worker_options_set", options, key.encode(), value.encode())
        self.call("worker_options_set_spec", options, spec)
        worker = ctypes.c_void_p()
        self.call("worker_join", options, ctypes.byref(worker))
        size, timeout = ctypes.c_size_t(floats), ctypes.c_double(30)
        self.library.paramd_worker_initialize(worker, center, size, timeout)
        for _ in range(3):
            self.call("worker_pull", worker, center, size, timeout, None)
            self.call("worker_commit", worker, center, size, timeout, None)
        center[7] = float("nan")
        if self.library.paramd_worker_commit(worker, center, size, timeout, None) == OK:
            sys.exit("guest: NaN was taken")
        self.library.paramd_worker_free(worker)
        self.library.paramd_worker_options_free(options)
        self.library.paramd_model_spec_free(spec)


def use(name):
    if name.endswith(".so"):
        host = ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
        if hasattr(host, "greet"):
            host.greet()
        return
    module = importlib.import_module(name)
    if name == "tensorflow":
        module.function(lambda x: module.linalg.matmul(x, x))(module.ones((8, 8)))
    elif name == "torch":
        module.ones(8, 8) @ module.ones(8, 8)
    elif name == "jax":
        module.jit(lambda x: x @ x)(module.numpy.ones((8, 8)))


guest = None
for thing in things:
    if thing != "paramd":
        use(thing)
    else:
        guest = Guest()
        guest.work("grpc")
        guest.work("shm")
for thing in things:
    if thing != "paramd":
        use(thing)
guest.work("grpc")
print("worked:", *things)
