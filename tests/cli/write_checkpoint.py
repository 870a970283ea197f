#!/usr/bin/env python3
"""Small checkpoints with the names, types and block scales of the published ones, and what each weight has to become.

    write_checkpoint.py [--package] FOLDER VARIANT...

FOLDER/VARIANT/ gets config.json, *.safetensors (and an index), and expected/<weight of the fixture, / as .>: its bytes, computed here with
exact fractions and one rounding to nearest-even. Variants: attn, attn-inference, attn-shards, dflash, dflash-shards, and broken ones,
attn+<WHAT> with a WHAT of BREAKS (without expected/). --package: the files are written by the package `safetensors` (exit 77 where it is not installed), else
by a dozen lines of this file.
"""
import ctypes
import functools
import json
import os
import random
import struct
import sys
from fractions import Fraction

DIM, HEADS, HEAD, Q_RANK, GROUPS, O_RANK, I_HEADS, I_HEAD = 72, 4, 64, 40, 2, 20, 2, 32  # no multiples of the block among them
RATIOS, KV, INDEX, CANDIDATE = [0, 2, 2, 2, 1, 1, 1, 1], [1, 4], [1, 4, 6], 4
TAKEN = [1, 2, 4, 5, 6]  # --layers 2,5-6 and what they read from
BLOCK = 32
HIDDEN, AUX, LAYERS, KV_HEADS, KV_HEAD = 48, 2, 3, 2, 16

draw = random.Random(41)


# ---- numbers ----

def bf16_bits(value):
    """The bits of the bfloat16 nearest to a Fraction, ties to even; no overflow here."""
    magnitude, exponent = abs(value), -126
    if magnitude:
        exponent = max(exponent, magnitude.numerator.bit_length() - magnitude.denominator.bit_length() - 1)
    while magnitude >= Fraction(2) ** (exponent + 1):
        exponent += 1
    units = magnitude / Fraction(2) ** (exponent - 7)
    whole, rest = int(units), units - int(units)
    whole += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1)
    # a whole of 2^7 or more is normal: its leading one adds one to the exponent field
    return whole + ((exponent + 126) << 7) | (value < 0) << 15


def e4m3(code):
    magnitude = Fraction(code & 7, 8) * Fraction(2) ** -6 if code & 0x78 == 0 else (1 + Fraction(code & 7, 8)) * Fraction(2) ** (((code >> 3) & 15) - 7)
    return -magnitude if code & 0x80 else magnitude


@functools.lru_cache(maxsize=None)
def scaled_codes(scale):
    """What each code becomes under a scale: bf16 bits, the sign of a zero kept."""
    return [bf16_bits(e4m3(code) * Fraction(2) ** (scale - 127)) | (code & 0x80) << 8 for code in range(256)]


