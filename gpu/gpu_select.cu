/* gpu_select.cu: the k best of each query's items, exactly: scores for a selection, blocks of scores for the candidates.
 *
 * A score becomes a 16-bit rank that orders as layers.md does (equal ranks are ties, 0 is never chosen). Radix select over the ranks in two
 * steps: a histogram of the upper 11 bits names the bin that the k-th best rank is in (11, so that the scores of a row fall into many bins
 * and seldom meet in one counter), a histogram of the lower 5 bits of that bin names the rank itself, `bar`. Chosen are the ranks above bar
 * and the first `at_bar` that equal it: where each goes follows from counting those before it, so the output is in ascending order without
 * a sort and does not depend on who counted first.
 *
 * The items of a query are cut in slices of a block each, those of a block in equal parts of its warps. A row of one slice is chosen from
 * by one block in one launch, all steps through shared memory. A wide row takes three launches, HIGH, LOW and WRITE, of a block a slice;
 * between them each slice's counts lie in scratch, where the next launch's blocks add up what they need. */
#include "gpu_indexer.h"

#if defined(__CUDACC__)
#include "cuda/cuda_internal.cuh"
#endif

namespace LSG_NS {

enum {
  SELECT_WARPS = 16,
  SELECT_THREADS = SELECT_WARPS * 32,
  LANE_ITEMS = 8,               /* consecutive items of a lane: 16 bytes of scores */
  WARP_ITEMS = 32 * LANE_ITEMS, /* a warp's turn */
  LOW_BITS = 5,
  LOW_BINS = 1 << LOW_BITS, /* a lane each */
  HIGH_BINS = 1 << (16 - LOW_BITS),
  NARROW = 32768,        /* items that one block takes alone */
  SLICE = 8192,          /* about, where several blocks share a row */
  COUNTS = LOW_BINS + 1, /* what a slice counts: its ranks in the k-th's bin by their lower bits, and those in higher bins */

  RANK_NONE = 0,        /* -inf, or not to be chosen at all */
  RANK_NAN = 0xFFFE,    /* before every value */
  RANK_ALWAYS = 0xFFFF, /* before NaN too */

