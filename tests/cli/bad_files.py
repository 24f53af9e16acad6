"""Files of tensors that are well or not: .npy and .safetensors, byte by byte."""

import json
import struct


def npy(path, shape=(4, 2, 8), dtype="<f4", data=None, header=None, version=(1, 0), size=4, order=False):
    """A .npy file; `header` replaces the whole dictionary, `data` the bytes behind it."""
    text = header if header is not None else str({"descr": dtype, "fortran_order": order, "shape": tuple(shape)})
    count = 1
    for extent in shape:
        count *= extent
    text = text.encode("latin1") + b" " * 7 + b"\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY" + bytes(version) + struct.pack("<H", len(text)) + text)
        file.write(b"\x01" * (count * size) if data is None else data)


def safetensors(path, header, data, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text) if length is None else length) + text + data)


def entry(shape=(4, 2, 8), begin=0, end=None, dtype="F32"):
    size = 4
    for extent in shape:
        size *= extent
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, begin + size if end is None else end]}


def bad_npy():
    """name -> a function that writes it"""
    return {
        "empty": lambda p: open(p, "wb").close(),
        "not numpy": lambda p: open(p, "wb").write(b"hello, world: no array"),
        "cut in the header": lambda p: open(p, "wb").write(b"\x93NUMPY\x01\x00\x76\x00{'descr'"),
        "unknown version": lambda p: npy(p, version=(9, 0)),
        "truncated data": lambda p: npy(p, data=b"\x00" * 100),
        "bytes left over": lambda p: npy(p, data=b"\x00" * 300),
        "negative shape": lambda p: npy(p, header="{'descr': '<f4', 'fortran_order': False, 'shape': (-4, 2, 8)}"),
        "wrapped-around shape": lambda p: npy(
            p, header="{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4, 8)}"),
        "impossible size": lambda p: npy(
            p, header="{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 2, 8)}"),
        "big-endian": lambda p: npy(p, dtype=">f4"),
        "objects": lambda p: npy(p, dtype="|O"),
        "strings": lambda p: npy(p, dtype="<U8"),
        "integers": lambda p: npy(p, dtype="<i4"),
        "one axis": lambda p: npy(p, shape=(64,)),
        "five axes": lambda p: npy(p, shape=(1, 1, 4, 2, 8)),
        "other heads": lambda p: npy(p, shape=(4, 3, 8)),
        "head_dim of no kernel": lambda p: npy(p, shape=(4, 2, 7)),
        "no shape": lambda p: npy(p, header="{'descr': '<f4', 'fortran_order': False}"),
        "a program for a header": lambda p: npy(p, header="__import__('os').system('true')"),
    }


def bad_safetensors():
    qkv = {"q": entry(), "k": entry(begin=256), "v": entry(begin=512)}
    data = b"\x00" * 768
    return {
        "empty": lambda p: open(p, "wb").close(),
        "header longer than the file": lambda p: safetensors(p, qkv, data, length=1 << 40),
        "header length of all ones": lambda p: safetensors(p, qkv, data, length=(1 << 64) - 1),
        "no JSON": lambda p: safetensors(p, b"{not json", data),
        "JSON a list": lambda p: safetensors(p, b"[1, 2]", data),
        "deep nesting": lambda p: safetensors(p, b"[" * 100000, data),
        "truncated data": lambda p: safetensors(p, qkv, data[:-5]),
        "bytes left over": lambda p: safetensors(p, qkv, data + b"\x00"),
        "offsets past the end": lambda p: safetensors(p, {**qkv, "v": entry(begin=600)}, data),
        "offsets that overlap": lambda p: safetensors(p, {**qkv, "v": entry(begin=256)}, data),
        "a hole": lambda p: safetensors(p, {**qkv, "v": entry(begin=520)}, data + b"\x00" * 8),
        "negative offsets": lambda p: safetensors(p, {**qkv, "v": entry(begin=-256)}, data),
        "shape and size disagree": lambda p: safetensors(p, {**qkv, "v": entry(begin=512, end=700)}, data[:700]),
        "negative shape": lambda p: safetensors(p, {**qkv, "v": {"dtype": "F32", "shape": [-4, 2, 8],
                                                                "data_offsets": [512, 768]}}, data),
        "wrapped-around shape": lambda p: safetensors(p, {**qkv, "v": {"dtype": "F32", "shape": [1 << 62, 4, 8],
                                                                      "data_offsets": [512, 768]}}, data),
        "unknown dtype": lambda p: safetensors(p, {**qkv, "v": entry(begin=512, dtype="Q3")}, data),
        "no v": lambda p: safetensors(p, {"q": entry(), "k": entry(begin=256)}, data[:512]),
        "heads that do not divide": lambda p: safetensors(
            p, {"q": entry((4, 3, 8)), "k": entry(begin=384), "v": entry(begin=640)}, b"\x00" * 896),
        "k and v of different lengths": lambda p: safetensors(
            p, {"q": entry(), "k": entry(begin=256), "v": entry((5, 2, 8), begin=512)}, b"\x00" * 832),
    }