def bf16_value(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def bf16_tensor(count, scale, offset=0.0):
    return [struct.unpack("<I", struct.pack("<f", offset + scale * draw.uniform(-1, 1)))[0] >> 16 for _ in range(count)]


def shorts(values):
    return struct.pack(f"<{len(values)}H", *values)


# ---- tensors: name -> (dtype, shape, bytes), and what becomes of them ----

class Checkpoint:
    def __init__(self):
        self.tensors, self.expected = {}, {}

    def bf16(self, name, shape, scale, becomes=None, offset=0.0, promoted=False):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = bf16_tensor(count, scale, offset)
        self.tensors[name] = ("BF16", shape, shorts(values))
        if becomes:
            self.expected[becomes] = struct.pack(f"<{count}f", *map(bf16_value, values)) if promoted else shorts(values)

    def f32(self, name, shape, becomes=None):
        data = struct.pack(f"<{shape[0]}f", *(draw.uniform(-2, 2) for _ in range(shape[0])))
        self.tensors[name] = ("F32", shape, data)
        if becomes:
            self.expected[becomes] = data

    def fp8(self, name, shape, becomes=None):
        """Codes of every kind but NaN; blocks of usual size, and some so small that bf16 has to round."""
        rows, columns = shape
        down, across = -(-rows // BLOCK), -(-columns // BLOCK)
        codes = draw.randbytes(rows * columns).translate(bytes(c - 1 if c & 0x7F == 0x7F else c for c in range(256)))
        scales = [draw.choice([112, 113, 114]) for _ in range(down * across)]
        scales[draw.randrange(down * across)] = draw.randrange(0, 4)
        self.tensors[name + ".weight"] = ("F8_E4M3", shape, codes)
        self.tensors[name + ".scale"] = ("F8_E8M0", [down, across], bytes(scales))
        if becomes:
            table = {s: scaled_codes(s) for s in set(scales)}
            out = [table[scales[i // columns // BLOCK * across + i % columns // BLOCK]][code] for i, code in enumerate(codes)]
            self.expected[becomes] = shorts(out)


def attn(prefix, tell):
    c = Checkpoint()
    c.bf16(prefix + "embed.weight", [10, DIM], 1)
    for layer, ratio in enumerate(RATIOS):
        if layer not in TAKEN and layer != 0:
            continue  # left out to be quick; what is not needed is not missed
        at = f"{prefix}layers.{layer}.attn."
        to = f"layers/{TAKEN.index(layer)}/" if tell and layer in TAKEN else None
        becomes = lambda name: to + name if to else None
        c.f32(at + "attn_sink", [HEADS], becomes("attn_sink"))
        c.fp8(at + "wq_a", [Q_RANK, DIM], becomes("wq_a"))
        c.bf16(at + "q_norm.weight", [Q_RANK], 0.3, becomes("q_norm"), 1.0)
        c.fp8(at + "wq_b", [HEADS * HEAD, Q_RANK], becomes("wq_b"))
        c.fp8(at + "wkv", [HEAD, DIM], becomes("wkv"))
        c.bf16(at + "kv_norm.weight", [HEAD], 0.3, becomes("kv_norm"), 1.0)
        c.fp8(at + "wo_a", [GROUPS * O_RANK, HEADS * HEAD // GROUPS], becomes("wo_a"))
        c.fp8(at + "wo_b", [DIM, GROUPS * O_RANK], becomes("wo_b"))
        if layer in KV:
            c.bf16(at + "compressor.wkv.weight", [HEAD, DIM], 0.2, becomes("compressor/wkv"), promoted=ratio > 1)
            if ratio > 1:
                c.bf16(at + "compressor.wgate.weight", [HEAD, DIM], 0.2, becomes("compressor/wgate"), promoted=True)
            c.bf16(at + "compressor.norm.weight", [HEAD], 0.3, becomes("compressor/norm"), 1.0)
            c.bf16(at + "indexer.wk.weight", [I_HEAD, HEAD], 0.2, becomes("indexer/wk"))
            c.bf16(at + "indexer.k_norm.weight", [I_HEAD], 0.3, becomes("indexer/k_norm"), 1.0)
        if layer in INDEX:
            if layer == 6:  # both ways are published
                c.fp8(at + "indexer.wq_b", [I_HEADS * I_HEAD, Q_RANK], becomes("indexer/wq_b"))
            else:
                c.bf16(at + "indexer.wq_b.weight", [I_HEADS * I_HEAD, Q_RANK], 0.3, becomes("indexer/wq_b"))
            c.bf16(at + "indexer.weights_proj.weight", [I_HEADS, DIM], 0.2, becomes("indexer/weights_proj"))
    c.tensors[f"{prefix}mtp.0.norm.weight"] = ("U8", [3], b"abc")
    return c


def dflash(prefix):
    c = Checkpoint()
    kv = KV_HEADS * KV_HEAD
    c.bf16(prefix + "fc.weight", [HIDDEN, AUX * HIDDEN], 0.2, "fc")
    c.bf16(prefix + "hidden_norm.weight", [HIDDEN], 0.3, "hidden_norm", 1.0)
    for layer in range(LAYERS):
        at = f"{prefix}layers.{layer}.self_attn."
        c.bf16(at + "q_proj.weight", [2 * kv, HIDDEN], 0.2)
        c.bf16(at + "k_proj.weight", [kv, HIDDEN], 0.2, f"layers/{layer}/k_proj")
        c.bf16(at + "v_proj.weight", [kv, HIDDEN], 0.2, f"layers/{layer}/v_proj")
        c.bf16(at + "k_norm.weight", [KV_HEAD], 0.3, f"layers/{layer}/k_norm", 1.0)
    return c


# ---- configs ----

def hub_config():
    return {"model_type": "deepseek_v41", "quantization_config": {"quant_method": "fp8", "scale_fmt": "ue8m0", "weight_block_size": [BLOCK, BLOCK]},
            "text_config": {"hidden_size": DIM, "num_hidden_layers": len(RATIOS), "num_attention_heads": HEADS, "head_dim": HEAD,
                            "qk_rope_head_dim": 16, "q_lora_rank": Q_RANK, "o_lora_rank": O_RANK, "o_groups": GROUPS, "sliding_window": 6,
                            "rms_norm_eps": 1e-20, "rope_theta": 10000, "compress_rope_theta": 160000,
                            "rope_scaling": {"rope_type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1,
                                             "original_max_position_embeddings": 65536},
                            "compress_ratios": RATIOS + [0], "kv_source_layer_ids": KV, "index_source_layer_ids": INDEX,
                            "index_n_heads": I_HEADS, "index_head_dim": I_HEAD, "index_topk": 4, "candidate_source_layer_id": CANDIDATE,
                            "candidate_topk_blocks": 2, "candidate_block_size": 2, "num_nextn_predict_layers": 1}}


def inference_config():
    return {"dim": DIM, "n_layers": len(RATIOS), "n_heads": HEADS, "head_dim": HEAD, "rope_head_dim": 16, "q_lora_rank": Q_RANK,
            "o_lora_rank": O_RANK, "o_groups": GROUPS, "window_size": 6, "norm_eps": 1e-20, "rope_theta": 10000, "compress_rope_theta": 160000,
            "original_seq_len": 65536, "rope_factor": 16, "beta_fast": 32, "beta_slow": 1, "compress_ratios": RATIOS + [0],
            "kv_source_layers": KV, "index_source_layers": INDEX, "index_n_heads": I_HEADS, "index_head_dim": I_HEAD, "index_topk": 4,
            "candidate_source_layer": CANDIDATE, "candidate_topk_blocks": 2, "candidate_block_size": 2, "dtype": "fp8"}


def dflash_config():
    return {"architectures": ["DFlash2DraftModel"], "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": 2 * KV_HEADS,
            "num_key_value_heads": KV_HEADS, "head_dim": KV_HEAD, "rms_norm_eps": 1e-6, "sliding_window": 20,
            "rope_parameters": {"rope_theta": 10000000, "rope_type": "default"}, "dflash_config": {"block_size": 8, "target_layer_ids": [5, 19]}}


# ---- what can be wrong ----

def change(name, dtype=None, shape=None, data=None):
    def apply(c, _):
        old = c.tensors[name]
        c.tensors[name] = (dtype or old[0], shape or old[1], data(old[2]) if data else old[2])
    return apply


def add(name, dtype, shape, data):
    def apply(c, _):
        c.tensors[name] = (dtype, shape, data)
    return apply


def remove(name):
    return lambda c, _: c.tensors.pop(name)


def block(size):
    def apply(_, config):
        config["quantization_config"]["weight_block_size"] = [size, size]
    return apply


AT = "layers.2.attn."
BREAKS = {
    "code-nan": change(AT + "wkv.weight", data=lambda d: d[:75] + b"\x7f" + d[76:]),
    "scale-nan": change(AT + "wo_b.scale", data=lambda d: d[:2] + b"\xff" + d[3:]),
    "scale-huge": change(AT + "wo_b.scale", data=lambda d: b"\xfe" * len(d)),
    "norm-inf": change(AT + "q_norm.weight", data=lambda d: d[:6] + b"\x80\xff" + d[8:]),
    "dtype": change(AT + "wkv.weight", dtype="F8_E5M2"),
    "sink-dtype": change(AT + "attn_sink", dtype="I32"),
    "shape": change(AT + "wq_b.weight", shape=[Q_RANK, HEADS * HEAD]),
    "rank": change(AT + "kv_norm.weight", shape=[1, HEAD]),
    "scale-dtype": change(AT + "wq_a.scale", dtype="U8"),
    "scale-shape": change(AT + "wq_a.scale", shape=[3, 2]),
    "needless-scale": add("layers.1.attn.indexer.wk.scale", "F8_E8M0", [1, 2], b"zz"),
    "no-scale": remove(AT + "wq_a.scale"),
    "no-tensor": remove(AT + "wo_a.weight"),
    "no-layer": remove("layers.1.attn.attn_sink"),
    "block-64": block(64),
    "block-128": block(128),
}


# ---- files ----

DTYPES = {"BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E8M0": "float8_e8m0fnu", "F32": "float32", "U8": "uint8"}


def write_plain(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def write_by_package(path, tensors):
    import safetensors
    if hasattr(safetensors, "TensorSpec"):
        kept = {name: ctypes.create_string_buffer(data, len(data)) for name, (_, _, data) in tensors.items()}
        entries = {name: safetensors.TensorSpec(dtype=DTYPES[dtype], shape=shape, data_ptr=ctypes.addressof(kept[name]), data_len=len(data))
                   for name, (dtype, shape, data) in tensors.items()}
    else:  # before 0.8
        entries = {name: {"dtype": DTYPES[dtype], "shape": shape, "data": data} for name, (dtype, shape, data) in tensors.items()}
    safetensors.serialize_file(entries, path, {"format": "pt"})


def write_variant(folder, variant, write):
    kind, _, broken = variant.partition("+")
    of_attn = kind.startswith("attn")
    shards = 3 if kind.endswith("shards") else 1
    prefix = {"attn-inference": "model.", "attn-shards": "language_model.model.", "dflash-shards": "model."}.get(kind, "")
    c = attn(prefix, not broken) if of_attn else dflash(prefix)
    config = dflash_config() if not of_attn else inference_config() if kind == "attn-inference" else hub_config()
    if broken:
        BREAKS[broken](c, config)
    at = os.path.join(folder, variant)
    os.makedirs(os.path.join(at, "expected"))
    with open(os.path.join(at, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
    names = list(c.tensors)
    weight_map = {}
    for shard in range(shards):
        file = "model.safetensors" if shards == 1 else f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        of_shard = {name: c.tensors[name] for name in names[shard::shards]}
        weight_map.update((name, file) for name in of_shard)
        write(os.path.join(at, file), of_shard)
    if shards > 1:
        with open(os.path.join(at, "model.safetensors.index.json"), "w") as f:
            json.dump({"metadata": {"total_size": 1}, "weight_map": weight_map}, f)
    for name, data in c.expected.items():
        with open(os.path.join(at, "expected", name.replace("/", ".")), "wb") as f:
            f.write(data)


def main():
    words = sys.argv[1:]
    write = write_plain
    if words[:1] == ["--package"]:
        words.pop(0)
        write = write_by_package
        try:
            import safetensors  # noqa: F401
        except ImportError:
            sys.exit(77)
    for variant in words[1:]:
        write_variant(words[0], variant, write)


main()