  HIGH = 1, /* what a launch does */
  LOW = 2,
  WRITE = 4,
  ALL = HIGH | LOW | WRITE
};

/* ---- ranks ---- */

LSG_DEVICE uint32_t rank_of(uint32_t bits) {
  const uint32_t magnitude = bits & 0x7FFFu;
  if (magnitude > 0x7F80u) return RANK_NAN;
  if (bits == 0xFF80u) return RANK_NONE;
  if (magnitude == 0) return 0x8000u; /* -0 equals +0 */
  return bits & 0x8000u ? ~bits & 0xFFFFu : bits | 0x8000u;
}

/* The eight 16-bit values at `from`, of which the first `exist` may be read; the others are `none`. vector: from is 16-byte aligned. */
LSG_DEVICE void load8(uint32_t v[8], const uint16_t *from, int exist, uint32_t none, bool vector) {
  if (vector && exist >= 8) {
    const lsg_u32x4 p = lsg_load16(from);
    const uint32_t word[4] = {p.x, p.y, p.z, p.w};
    LSG_UNROLL
    for (int i = 0; i < 8; i++) v[i] = i & 1 ? word[i / 2] >> 16 : word[i / 2] & 0xFFFFu;
  } else {
    LSG_UNROLL
    for (int i = 0; i < 8; i++) v[i] = i < exist ? from[i] : none;
  }
}

/* ---- what is selected: a job has job_items, _k, _prepare, _ranks, _write, _finish and _write_end ----
 * What is passed to a kernel has 64-bit members only: the emulator looks for host pointers in every eight bytes, padding included. */

/* Positions by their scores, inside a mask where there is one. */
typedef struct {
  int32_t *idx;
  const uint16_t *score;
  const uint8_t *mask;
  int64_t ld, k_most, n_most, topk;
  int64_t vector; /* rows of score and mask are 16-byte aligned */
} topk_job;

LSG_DEVICE int job_items(const topk_job &, const ls_gpu_attn_step *step, int64_t t) { return (int)attn_visible(step, t); }
LSG_DEVICE uint32_t job_k(const topk_job &job, const ls_gpu_attn_step *step) { return (uint32_t)(job.topk < step->n ? job.topk : step->n); }
LSG_DEVICE void job_prepare(const topk_job &, const ls_gpu_attn_step *, int64_t, int, int) {}

/* Ranks of items first .. first + 7 (first a multiple of 8); RANK_NONE from `items` on. */
LSG_DEVICE void job_ranks(uint32_t rank[8], const topk_job &job, int64_t t, int first, int items) {
  load8(rank, job.score + t * job.n_most + first, items - first, 0xFF80u, job.vector);
  LSG_UNROLL
  for (int i = 0; i < 8; i++) rank[i] = rank_of(rank[i]);
  if (job.mask == nullptr) return;
  const uint8_t *mask = job.mask + t * job.n_most + first;
  if (job.vector && items - first >= 8) {
    const lsg_u32x4 p = lsg_load16(mask - (first & 8)); /* two lanes share 16 bytes of mask */
    const uint32_t word[2] = {first & 8 ? p.z : p.x, first & 8 ? p.w : p.y};
    LSG_UNROLL
    for (int i = 0; i < 8; i++) rank[i] = (word[i / 4] >> (i % 4 * 8) & 0xFFu) != 0 ? rank[i] : (uint32_t)RANK_NONE;
  } else {
    LSG_UNROLL
    for (int i = 0; i < 8; i++) rank[i] = i < items - first && mask[i] != 0 ? rank[i] : (uint32_t)RANK_NONE;
  }
}

/* Items first .. first + 7: bit i of chosen is item i, place is that of the first chosen one among all of the row. */
LSG_DEVICE void job_write(const topk_job &job, const ls_gpu_attn_step *step, int64_t t, int first, unsigned chosen, uint32_t place) {
  int32_t *to = job.idx + t * job.ld;
  const int32_t item = first + (int32_t)step->rows_a;
  LSG_UNROLL
  for (int i = 0; i < 8; i++) {
    if (chosen >> i & 1u) to[place++] = item + i;
  }
}

/* After the `found` chosen ones nothing. One block of a row. */
LSG_DEVICE void job_finish(const topk_job &job, int64_t t, uint32_t found) {
  for (int64_t i = (int64_t)found + lsg_thread(); i < job.k_most; i += SELECT_THREADS) job.idx[t * job.ld + i] = -1;
}

/* Items that have to be written, chosen or not, where the row has `items`. */
LSG_DEVICE int job_write_end(const topk_job &, int items) { return items; }

/* Blocks of positions by their best score; their ranks are worked out once and kept in scratch. */
typedef struct {
  uint8_t *mask;
  uint16_t *rank; /* [m, ranks_ld] */
  const uint16_t *score;
  int64_t ranks_ld, n_most, block, topk;
  int64_t vector; /* blocks of eight, rows of score and mask 16-byte aligned */
} candidate_job;

LSG_DEVICE int job_items(const candidate_job &job, const ls_gpu_attn_step *step, int64_t t) {
  return (int)((attn_visible(step, t) + job.block - 1) / job.block);
}
LSG_DEVICE uint32_t job_k(const candidate_job &job, const ls_gpu_attn_step *) { return (uint32_t)job.topk; }

/* Ranks of blocks [first, last). */
LSG_DEVICE void job_prepare(const candidate_job &job, const ls_gpu_attn_step *step, int64_t t, int first, int last) {
  const int64_t visible = attn_visible(step, t);
  const uint16_t *score = job.score + t * job.n_most;
  for (int b = first + lsg_thread(); b < last; b += SELECT_THREADS) {
    const int64_t from = (int64_t)b * job.block, length = visible - from < job.block ? visible - from : job.block;
    uint32_t best = RANK_NONE;
    for (int64_t i = 0; i < length; i += 8) {
      uint32_t v[8];
      load8(v, score + from + i, length - i < 8 ? (int)(length - i) : 8, 0xFF80u, job.vector);
      LSG_UNROLL
      for (int e = 0; e < 8; e++) {
        const uint32_t r = rank_of(v[e]);
        best = r > best ? r : best;
      }
    }
    job.rank[t * job.ranks_ld + b] = (uint16_t)(from + job.block >= visible ? (uint32_t)RANK_ALWAYS : best); /* the newest one's */
  }
}

LSG_DEVICE void job_ranks(uint32_t rank[8], const candidate_job &job, int64_t t, int first, int items) {
  load8(rank, job.rank + t * job.ranks_ld + first, items - first, RANK_NONE, true);
}

/* A kept block is whole, as far as step->n; everything else up to n_most is 0. */
LSG_DEVICE void job_write(const candidate_job &job, const ls_gpu_attn_step *step, int64_t t, int first, unsigned chosen, uint32_t) {
  uint8_t *mask = job.mask + t * job.n_most;
  if (job.vector && first * 8 + 64 <= step->n) {
    LSG_UNROLL
    for (int i = 0; i < 8; i += 2) {
      const uint32_t lo = chosen >> i & 1u ? 0x01010101u : 0u, hi = chosen >> (i + 1) & 1u ? 0x01010101u : 0u;
      lsg_u32x4 v = {lo, lo, hi, hi};
      lsg_store16(mask + (first + i) * 8, v);
    }
    return;
  }
  for (int i = 0; i < 8; i++) {
    const int64_t from = (int64_t)(first + i) * job.block, end = from + job.block < job.n_most ? from + job.block : job.n_most;
    for (int64_t j = from; j < end; j++) mask[j] = (chosen >> i & 1u) != 0 && j < step->n;
  }
}

LSG_DEVICE void job_finish(const candidate_job &, int64_t, uint32_t) {}
LSG_DEVICE int job_write_end(const candidate_job &job, int) { return (int)((job.n_most + job.block - 1) / job.block); }

/* ---- sums and scans of a warp ---- */

LSG_DEVICE uint32_t warp_add(uint32_t v LSG_SITE) {
#if defined(__CUDACC__)
  return __reduce_add_sync(LSG_FULL_MASK, v); /* one instruction */
#else
  for (int offset = 16; offset > 0; offset >>= 1) v += lsg_shfl_xor(LSG_FULL_MASK, v, offset LSG_SITE_PASS);
  return v;
#endif
}

/* The sum of v over lanes 0 .. lsg_lane(). */
LSG_DEVICE uint32_t warp_scan(uint32_t v LSG_SITE) {
  LSG_UNROLL
  for (int offset = 1; offset < 32; offset <<= 1) {
    const uint32_t below = lsg_shfl_up(LSG_FULL_MASK, v, offset LSG_SITE_PASS);
    if (lsg_lane() >= offset) v += below;
  }
  return v;
}

/* ---- the kernel ---- */

/* How a row is cut, and the scratch of rows of several slices (NULL where there is one). */
typedef struct {
  int64_t slice, slices; /* items of one (a multiple of WARP_ITEMS), how many in a row of n_most's length */
  uint32_t *high;        /* [m, HIGH_BINS] */
  uint32_t *cut;         /* [m, 2]: the k-th's bin of the upper bits, and which one in it (from the best) the k-th is */
  uint32_t *counts;      /* [m, slices, COUNTS] */
} select_rows;

/* What other blocks of the same launch wrote: not from this SM's own cache. */
LSG_DEVICE uint32_t load_fresh(const uint32_t *p) {
#if defined(__CUDACC__)
  return __ldcg(p);
#else
  return *p;
#endif
}

/* In which bin of the upper bits the k-th best is and which one in it, into cut; bin 0, which no rank is in, and "none" where fewer than k
 * ranks are above RANK_NONE: everything is above it. Thread i adds up bins from the top: its own are those below thread i - 1's. */
template <int warps, bool fresh>
LSG_DEVICE void find_high(uint32_t cut[2], uint32_t warp_total[warps], const uint32_t *high, uint32_t k) {
  const int THREAD_BINS = HIGH_BINS / (warps * 32);
  const int top = HIGH_BINS - 1 - lsg_thread() * THREAD_BINS;
  uint32_t count[THREAD_BINS], own = 0;
  LSG_UNROLL
  for (int i = 0; i < THREAD_BINS; i++) own += count[i] = fresh ? load_fresh(high + top - i) : high[top - i];
  uint32_t before = warp_scan(own);
  if (lsg_lane() == 31) warp_total[lsg_warp()] = before;
  if (lsg_thread() == 0) cut[0] = 0, cut[1] = 0xFFFFFFFFu;
  lsg_barrier();
  before -= own;
  before += warp_add(lsg_lane() < lsg_warp() ? warp_total[lsg_lane()] : 0u);
  if (before < k && k <= before + own) { /* one thread, or none */
    LSG_UNROLL
    for (int i = 0; i < THREAD_BINS; i++) {
      if (before < k && k <= before + count[i]) cut[0] = (uint32_t)(top - i), cut[1] = k - before;
      before += count[i];
    }
  }
  lsg_barrier();
}

/* Counts one more in bin, which is not counted yet itself: neighbours often share a bin, and so an addition. */
LSG_DEVICE void count_run(uint32_t *bins, int *bin, uint32_t *length, int next) {
  if (next != *bin) {
    if (*length > 0) lsg_atomic_add(&bins[*bin], *length);
    *bin = next, *length = 0;
  }
  ++*length;
}

/* Grid (m, slices). */
template <class job_t, int phases>
LSG_KERNEL(SELECT_THREADS)
void select_kernel(job_t job, select_rows rows, const ls_gpu_attn_step *step) {
  LSG_SHARED(uint32_t, high, HIGH_BINS);
  lsg_let_next();
  lsg_wait_before();
  LSG_SHARED(uint32_t, low, LOW_BINS);
  LSG_SHARED(uint32_t, warp_total, SELECT_WARPS);
  LSG_SHARED(uint32_t, cut, 2);
  LSG_SHARED(uint32_t, sum, 3); /* of the row, or of the slice: ranks in higher bins; before this slice: above bar, at bar */
  const int64_t t = lsg_block_x();
  const int row_slices = (int)rows.slices, slice_items = (int)rows.slice;
  const int slice = (int)lsg_block_y(), slice_first = slice * slice_items, items = job_items(job, step, t);
  const int lane = lsg_lane(), warp = lsg_warp();

  /* this warp's part of the slice */
  const int part = (slice_items + SELECT_WARPS * WARP_ITEMS - 1) / (SELECT_WARPS * WARP_ITEMS) * WARP_ITEMS;
  const int part_first = slice_first + warp * part, slice_end = slice_first + slice_items;
  const int part_end = part_first + part < slice_end ? part_first + part : slice_end;
  const int count_end = part_end < items ? part_end : items;
  uint32_t rank[8];

  if constexpr ((phases & HIGH) != 0) {
    if (slice_first >= items && slice > 0) return;
    for (int i = lsg_thread(); i < HIGH_BINS; i += SELECT_THREADS) high[i] = 0;
    job_prepare(job, step, t, slice_first, slice_end < items ? slice_end : items);
    lsg_barrier();
    int bin = 0;
    uint32_t length = 0;
    for (int at = part_first; at < count_end; at += WARP_ITEMS) {
      job_ranks(rank, job, t, at + lane * LANE_ITEMS, items);
      LSG_UNROLL
      for (int i = 0; i < 8; i++) {
        if (rank[i] != RANK_NONE) count_run(high, &bin, &length, (int)(rank[i] >> LOW_BITS));
      }
    }
    if (length > 0) lsg_atomic_add(&high[bin], length);
    lsg_barrier();
    if constexpr (phases == HIGH) {
      for (int i = lsg_thread(); i < HIGH_BINS; i += SELECT_THREADS) {
        if (high[i] != 0) lsg_atomic_add(&rows.high[t * HIGH_BINS + i], high[i]);
      }
    }
  }

  if constexpr ((phases & LOW) != 0) {
    if (slice_first >= items && slice > 0) return;
    if (lsg_thread() < LOW_BINS) low[lsg_thread()] = 0;
    if (lsg_thread() < 3) sum[lsg_thread()] = 0;
    find_high<SELECT_WARPS, false>(cut, warp_total, (phases & HIGH) != 0 ? high : rows.high + t * HIGH_BINS, job_k(job, step));
    const uint32_t kth = cut[0];
    int bin = 0;
    uint32_t length = 0, higher = 0;
    for (int at = part_first; at < count_end; at += WARP_ITEMS) {
      job_ranks(rank, job, t, at + lane * LANE_ITEMS, items);
      LSG_UNROLL
      for (int i = 0; i < 8; i++) {
        higher += rank[i] >> LOW_BITS > kth ? 1u : 0u;
        if (rank[i] >> LOW_BITS == kth && rank[i] != RANK_NONE) count_run(low, &bin, &length, (int)(rank[i] & (LOW_BINS - 1)));
      }
    }
    if (length > 0) lsg_atomic_add(&low[bin], length);
    higher = warp_add(higher);
    if (lane == 0) lsg_atomic_add(&sum[0], higher);
    lsg_barrier();
    if constexpr (phases == LOW) {
      uint32_t *counts = rows.counts + (t * row_slices + slice) * COUNTS;
      if (lsg_thread() < LOW_BINS) counts[lsg_thread()] = low[lsg_thread()];
      if (lsg_thread() == LOW_BINS) counts[LOW_BINS] = sum[0];
      if (lsg_thread() < 2 && slice == 0) rows.cut[t * 2 + lsg_thread()] = cut[lsg_thread()];
    }
  }

  if constexpr ((phases & WRITE) != 0) {
    const int write_end = job_write_end(job, items);
    if (slice_first >= write_end && slice > 0) return;
    const uint32_t *counts = rows.counts + t * row_slices * COUNTS;
    if constexpr (phases == WRITE) {
      const int counted = items > 0 ? (items + slice_items - 1) / slice_items : 1; /* slices that LOW did not leave at once */
      if (lsg_thread() < LOW_BINS) low[lsg_thread()] = 0;
      if (lsg_thread() < 3) sum[lsg_thread()] = 0;
      if (lsg_thread() < 2) cut[lsg_thread()] = rows.cut[t * 2 + lsg_thread()];
      lsg_barrier();
      uint32_t own = 0, higher = 0;
      for (int s = warp; s < counted; s += SELECT_WARPS) {
        own += counts[s * COUNTS + lane];
        if (lane == 0) higher += counts[s * COUNTS + LOW_BINS];
      }
      if (own > 0) lsg_atomic_add(&low[lane], own);
      if (higher > 0) lsg_atomic_add(&sum[0], higher);
      lsg_barrier();
    }

    /* bar and at_bar: lane i has the i-th best of the lower bits; the one where the count from above reaches the k-th knows */
    const uint32_t in_bin = low[LOW_BINS - 1 - lane], reached = warp_scan(in_bin), left = cut[1];
    const bool is_kth = reached - in_bin < left && left <= reached;
    const uint32_t bar = warp_add(is_kth ? cut[0] << LOW_BITS | (uint32_t)(LOW_BINS - 1 - lane) : 0u);
    const uint32_t at_bar = warp_add(is_kth ? left - (reached - in_bin) : 0u);
    const uint32_t bar_low = bar & (LOW_BINS - 1);
    const uint32_t found = sum[0] + warp_add((uint32_t)(LOW_BINS - 1 - lane) > bar_low ? in_bin : 0u) + at_bar;

    if constexpr (phases == WRITE) { /* what the slices before this one have */
      uint32_t above = 0, equal = 0;
      for (int s = warp; s < slice && s * slice_items < items; s += SELECT_WARPS) {
        const uint32_t v = counts[s * COUNTS + lane];
        if ((uint32_t)lane > bar_low) above += v;
        if ((uint32_t)lane == bar_low) equal += v;
        if (lane == 0) above += counts[s * COUNTS + LOW_BINS];
      }
      if (above > 0) lsg_atomic_add(&sum[1], above);
      if (equal > 0) lsg_atomic_add(&sum[2], equal);
    }

    uint32_t pair = 0; /* ranks above bar in the upper half, those at bar in the lower: a slice has at most 32768 */
    for (int at = part_first; at < count_end; at += WARP_ITEMS) {
      job_ranks(rank, job, t, at + lane * LANE_ITEMS, items);
      LSG_UNROLL
      for (int i = 0; i < 8; i++) pair += rank[i] > bar ? 0x10000u : rank[i] == bar && bar != RANK_NONE ? 1u : 0u;
    }
    pair = warp_add(pair);
    if (lane == 0) warp_total[warp] = pair;
    lsg_barrier();
    pair = warp_add(lane < warp ? warp_total[lane] : 0u);
    uint32_t above = sum[1] + (pair >> 16), equal = sum[2] + (pair & 0xFFFFu);

    for (int at = part_first; at < part_end && at < write_end; at += WARP_ITEMS) {
      const int first = at + lane * LANE_ITEMS;
      job_ranks(rank, job, t, first, items);
      pair = 0;
      LSG_UNROLL
      for (int i = 0; i < 8; i++) pair += rank[i] > bar ? 0x10000u : rank[i] == bar && bar != RANK_NONE ? 1u : 0u;
      const uint32_t until = warp_scan(pair), before = until - pair;
      uint32_t equals = equal + (before & 0xFFFFu);
      const uint32_t place = above + (before >> 16) + (equals < at_bar ? equals : at_bar);
      unsigned chosen = 0;
      LSG_UNROLL
      for (int i = 0; i < 8; i++) {
        const bool is_equal = rank[i] == bar && bar != RANK_NONE;
        if (rank[i] > bar || (is_equal && equals < at_bar)) chosen |= 1u << i;
        equals += is_equal ? 1u : 0u;
      }
      job_write(job, step, t, first, chosen, place);
      pair = lsg_shfl(LSG_FULL_MASK, until, 31);
      above += pair >> 16, equal += pair & 0xFFFFu;
    }
    if (slice == 0) job_finish(job, t, found);
  }
}

/* ---- one query: each warp has one turn, and ranks stay in registers ---- */

enum {
  ONCE_WARPS = 16,
  ONCE_THREADS = ONCE_WARPS * 32,
  ONCE_ITEMS = ONCE_WARPS * WARP_ITEMS, /* of a slice, at most */
};

/* Several slices meet between their steps: that takes all their blocks at once on the device, which the emulator does not have. The
 * scratch's counters are zero before and after. */
typedef struct {
  int64_t slice;    /* items of one, a multiple of WARP_ITEMS */
  uint32_t *high;   /* [HIGH_BINS] */
  uint32_t *gate;   /* its upper bit turns when all have come, the others are zero then */
  uint32_t *counts; /* [slices, COUNTS] */
} once_rows;

/* What follows is small, because a launch in a cold cache waits for its code too: rows of whole 16 bytes only (job.vector), whose elements
 * past n are -inf. */
LSG_DEVICE void ranks_of(uint32_t rank[8], const uint16_t *score) {
  const lsg_u32x4 p = lsg_load16(score);
  const uint32_t word[4] = {p.x, p.y, p.z, p.w};
  LSG_UNROLL
  for (int i = 0; i < 8; i++) rank[i] = rank_of(i & 1 ? word[i / 2] >> 16 : word[i / 2] & 0xFFFFu);
}

LSG_DEVICE int once_items(const topk_job &, int n) { return n; }
LSG_DEVICE uint32_t once_k(const topk_job &job, int n) { return (uint32_t)(job.topk < n ? (int)job.topk : n); }
LSG_DEVICE void once_prepare(uint16_t *, const topk_job &, int, int, int) {}
LSG_DEVICE void once_ranks(uint32_t rank[8], const topk_job &job, const uint16_t *, int first) {
  ranks_of(rank, job.score + first);
  if (job.mask == nullptr) return;
  const uint32_t *mask = reinterpret_cast<const uint32_t *>(job.mask + first);
  const uint32_t word[2] = {mask[0], mask[1]};
  LSG_UNROLL
  for (int i = 0; i < 8; i++) rank[i] = (word[i / 4] >> (i % 4 * 8) & 0xFFu) != 0 ? rank[i] : (uint32_t)RANK_NONE;
}

LSG_DEVICE int once_items(const candidate_job &, int n) { return (n + 7) / 8; }
LSG_DEVICE uint32_t once_k(const candidate_job &job, int) { return (uint32_t)job.topk; }
LSG_DEVICE void once_prepare(uint16_t *prepared, const candidate_job &job, int slice_first, int slice_end, int items) {
  for (int b = slice_first + lsg_thread(); b < slice_end; b += lsg_block_threads()) {
    uint32_t rank[8];
    ranks_of(rank, job.score + b * 8);
    LSG_UNROLL
    for (int i = 1; i < 8; i++) rank[0] = rank[i] > rank[0] ? rank[i] : rank[0];
    prepared[b - slice_first] = (uint16_t)(b + 1 == items ? (uint32_t)RANK_ALWAYS : rank[0]);
  }
  lsg_barrier();
}
LSG_DEVICE void once_ranks(uint32_t rank[8], const candidate_job &, const uint16_t *prepared, int) {
  const lsg_u32x4 p = lsg_load16(prepared + lsg_thread() * LANE_ITEMS);
  const uint32_t word[4] = {p.x, p.y, p.z, p.w};
  LSG_UNROLL
  for (int i = 0; i < 8; i++) rank[i] = i & 1 ? word[i / 2] >> 16 : word[i / 2] & 0xFFFFu;
}

/* All of `blocks` blocks have come here, and see what the others wrote before. */
LSG_DEVICE void slices_meet(uint32_t *gate, int blocks) {
#if defined(__CUDACC__)
  lsg_barrier();
  if (lsg_thread() == 0) {
    lsg_fence();
    const uint32_t before = lsg_atomic_add(gate, lsg_block_y() == 0 ? 0x80000000u - (uint32_t)(blocks - 1) : 1u);
    uint32_t now;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(gate) : "memory");
    } while (((before ^ now) & 0x80000000u) == 0);
    lsg_fence();
  }
  lsg_barrier();
