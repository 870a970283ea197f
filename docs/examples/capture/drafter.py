"""A drafter's context-KV write in PyTorch, captured: docs/capture.md walks through it.

    python3 docs/examples/capture/drafter.py OUT.h5 [bf16-table]        # with the second word cosine and sine are bf16: a common fault
"""
import os
import sys

import torch
from torch import nn

HIDDEN, AUX, LAYERS, HEADS, HEAD_DIM, CAPACITY, THETA = 64, 3, 2, 2, 32, 24, 1e4


class Product(nn.Module):
    """x . W^T in float32, rounded once."""

    def __init__(self, rows, columns):
        super().__init__()
        self.weight = nn.Parameter((torch.randn(rows, columns) / columns**0.5).bfloat16(), requires_grad=False)

    def forward(self, x):
        return (x.float() @ self.weight.float().T).bfloat16()


class Norm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter((1 + torch.randn(width) / 4).bfloat16(), requires_grad=False)

    def forward(self, x):
        x = x.float()
        return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight.float()).bfloat16()


class Rope(nn.Module):
    """Pairs (x[i], x[i + n/2]) of each head, by angles in float32."""

    def __init__(self, table_type):
        super().__init__()
        exponent = torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM
        self.freq, self.table_type = 1.0 / (THETA ** exponent.double()).float(), table_type

    def forward(self, k, position):
        angle = position.float()[:, None, None] * self.freq
        cos, sin = angle.cos().to(self.table_type).float(), angle.sin().to(self.table_type).float()
        a, b = k.float().chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).bfloat16()


class Drafter(nn.Module):
    def __init__(self, table_type=torch.float32):
        super().__init__()
        self.fc, self.hidden_norm = Product(HIDDEN, AUX * HIDDEN), Norm(HIDDEN)
        self.k_proj = nn.ModuleList(Product(HEADS * HEAD_DIM, HIDDEN) for _ in range(LAYERS))
        self.v_proj = nn.ModuleList(Product(HEADS * HEAD_DIM, HIDDEN) for _ in range(LAYERS))
        self.k_norm = nn.ModuleList(Norm(HEAD_DIM) for _ in range(LAYERS))
        self.rope = nn.ModuleList(Rope(table_type) for _ in range(LAYERS))
        self.k_ring = torch.zeros(LAYERS, CAPACITY, HEADS * HEAD_DIM).bfloat16()
        self.v_ring = self.k_ring.clone()

    def forward(self, captured, base):
        position = torch.arange(base, base + len(captured))
        x = self.hidden_norm(self.fc(captured))
        for layer in range(LAYERS):
            k = self.k_norm[layer](self.k_proj[layer](x).unflatten(-1, (HEADS, HEAD_DIM)))
            self.k_ring[layer, position % CAPACITY] = self.rope[layer](k, position).flatten(1)
            self.v_ring[layer, position % CAPACITY] = self.v_proj[layer](x)


def flat(k):
    return k.flatten(1)  # [rows, heads, head_dim] to the fixture's [rows, kv_dim]


def main():
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../fixtures"))
    from capture import Capture  # noqa: E402
    torch.manual_seed(1)
    drafter = Drafter(torch.bfloat16 if sys.argv[2:] == ["bf16-table"] else torch.float32)
    config = dict(hidden=HIDDEN, aux_count=AUX, layers=LAYERS, num_kv_heads=HEADS, head_dim=HEAD_DIM, ring_capacity=CAPACITY, window=16,
                  max_rows=16, rms_eps=1e-6, rope_theta=THETA)
    with Capture(sys.argv[1], "dflash_context_kv", config, source=f"torch {torch.__version__}, drafter.py") as capture:
        names = {"fc.weight": "fc", "hidden_norm.weight": "hidden_norm"}
        for layer in range(LAYERS):
            names.update({f"{name}.{layer}.weight": f"layers/{layer}/{name}" for name in ("k_proj", "v_proj", "k_norm")})
        capture.weights({names[name]: tensor for name, tensor in drafter.named_parameters()})
        capture.watch(drafter.fc, "ctx_combined")
        capture.watch(drafter.hidden_norm, "ctx_normed")
        for layer in range(LAYERS):
            capture.watch(drafter.k_proj[layer], "k_proj", layer)
            capture.watch(drafter.v_proj[layer], "v_proj", layer)
            capture.watch(drafter.k_norm[layer], "k_norm", layer, take=flat)
            capture.watch(drafter.rope[layer], "k_rope", layer, take=flat)
        base = 0
        for rows in (16, 5, 1, 9):  # the last one crosses the end of the ring
            hidden = torch.randn(rows, AUX * HIDDEN).bfloat16()
            with capture.step("capture", base=base, rows=rows) as step:
                step.input("capture", hidden)
            with capture.step("context_write", rows=rows) as step:
                drafter(hidden, base)
                step.expect("k_ring", drafter.k_ring)
                step.expect("v_ring", drafter.v_ring)
            base += rows


if __name__ == "__main__":
    main()
