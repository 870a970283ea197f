"""A window-only layer of attn_v41 in PyTorch, captured: a prefill that goes around its ring and decode steps (docs/capture.md).

    python3 docs/examples/capture/attention.py OUT.h5 [bf16-table]      # with the second word cosine and sine are bf16: a common fault
"""
import os
import sys

import torch
from torch import nn

from drafter import Norm, Product

DIM, HEADS, HEAD, TURNED, Q_RANK, O_RANK, GROUPS, WINDOW, THETA, TOKENS = 96, 4, 64, 16, 48, 32, 2, 8, 1e4, 16


def fp8_round_trip(x):
    """e4m3 with a power of two as the scale of each 32 elements; torch 1.13 has no such type."""
    blocks = x.float().unflatten(-1, (-1, 32))
    part, exponent = torch.frexp(blocks.abs().amax(-1, keepdim=True).clamp(min=1e-4) * torch.tensor(1 / 448))
    scale = torch.ldexp(torch.ones(()), exponent - (part == 0.5).int())
    y = (blocks / scale).clamp(-448, 448)
    step = torch.ldexp(torch.ones(()), torch.frexp(y)[1].clamp(min=-5) - 4)
    return (torch.round(y / step) * step * scale).flatten(-2).bfloat16()


class Rope(nn.Module):
    """Adjacent pairs of the last TURNED elements of each head."""

    def __init__(self, table_type, sign=1):
        super().__init__()
        self.freq, self.table_type, self.sign = 1.0 / (THETA ** (torch.arange(0, TURNED, 2).float() / TURNED).double()).float(), table_type, sign

    def forward(self, x, position):  # [rows, heads, HEAD]
        angle = position.float()[:, None, None] * self.freq
        cos, sin = angle.cos().to(self.table_type).float(), self.sign * angle.sin().to(self.table_type).float()
        a, b = x[..., -TURNED:].float().unflatten(-1, (-1, 2)).unbind(-1)
        turned = torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2).bfloat16()
        return torch.cat((x[..., :-TURNED], turned), -1)


class Attention(nn.Module):
    def __init__(self, table_type=torch.float32):
        super().__init__()
        self.wq_a, self.q_norm, self.wq_b = Product(Q_RANK, DIM), Norm(Q_RANK, 1e-20), Product(HEADS * HEAD, Q_RANK)
        self.wkv, self.kv_norm = Product(HEAD, DIM), Norm(HEAD, 1e-20)
        self.attn_sink = nn.Parameter(torch.randn(HEADS), requires_grad=False)
        self.wo_a, self.wo_b = Product(GROUPS * O_RANK, HEADS * HEAD // GROUPS), Product(DIM, GROUPS * O_RANK)
        self.q_rope, self.kv_rope, self.back = Rope(table_type), Rope(table_type), Rope(table_type, -1)
        self.ring = torch.zeros(WINDOW, HEAD).bfloat16()

    def attend(self, q, rows, idx):  # [m, HEADS, HEAD], [n, HEAD], [m, n]: as many entries as one block of the published code has, at most
        picked = rows[idx.clamp(min=0)].float()
        s = (torch.einsum("mhd,mkd->mhk", q.float(), picked) * HEAD**-0.5).masked_fill(idx[:, None] < 0, -torch.inf)
        most = s.amax(-1, keepdim=True)
        p = torch.exp(s - most)
        total = p.sum(-1, keepdim=True) + torch.exp(self.attn_sink[:, None] - most)
        return (torch.einsum("mhk,mkd->mhd", p.bfloat16().float(), picked) / total).bfloat16()

    def forward(self, x, start, seen):
        """seen(stage, tensor): what is computed between the modules."""
        m, position = len(x), torch.arange(start, start + len(x))
        q = self.q_rope(self.wq_b(self.q_norm(self.wq_a(x))).unflatten(-1, (HEADS, HEAD)), position)
        kv = fp8_round_trip(self.kv_rope(self.kv_norm(self.wkv(x))[:, None], position)[:, 0])
        kept = min(m, WINDOW)
        self.ring[position[m - kept:] % WINDOW] = kv[m - kept:]
        if start == 0:
            idx = (position - WINDOW + 1).clamp(min=0)[:, None] + torch.arange(kept)
            rows, idx = kv, idx.masked_fill(idx > position[:, None], -1)
        else:  # oldest first
            idx = (torch.arange(WINDOW) + start % WINDOW + 1)[None] % WINDOW
            rows, idx = self.ring, idx.masked_fill(idx > start, -1)
        o = self.attend(q, rows, idx)
        turned = self.back(o, position)
        grouped = torch.cat([(g.float() @ w.float().T).bfloat16() for g, w in
                             zip(turned.flatten(1).chunk(GROUPS, -1), self.wo_a.weight.chunk(GROUPS))], -1)
        for stage, tensor in (("kv", kv), ("window", self.ring), ("window_idx", idx), ("idx", idx), ("sparse_o", o.flatten(1)),
                              ("o_rot", turned.flatten(1)), ("o_group", grouped)):
            seen(stage, tensor)
        return self.wo_b(grouped)


def main():
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../fixtures"))
    from capture import Capture
    torch.manual_seed(1)
    layer = Attention(torch.bfloat16 if sys.argv[2:] == ["bf16-table"] else torch.float32)
    config = dict(dim=DIM, n_heads=HEADS, head_dim=HEAD, rope_head_dim=TURNED, q_lora_rank=Q_RANK, o_lora_rank=O_RANK, o_groups=GROUPS,
                  window_size=WINDOW, index_n_heads=2, index_head_dim=32, index_topk=8, candidate_topk_blocks=1, candidate_block_size=1,
                  candidate_source_layer=-1, original_seq_len=0, beta_fast=32, beta_slow=1, max_seq_len=64, max_tokens=TOKENS, n_layers=1,
                  norm_eps=1e-20, rope_theta=THETA, compress_rope_theta=THETA, rope_factor=1, compress_ratio=[0], is_kv_source=[0],
                  is_index_source=[0])
    with Capture(sys.argv[1], "attn_v41", config, source=f"torch {torch.__version__}, attention.py") as capture:
        capture.weights({f"layers/0/{name.replace('.weight', '')}": tensor for name, tensor in layer.named_parameters()})
        for module, stage in ((layer.wq_a, "qr_proj"), (layer.q_norm, "qr"), (layer.wq_b, "q_proj"), (layer.wkv, "kv_proj"),
                              (layer.kv_norm, "kv_norm"), (layer.wo_b, "out")):
            capture.watch(module, stage)
        capture.watch(layer.q_rope, "q", take=lambda q: q.flatten(1))
        capture.watch(layer.kv_rope, "kv_rope", take=lambda kv: kv[:, 0])
        capture.watch_input(layer, "x")
        start = 0
        for m in (11, 1, 1, 1):
            with capture.step("forward", layer=0, start_pos=start) as step:
                layer(torch.randn(m, DIM).bfloat16(), start, step.expect)
            start += m


if __name__ == "__main__":
    main()