#else
  (void)gate, (void)blocks;
#endif
}

/* Grid (1, slices). */
template <class job_t, bool several>
LSG_KERNEL(ONCE_THREADS)
void select_once_kernel(job_t job, once_rows rows, const ls_gpu_attn_step *step) {
  LSG_SHARED(uint32_t, high, HIGH_BINS);
  lsg_let_next();
  lsg_wait_before();
  LSG_SHARED(uint32_t, low, 2 * LOW_BINS); /* of the row; of the slices before this one */
  LSG_SHARED(uint32_t, warp_total, ONCE_WARPS);
  LSG_SHARED(uint32_t, cut, 2);
  LSG_SHARED(uint32_t, sum, 2); /* ranks in higher bins: of the row, of the slices before this one */
  LSG_SHARED(uint16_t, prepared, ONCE_ITEMS);
  const int lane = lsg_lane(), warp = lsg_warp(), thread = lsg_thread();
  const int slice = several ? (int)lsg_block_y() : 0, slice_items = several ? (int)rows.slice : (int)ONCE_ITEMS;
  const int slice_first = slice * slice_items, first = slice_first + thread * LANE_ITEMS;
  const int n = (int)step->n, items = once_items(job, n), slices = several && items > 0 ? (items + slice_items - 1) / slice_items : 1;
  const int slice_end = slice_first + slice_items < items ? slice_first + slice_items : items;
  const bool has = thread * LANE_ITEMS < slice_items; /* whole warps */
  if (several && slice >= slices) {
    if (has && first < job_write_end(job, items)) job_write(job, step, 0, first, 0, 0);
    return;
  }

  once_prepare(prepared, job, slice_first, slice_end, items);
  uint32_t rank[8];
  LSG_UNROLL
  for (int i = 0; i < 8; i++) rank[i] = RANK_NONE;
  if (has && first < items) once_ranks(rank, job, prepared, first);
  lsg_store16(high + thread * (HIGH_BINS / ONCE_THREADS), lsg_zero16());
  if (thread < 2 * LOW_BINS) low[thread] = 0;
  if (thread < 2) sum[thread] = 0;
  lsg_barrier();
  LSG_UNROLL
  for (int i = 0; i < 8; i++) {
    if (first + i >= items) rank[i] = RANK_NONE;
    if (rank[i] != RANK_NONE) lsg_atomic_add(&high[rank[i] >> LOW_BITS], 1u);
  }
  if (several) {
    lsg_barrier();
    for (int i = thread; i < HIGH_BINS; i += ONCE_THREADS) {
      if (high[i] != 0) lsg_atomic_add(&rows.high[i], high[i]);
    }
    slices_meet(rows.gate, slices);
  } else {
    lsg_barrier();
  }
  find_high<ONCE_WARPS, several>(cut, warp_total, several ? rows.high : high, once_k(job, n));

  const uint32_t kth = cut[0], left = cut[1];
  uint32_t higher = 0;
  LSG_UNROLL
  for (int i = 0; i < 8; i++) {
    higher += rank[i] >> LOW_BITS > kth ? 1u : 0u;
    if (rank[i] >> LOW_BITS == kth && rank[i] != RANK_NONE) lsg_atomic_add(&low[rank[i] & (LOW_BINS - 1)], 1u);
  }
  higher = warp_add(higher);
  if (lane == 0 && higher > 0) lsg_atomic_add(&sum[0], higher);
  lsg_barrier();
  if (several) {
    uint32_t *counts = rows.counts + slice * COUNTS;
    if (thread < LOW_BINS) counts[thread] = low[thread], low[thread] = 0;
    if (thread == LOW_BINS) counts[LOW_BINS] = sum[0], sum[0] = 0;
    slices_meet(rows.gate, slices);
    for (int i = slice * ONCE_THREADS + thread; i < HIGH_BINS; i += slices * ONCE_THREADS) rows.high[i] = 0;
    uint32_t all = 0, before = 0, higher_all = 0, higher_before = 0;
    for (int s = warp; s < slices; s += ONCE_WARPS) {
      const uint32_t v = load_fresh(rows.counts + s * COUNTS + lane), h = load_fresh(rows.counts + s * COUNTS + LOW_BINS);
      all += v, higher_all += h;
      if (s < slice) before += v, higher_before += h;
    }
    if (all > 0) lsg_atomic_add(&low[lane], all);
    if (before > 0) lsg_atomic_add(&low[LOW_BINS + lane], before);
    if (lane == 0) {
      if (higher_all > 0) lsg_atomic_add(&sum[0], higher_all);
      if (higher_before > 0) lsg_atomic_add(&sum[1], higher_before);
    }
    lsg_barrier();
  }

  /* bar and at_bar: lane i has the i-th best of the lower bits; the one where the count from above reaches the k-th knows */
  const uint32_t in_bin = low[LOW_BINS - 1 - lane], reached = warp_scan(in_bin);
  const uint32_t which = warp_add(reached - in_bin < left && left <= reached ? (uint32_t)lane + 1 : 0u);
  uint32_t bar = 0, at_bar = 0, found = sum[0] + lsg_shfl(LSG_FULL_MASK, reached, 31); /* fewer than k: all that have a rank */
  if (which > 0) {
    const int at = (int)which - 1;
    const uint32_t above_bar = lsg_shfl(LSG_FULL_MASK, reached - in_bin, at);
    bar = kth << LOW_BITS | (uint32_t)(LOW_BINS - 1 - at), at_bar = left - above_bar, found = sum[0] + left;
  }
  uint32_t above = sum[1], equal = 0;
  if (several) {
    const uint32_t before = low[LOW_BINS + lane];
    above += warp_add((uint32_t)lane > (bar & (LOW_BINS - 1)) ? before : 0u);
    equal = low[LOW_BINS + (bar & (LOW_BINS - 1))];
  }

  uint32_t pair = 0; /* ranks above bar in the upper half, those at bar in the lower */
  LSG_UNROLL
  for (int i = 0; i < 8; i++) pair += rank[i] > bar ? 0x10000u : rank[i] == bar && bar != RANK_NONE ? 1u : 0u;
  const uint32_t until = warp_scan(pair);
  if (lane == 31) warp_total[warp] = until;
  lsg_barrier();
  pair = until - pair + warp_add(lane < warp ? warp_total[lane] : 0u);
  above += pair >> 16, equal += pair & 0xFFFFu;
  uint32_t place = above + (equal < at_bar ? equal : at_bar);
  unsigned chosen = 0;
  LSG_UNROLL
  for (int i = 0; i < 8; i++) {
    const bool is_equal = rank[i] == bar && bar != RANK_NONE;
    if (rank[i] > bar || (is_equal && equal < at_bar)) chosen |= 1u << i;
    equal += is_equal ? 1u : 0u;
  }
  if (has && first < job_write_end(job, items)) job_write(job, step, 0, first, chosen, place);
  if (slice == 0) job_finish(job, 0, found);
}

