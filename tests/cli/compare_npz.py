#!/usr/bin/env python3
"""compare_npz.py FILE.h5 FILE.npz [--bits]: each array that numpy.load gives against the value that h5py reads under its name. Exits 77
where NumPy or h5py is not installed. Names that had to be made safe are not looked for: a fixture has none.
"""
import sys

try:
    import h5py
    import numpy as np
except ImportError as missing:
    print(missing)
    sys.exit(77)


def is_bf16(dataset):
    stored = dataset.id.get_type()
    return isinstance(stored, h5py.h5t.TypeFloatID) and stored.get_size() == 2 and stored.get_ebias() == 127


def main(stored, exported, bits):
    arrays = np.load(exported)
    left = set(arrays.files)
    wrong = []

    def compare(name, expected):
        left.discard(name)
        found = arrays[name]
        if found.dtype != expected.dtype or found.shape != expected.shape or found.tobytes() != expected.tobytes():
            wrong.append(f"{name}: {found.dtype} {found.shape}, expected {expected.dtype} {expected.shape}")

    def visit(name, thing):
        for key, value in thing.attrs.items():
            compare(f"{name}@{key}", np.asarray(value.decode() if isinstance(value, bytes) else value))
        if not isinstance(thing, h5py.Dataset):
            return
        if thing.shape is None:  # a generated tensor: of the right shape
            left.discard(name)
            if arrays[name].shape != tuple(thing.attrs["shape"]):
                wrong.append(name)
        elif is_bf16(thing):
            raw = np.empty(thing.shape, np.uint16)
            thing.id.read(h5py.h5s.ALL, h5py.h5s.ALL, raw, thing.id.get_type())
            compare(name, raw if bits else (raw.astype(np.uint32) << 16).view(np.float32))
        else:
            compare(name, thing[()])

    with h5py.File(stored) as file:
        visit("", file)
        file.visititems(visit)
    wrong += [f"{name}: not in {stored}" for name in sorted(left)]
    print(f"{len(arrays.files)} arrays, {len(wrong)} wrong")
    print("\n".join(wrong[:20]))
    return 1 if wrong or not arrays.files else 0


sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:] == ["--bits"]))