/* ---- launches ---- */

static int64_t rounded_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
static int64_t most_slices(int64_t n_most) { return n_most > NARROW ? (n_most + SLICE - 1) / SLICE : 1; }

/* Scratch: first what slices that meet count in, high [HIGH_BINS] and the gate: zero between any two calls. After it, ranks u16 [m, n_most
 * up to 8], then for wide rows high [m, HIGH_BINS], cut [m, 2] and counts [m, slices, COUNTS]; or the counts of slices that meet. */
enum { MEET_BYTES = (HIGH_BINS + 4) * (int)sizeof(uint32_t) };

static size_t rank_bytes(int64_t m, int64_t n_most) { return (size_t)(m * rounded_up(n_most, 8)) * sizeof(uint16_t); }

size_t ls_gpu_select_bytes(int64_t m, int64_t n_most) {
  const int64_t slices = most_slices(n_most), counters = slices > 1 ? m * (HIGH_BINS + 2 + slices * COUNTS) : 0;
  return (size_t)rounded_up(MEET_BYTES + (int64_t)rank_bytes(m, n_most) + counters * (int64_t)sizeof(uint32_t), 16);
}

lsg_status ls_gpu_select_clear(void *scratch, lsg_stream stream) { return lsg_fill(scratch, 0, MEET_BYTES, stream); }

#if defined(__CUDACC__)
/* The most items whose slices are on the device all at once, two a multiprocessor; 0 where LOCKSTEP_PORTABLE asks for what the emulator
 * runs. */
static int64_t meeting_items(void) {
  static const int64_t most = [] {
    cuda_device device;
    const bool told = cuda_device_ask(&device);
    if (!told) cudaGetLastError();
    return told && !device.portable ? (int64_t)2 * device.multiprocessors * ONCE_ITEMS : (int64_t)0;
  }();
  return most;
}
#endif

/* Items that a block takes where others share the rest: a candidate is eight scores. */
[[maybe_unused]] static int64_t once_alone(const topk_job &) { return ONCE_ITEMS; }
[[maybe_unused]] static int64_t once_alone(const candidate_job &) { return 1024; }

template <class job_t>
static lsg_status select_launch(const job_t &job, int64_t items, int64_t m, int64_t n_most, void *scratch, const ls_gpu_attn_step *step,
                                lsg_stream stream) {
#if defined(__CUDACC__)
  const int64_t alone = meeting_items() > 0 ? once_alone(job) : (int64_t)ONCE_ITEMS;
#else
  const int64_t alone = ONCE_ITEMS;
#endif
  if (m == 1 && job.vector && items <= alone) {
    const once_rows none = {ONCE_ITEMS, nullptr, nullptr, nullptr};
    return LSG_LAUNCH_EARLY((select_once_kernel<job_t, false>), lsg_grid(1), ONCE_THREADS, 0, stream, job, none, step);
  }
#if defined(__CUDACC__)
  if (m == 1 && job.vector && items <= meeting_items()) {
    uint32_t *high = static_cast<uint32_t *>(scratch);
    const once_rows rows = {once_alone(job), high, high + HIGH_BINS, high + MEET_BYTES / (int)sizeof *high};
    return LSG_LAUNCH_EARLY((select_once_kernel<job_t, true>), lsg_grid(1, (items + rows.slice - 1) / rows.slice), ONCE_THREADS, 0, stream,
                            job, rows, step);
  }
#endif
  const int64_t most = most_slices(n_most), slice = rounded_up((items + most - 1) / most, WARP_ITEMS);
  select_rows rows = {slice, (items + slice - 1) / slice, nullptr, nullptr, nullptr};
  const lsg_dim3 grid = lsg_grid(m, rows.slices);
  if (rows.slices == 1) return LSG_LAUNCH_EARLY((select_kernel<job_t, ALL>), grid, SELECT_THREADS, 0, stream, job, rows, step);

  rows.high = reinterpret_cast<uint32_t *>(static_cast<unsigned char *>(scratch) + MEET_BYTES + rank_bytes(m, n_most));
  rows.cut = rows.high + m * HIGH_BINS, rows.counts = rows.cut + m * 2;
  lsg_status status = lsg_fill(rows.high, 0, (size_t)(m * HIGH_BINS) * sizeof *rows.high, stream);
  if (status == LSG_OK) status = LSG_LAUNCH_EARLY((select_kernel<job_t, HIGH>), grid, SELECT_THREADS, 0, stream, job, rows, step);
  if (status == LSG_OK) status = LSG_LAUNCH_EARLY((select_kernel<job_t, LOW>), grid, SELECT_THREADS, 0, stream, job, rows, step);
  if (status == LSG_OK) status = LSG_LAUNCH_EARLY((select_kernel<job_t, WRITE>), grid, SELECT_THREADS, 0, stream, job, rows, step);
  return status;
}

static bool is_aligned(const void *p) { return (reinterpret_cast<uintptr_t>(p) & 15u) == 0; }

lsg_status ls_gpu_candidates(uint8_t *mask, const uint16_t *score, int64_t m, int64_t n_most, int64_t block, int64_t topk_blocks,
                             void *scratch, const ls_gpu_attn_step *step, lsg_stream stream) {
  if (n_most == 0) return LSG_OK;
  const int64_t items = (n_most + block - 1) / block;
  const bool vector = block == 8 && n_most % 16 == 0 && is_aligned(score) && is_aligned(mask);
  const int64_t topk = topk_blocks < items ? topk_blocks : items;
  uint16_t *rank = static_cast<uint16_t *>(scratch) + MEET_BYTES / (int)sizeof *rank;
  const candidate_job job = {mask, rank, score, rounded_up(items, 8), n_most, block, topk, vector};
  return select_launch(job, items, m, n_most, scratch, step, stream);
}

lsg_status ls_gpu_topk(int32_t *idx, int64_t ld, int64_t k_most, const uint16_t *score, const uint8_t *mask, int64_t m, int64_t n_most,
                       int64_t topk, void *scratch, const ls_gpu_attn_step *step, lsg_stream stream) {
  if (n_most == 0) return LSG_OK;
  const bool vector = n_most % 16 == 0 && is_aligned(score) && is_aligned(mask);
  const topk_job job = {idx, score, mask, ld, k_most, n_most, topk, vector};
  return select_launch(job, n_most, m, n_most, scratch, step, stream);
}

}  // namespace LSG_NS
