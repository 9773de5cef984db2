// Mamba-2 state-space duality (SSD), forward, for half and bfloat16 (sm_80 and later).
// Written for kx. SPDX-License-Identifier: Apache-2.0
//
// For every batch b and head h, with a scalar decay per head and a P x N state:
//
//   delta_t = softplus(dt[b,t,h] + dt_bias[h])
//   H_t     = exp(delta_t * A[h]) * H_{t-1} + delta_t * x_t B_t^T
//   y_t     = H_t C_t + D[h] * x_t
//
// Unrolled, y is a lower triangular matrix times x, and inside a chunk of Q positions it pays to
// compute it as one: as matrix products, on tensor cores. With s_t the sum of delta * A over the
// chunk up to t, and H the state at the chunk's entry,
//
//   y_t = sum_{u <= t in chunk} (C_t . B_u) exp(s_t - s_u) delta_u x_u  +  exp(s_t) H C_t
//
// Only the states at chunk boundaries are ever in memory. Three kernels:
//   1. chunk states:  what a chunk adds to the state, sum_u exp(s_Q - s_u) delta_u x_u B_u^T
//   2. state passing: the recurrence over chunks, element by element; gives the entry states
//   3. chunk outputs: the formula above
// B and C are shared by all heads of a group. A block of 1 or 3 keeps its chunk of them in shared
// memory (3 even their product, in registers) and walks over several heads.
//
// Sums of decays are in base 2. The factor delta_u rides in the exponent, as log2(delta_u), so that
// every weight of a position is one subtraction and one exp2; delta_u = 0 gives exp2(-inf) = 0.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "../tensor_core.cuh"

namespace kx {

constexpr unsigned kFullWarp = 0xffffffffu;
constexpr int kChunk = 128;    // Q
constexpr int kHeadDim = 64;   // P
constexpr int kThreads = 128;  // one per position of the chunk, where positions are handled
constexpr int kPassingThreads = 256;

template <class T>
struct SsdParams {
    const T* x;                  // (batch, length, heads, kHeadDim)
    const T* b;                  // (batch, length, groups, states)
    const T* c;                  // the same
    const T* dt;                 // (batch, length, heads)
    const float* a;              // (heads), negative
    const float* d;              // (heads), may be null: no skip
    const float* dt_bias;        // (heads), may be null
    const float* initial_state;  // (batch, heads, kHeadDim, states), may be null: zeros
    T* y;                        // (batch, length, heads, kHeadDim)
    float* final_state;          // (batch, heads, kHeadDim, states), may be null
    // Workspace, per (batch, chunk, head).
    float* log_decay;        // (2, kChunk): s_t, and s_u - log2(delta_u); both base 2
    float* chunk_states;     // (kHeadDim, states)
    T* entry_states;         // (kHeadDim, states)
    int64_t x_batch_stride;  // strides of batch and position, in elements
    int64_t x_row_stride;
    int64_t bc_batch_stride;
    int64_t bc_row_stride;
    int64_t dt_batch_stride;
    int64_t dt_row_stride;
    int length;
    int chunks;
    int heads;
    int heads_per_group;
    int heads_per_block;
    int blocks_per_group;
    bool softplus;
};

// The chunk and the heads that a block of kernel 1 or 3 works on.
struct BlockWork {
    int group;
    int first_head;
    int end_head;
    int chunk;
    int64_t batch;
    int first_row;  // position in the sequence
    int rows;       // fewer than kChunk in the last chunk

    template <class T>
    __device__ __forceinline__ explicit BlockWork(const SsdParams<T>& params) {
        group = blockIdx.x / params.blocks_per_group;
        const int group_head = blockIdx.x % params.blocks_per_group * params.heads_per_block;
        first_head = group * params.heads_per_group + group_head;
        end_head = group * params.heads_per_group +
                   min(group_head + params.heads_per_block, params.heads_per_group);
        chunk = blockIdx.y;
        batch = blockIdx.z;
        first_row = chunk * kChunk;
        rows = min(kChunk, params.length - first_row);
    }

    // Index of (batch, chunk, head) in the workspace.
    template <class T>
    __device__ __forceinline__ int64_t slot(const SsdParams<T>& params, int head) const {
        return (batch * params.chunks + chunk) * params.heads + head;
    }
};

// Starts the copy of kRows rows into a swizzled tile. Rows from `rows` on become zeros: their
// weights are 0 too, but 0 * (stale NaN) would be NaN.
template <int kRows, int kRowBytes, class T>
__device__ __forceinline__ void load_tile_async(uint32_t tile, const T* source, int64_t row_stride,
                                                int rows) {
    constexpr int kChunksPerRow = kRowBytes / 16;
    constexpr int kRowsPerPass = kThreads / kChunksPerRow;
    static_assert(kRowsPerPass % 8 == 0 && kRows % kRowsPerPass == 0,
                  "a pass advances by whole periods of the swizzle");
    const int chunk = threadIdx.x % kChunksPerRow;
    const int row = threadIdx.x / kChunksPerRow;
    const uint32_t target = tile + tc::swizzled_offset<kRowBytes>(row, chunk);
    const T* first = source + row * row_stride + chunk * 8;
#pragma unroll
    for (int pass = 0; pass < kRows / kRowsPerPass; ++pass) {
        const int step = pass * kRowsPerPass;
        tc::cp_async_16(target + step * kRowBytes, first + step * row_stride, row + step < rows);
    }
}

__device__ __forceinline__ float softplus(float x) {
    // Above 20 the result equals x to float precision; the exponential would overflow at 89.
    return x > 20.0f ? x : log1pf(tc::exp2_approx(x * tc::kLog2e));
}

// Inclusive sum over the block. One barrier; `warp_totals` may be written again after another one.
__device__ __forceinline__ float inclusive_block_sum(float value, float* warp_totals,
                                                     float& total) {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const float earlier = __shfl_up_sync(kFullWarp, value, distance);
        if (lane >= distance) value += earlier;
    }
    if (lane == 31) warp_totals[warp] = value;
    __syncthreads();
    total = 0.0f;
    float before = 0.0f;
#pragma unroll
    for (int w = 0; w < kThreads / 32; ++w) {
        if (w == warp) before = total;
        total += warp_totals[w];
    }
    return before + value;
}

template <int kStates>
struct StateTiles {
    static constexpr int kXRowBytes = kHeadDim * 2;
    static constexpr int kBRowBytes = kStates * 2;
    static constexpr int kXBytes = kChunk * kXRowBytes;
    static constexpr int kBBytes = kChunk * kBRowBytes;
    static constexpr int kSharedBytes = kBBytes + 2 * kXBytes;
    static constexpr int kStateTiles = kStates / 8;
};

// acc += (w x)^T B for the 16 rows of the state (elements of x) that belong to this warp. Positions
// are the k index of the product, so both operands are read transposed, and the weight of a
// position scales two neighbouring elements of an A fragment, in float before it is rounded again.
template <class T, int kStates>
__device__ __forceinline__ void accumulate_chunk_state(float (&acc)[kStates / 8][4],
                                                       uint32_t x_tile, uint32_t b_tile,
                                                       const float* weights) {
    using S = StateTiles<kStates>;
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    // A, transposed: matrices in the order (p low, u low), (p high, u low), (p low, u high), ...
    const uint32_t x_lane = x_tile + tc::swizzled_offset<S::kXRowBytes>(lane % 8 + lane / 16 * 8,
                                                                        warp * 2 + lane / 8 % 2);
    const uint32_t b_lane = b_tile + tc::swizzled_offset<S::kBRowBytes>(lane % 16, lane / 16);
#pragma unroll
    for (int slice = 0; slice < kChunk / 16; ++slice) {
        uint32_t x[4];
        tc::ldmatrix_x4_trans(x, x_lane + slice * 16 * S::kXRowBytes);
        const float* slice_weights = weights + slice * 16 + lane % 4 * 2;
#pragma unroll
        for (int part = 0; part < 4; ++part) {
            const float2 weight = *reinterpret_cast<const float2*>(slice_weights + part / 2 * 8);
            const float2 value = tc::unpack<T>(x[part]);
            x[part] = tc::pack<T>(value.x * weight.x, value.y * weight.y);
        }
#pragma unroll
        for (int pair = 0; pair < S::kStateTiles / 2; ++pair) {
            uint32_t b[4];
            tc::ldmatrix_x4_trans(b, (b_lane ^ (pair * 32)) + slice * 16 * S::kBRowBytes);
            tc::mma_m16n8k16<T>(acc[2 * pair], x, b[0], b[1]);
            tc::mma_m16n8k16<T>(acc[2 * pair + 1], x, b[2], b[3]);
        }
    }
}

// Kernel 1. Also leaves the decays of its positions for kernels 2 and 3.
template <class T, int kStates>
__global__ void __launch_bounds__(kThreads, 3)
    ssd_chunk_states(const __grid_constant__ SsdParams<T> params) {
    using S = StateTiles<kStates>;
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ float warp_totals[kThreads / 32];
    __shared__ __align__(16) float weights[kChunk];
    const uint32_t b_tile = tc::shared_address(shared);
    const uint32_t x_tiles = b_tile + S::kBBytes;

    const BlockWork work(params);
    const int position = threadIdx.x;
    const int64_t row = work.first_row + position;
    const T* x =
        params.x + work.batch * params.x_batch_stride + work.first_row * params.x_row_stride;
    const T* dt = params.dt + work.batch * params.dt_batch_stride + row * params.dt_row_stride;
    const T* b = params.b + work.batch * params.bc_batch_stride +
                 work.first_row * params.bc_row_stride + work.group * kStates;

    const auto load_x = [&](int head) {
        load_tile_async<kChunk, S::kXRowBytes>(x_tiles + (head - work.first_head) % 2 * S::kXBytes,
                                               x + head * kHeadDim, params.x_row_stride, work.rows);
    };
    const auto load_dt = [&](int head) {
        return position < work.rows ? static_cast<float>(dt[head]) : 0.0f;
    };

    load_tile_async<kChunk, S::kBRowBytes>(b_tile, b, params.bc_row_stride, work.rows);
    load_x(work.first_head);
    tc::cp_async_commit();
    float next_dt = load_dt(work.first_head);

#pragma unroll 1
    for (int head = work.first_head; head < work.end_head; ++head) {
        float delta = next_dt + (params.dt_bias == nullptr ? 0.0f : params.dt_bias[head]);
        if (params.softplus) delta = softplus(delta);
        // Positions beyond the end must not decay the state: a step of exactly 0.
        if (position >= work.rows) delta = 0.0f;
        float chunk_decay;
        // The barrier in here also says that everyone is done with the tile of the previous head.
        const float decay =
            inclusive_block_sum(delta * params.a[head] * tc::kLog2e, warp_totals, chunk_decay);

        const bool has_next = head + 1 < work.end_head;
        if (has_next) {
            load_x(head + 1);
            next_dt = load_dt(head + 1);
        }
        tc::cp_async_commit();

        const float weighted_decay = decay - log2f(delta);
        weights[position] = tc::exp2_approx(chunk_decay - weighted_decay);
        const int64_t slot = work.slot(params, head);
        float* log_decay = params.log_decay + slot * (2 * kChunk);
        log_decay[position] = decay;
        log_decay[kChunk + position] = weighted_decay;

        tc::cp_async_wait<1>();  // this head's tile, and B; the next head's may be under way
        __syncthreads();
        float acc[S::kStateTiles][4] = {};
        accumulate_chunk_state<T, kStates>(acc, x_tiles + (head - work.first_head) % 2 * S::kXBytes,
                                           b_tile, weights);

        const int lane = threadIdx.x % 32;
        const int first = threadIdx.x / 32 * 16 + lane / 4;
        float* state = params.chunk_states + slot * (kHeadDim * kStates) + lane % 4 * 2;
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int n = 0; n < S::kStateTiles; ++n)
                *reinterpret_cast<float2*>(state + (first + half * 8) * kStates + n * 8) =
                    make_float2(acc[n][2 * half], acc[n][2 * half + 1]);
    }
}

// Kernel 2. The recurrence over chunks: every thread carries four neighbouring elements of one
// state. The states of several chunks are fetched at once; only the multiply-adds are sequential.
template <class T, int kStates>
__global__ void __launch_bounds__(kPassingThreads)
    ssd_state_passing(const __grid_constant__ SsdParams<T> params) {
    constexpr int kStateSize = kHeadDim * kStates;
    constexpr int kBatch = 4;
    const int element = (blockIdx.x * kPassingThreads + threadIdx.x) * 4;
    const int head = blockIdx.y;
    const int64_t batch = blockIdx.z;
    const int64_t first_slot = batch * params.chunks * params.heads + head;

    float4 state = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    const int64_t state_offset = (batch * params.heads + head) * kStateSize + element;
    if (params.initial_state != nullptr)
        state = *reinterpret_cast<const float4*>(params.initial_state + state_offset);

    for (int first = 0; first < params.chunks; first += kBatch) {
        float4 added[kBatch];
        float log_decay[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            if (first + i < params.chunks) {
                const int64_t slot = first_slot + static_cast<int64_t>(first + i) * params.heads;
                added[i] = *reinterpret_cast<const float4*>(params.chunk_states +
                                                            slot * kStateSize + element);
                log_decay[i] = params.log_decay[slot * (2 * kChunk) + kChunk - 1];
            }
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            if (first + i < params.chunks) {
                const int64_t slot = first_slot + static_cast<int64_t>(first + i) * params.heads;
                *reinterpret_cast<uint2*>(params.entry_states + slot * kStateSize + element) =
                    make_uint2(tc::pack<T>(state.x, state.y), tc::pack<T>(state.z, state.w));
                const float decay = tc::exp2_approx(log_decay[i]);
                state.x = fmaf(decay, state.x, added[i].x);
                state.y = fmaf(decay, state.y, added[i].y);
                state.z = fmaf(decay, state.z, added[i].z);
                state.w = fmaf(decay, state.w, added[i].w);
            }
        }
    }
    if (params.final_state != nullptr)
        *reinterpret_cast<float4*>(params.final_state + state_offset) = state;
}

template <int kStates>
struct OutputTiles {
    static constexpr int kXRowBytes = kHeadDim * 2;
    static constexpr int kCRowBytes = kStates * 2;
    static constexpr int kXBytes = kChunk * kXRowBytes;
    static constexpr int kEntryBytes = kHeadDim * kCRowBytes;
    static constexpr int kDecayBytes = 2 * kChunk * 4;
    static constexpr int kStageBytes = kXBytes + kEntryBytes + kDecayBytes;
    static constexpr int kCBytes = kChunk * kCRowBytes;
    // B is needed only until C B^T is in registers; its tile lies where the second stage will be.
    static constexpr int kSharedBytes = kCBytes + 2 * kStageBytes;
    static_assert(kCBytes <= kStageBytes, "the tile of B must fit into a stage");
    static constexpr int kRowTiles = kChunk / 16;
    static constexpr int kDimTiles = kHeadDim / 8;
};

// C B^T on and below the diagonal. Its row tile r has r + 1 column tiles of 16 x 16; a warp owns
// the row tiles w and 7 - w ("low" and "high"), so every warp has nine tiles and the same work.
// They take nine slots: first those of the high row tile, then those of the low one. As the
// boundary moves with the warp, slots 0 to 4 are always high, 8 is low, and only 5 to 7 have to
// ask. Index [slot][n] is a tile and its eight-column half n.
constexpr int kSlots = 9;
using Products = float[kSlots][2][4];

struct TileOwner {
    int low_tile;
    int high_tile;

    __device__ __forceinline__ TileOwner() {
        low_tile = threadIdx.x / 32;
        high_tile = kChunk / 16 - 1 - low_tile;
    }
    __device__ __forceinline__ bool is_high(int slot) const {
        return slot <= 4 || (slot < 8 && slot <= high_tile);
    }
    __device__ __forceinline__ int row_tile(int slot) const {
        return is_high(slot) ? high_tile : low_tile;
    }
    __device__ __forceinline__ int column_tile(int slot) const {
        return is_high(slot) ? slot : slot - high_tile - 1;
    }
    __device__ __forceinline__ bool on_diagonal(int slot) const {
        return slot == 8 || (slot >= 4 && slot == high_tile);
    }
};

template <class T, int kStates>
__device__ __forceinline__ void multiply_c_b(Products& products, uint32_t c_tile, uint32_t b_tile) {
    using S = OutputTiles<kStates>;
    const TileOwner owner;
    const int lane = threadIdx.x % 32;
    const uint32_t a_lane = c_tile + tc::swizzled_offset<S::kCRowBytes>(lane % 16, lane / 16);
    const uint32_t b_lane =
        b_tile + tc::swizzled_offset<S::kCRowBytes>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot)
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) products[slot][n][e] = 0.0f;
#pragma unroll
    for (int slice = 0; slice < kStates / 16; ++slice) {
        uint32_t c[4];
#pragma unroll
        for (int slot = 0; slot < kSlots; ++slot) {
            // From slot 5 on the row tile may have changed.
            if (slot == 0 || slot >= 5)
                tc::ldmatrix_x4(
                    c, (a_lane ^ (slice * 32)) + owner.row_tile(slot) * 16 * S::kCRowBytes);
            uint32_t b[4];
            tc::ldmatrix_x4(b,
                            (b_lane ^ (slice * 32)) + owner.column_tile(slot) * 16 * S::kCRowBytes);
            tc::mma_m16n8k16<T>(products[slot][0], c, b[0], b[1]);
            tc::mma_m16n8k16<T>(products[slot][1], c, b[2], b[3]);
        }
    }
}

// Output of two row tiles of 16, [0] the low and [1] the high one.
using OutputTile = float[2][kHeadDim / 8][4];

// output = exp(s_t) C H: what the entry state contributes.
template <class T, int kStates>
__device__ __forceinline__ void apply_entry_state(OutputTile& output, uint32_t c_tile,
                                                  uint32_t entry_tile, const float (&decay)[2][2]) {
    using S = OutputTiles<kStates>;
    const int lane = threadIdx.x % 32;
    const int low_tile = threadIdx.x / 32;
    const int high_tile = S::kRowTiles - 1 - low_tile;
    const uint32_t a_lane = c_tile + tc::swizzled_offset<S::kCRowBytes>(lane % 16, lane / 16);
    const uint32_t b_lane =
        entry_tile + tc::swizzled_offset<S::kCRowBytes>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
    for (int slice = 0; slice < kStates / 16; ++slice) {
        uint32_t c[2][4];
        tc::ldmatrix_x4(c[0], (a_lane ^ (slice * 32)) + low_tile * 16 * S::kCRowBytes);
        tc::ldmatrix_x4(c[1], (a_lane ^ (slice * 32)) + high_tile * 16 * S::kCRowBytes);
#pragma unroll
        for (int pair = 0; pair < S::kDimTiles / 2; ++pair) {
            // The entry state's rows are the columns of this product, contiguous in its k index.
            uint32_t b[4];
            tc::ldmatrix_x4(b, (b_lane ^ (slice * 32)) + pair * 16 * S::kCRowBytes);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                tc::mma_m16n8k16<T>(output[i][2 * pair], c[i], b[0], b[1]);
                tc::mma_m16n8k16<T>(output[i][2 * pair + 1], c[i], b[2], b[3]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float factor = tc::exp2_approx(decay[i][half]);
#pragma unroll
            for (int n = 0; n < S::kDimTiles; ++n) {
                output[i][n][2 * half] *= factor;
                output[i][n][2 * half + 1] *= factor;
            }
        }
}

// Weighs one 16x16 tile of C B^T and packs it as an A operand. Accumulator columns 2t, 2t+1 of its
// two halves are the k = 2t, 2t+1, 2t+8, 2t+9 that a lane must hold there. On the diagonal tile a
// position does not see later ones; their exponents may even be positive, so they are not computed
// but replaced.
template <class T>
__device__ __forceinline__ void weigh_tile(uint32_t (&weighed)[4], const float (&products)[2][4],
                                           const float* column_decay, const float (&row_decay)[2],
                                           bool diagonal) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
        const int column = n * 8 + lane % 4 * 2;
        const float2 from = *reinterpret_cast<const float2*>(column_decay + column);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = half * 8 + lane / 4;
            const float w0 = tc::exp2_approx(row_decay[half] - from.x);
            const float w1 = tc::exp2_approx(row_decay[half] - from.y);
            const float p0 = diagonal && column > row ? 0.0f : products[n][2 * half] * w0;
            const float p1 = diagonal && column + 1 > row ? 0.0f : products[n][2 * half + 1] * w1;
            weighed[2 * n + half] = tc::pack<T>(p0, p1);
        }
    }
}

// output += (C B^T weighed) x, over the tiles that the triangle has.
template <class T, int kStates>
__device__ __forceinline__ void apply_chunk(OutputTile& output, const Products& products,
                                            uint32_t x_tile, const float* column_decay,
                                            const float (&row_decay)[2][2]) {
    using S = OutputTiles<kStates>;
    const TileOwner owner;
    const int lane = threadIdx.x % 32;
    const uint32_t x_lane = x_tile + tc::swizzled_offset<S::kXRowBytes>(lane % 16, lane / 16);
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
        const bool high = owner.is_high(slot);
        const int column_tile = owner.column_tile(slot);
        const float slot_decay[2] = {high ? row_decay[1][0] : row_decay[0][0],
                                     high ? row_decay[1][1] : row_decay[0][1]};
        uint32_t weighed[4];
        weigh_tile<T>(weighed, products[slot], column_decay + column_tile * 16, slot_decay,
                      owner.on_diagonal(slot));
#pragma unroll
        for (int pair = 0; pair < S::kDimTiles / 2; ++pair) {
            uint32_t x[4];
            tc::ldmatrix_x4_trans(x, (x_lane ^ (pair * 32)) + column_tile * 16 * S::kXRowBytes);
            // A branch, not an index: accumulators can be addressed by constants only.
            if (high) {
                tc::mma_m16n8k16<T>(output[1][2 * pair], weighed, x[0], x[1]);
                tc::mma_m16n8k16<T>(output[1][2 * pair + 1], weighed, x[2], x[3]);
            } else {
                tc::mma_m16n8k16<T>(output[0][2 * pair], weighed, x[0], x[1]);
                tc::mma_m16n8k16<T>(output[0][2 * pair + 1], weighed, x[2], x[3]);
            }
        }
    }
}

// Lane t of a quad holds word t of four vectors of four words; afterwards it holds vector t. Two
// exchanges, at distance 1 and 2, as in the transposition of a 4x4 matrix by 2x2 blocks.
__device__ __forceinline__ void transpose_quad(uint32_t (&words)[4]) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int distance = 1; distance <= 2; distance *= 2) {
        const bool upper = (t & distance) != 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if ((i & distance) == 0) {
                const uint32_t sent = upper ? words[i] : words[i + distance];
                const uint32_t received = __shfl_xor_sync(kFullWarp, sent, distance);
                if (upper)
                    words[i] = received;
                else
                    words[i + distance] = received;
            }
        }
    }
}

// Adds the skip connection and stores the rows. In the accumulators a lane holds 4 bytes of each
// eight-column tile; a transposition inside the quad makes 16-byte stores out of them, without a
// detour through shared memory.
template <class T, int kStates>
__device__ __forceinline__ void store_output(OutputTile& output, T* y, int64_t row_stride, int rows,
                                             const uint8_t* x_tile, float skip) {
    using S = OutputTiles<kStates>;
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = (i == 0 ? warp : S::kRowTiles - 1 - warp) * 16 + half * 8 + lane / 4;
#pragma unroll
            for (int first = 0; first < S::kDimTiles; first += 4) {
                uint32_t words[4];
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    const int n = first + k;
                    const uint8_t* own =
                        x_tile + tc::swizzled_offset<S::kXRowBytes>(row, n) + lane % 4 * 4;
                    const float2 x = tc::unpack<T>(*reinterpret_cast<const uint32_t*>(own));
                    words[k] = tc::pack<T>(fmaf(skip, x.x, output[i][n][2 * half]),
                                           fmaf(skip, x.y, output[i][n][2 * half + 1]));
                }
                transpose_quad(words);
                if (row < rows) tc::store_16(y + row * row_stride + (first + lane % 4) * 8, words);
            }
        }
}

// Kernel 3. The products C B^T take 72 registers and the output 64; two blocks per SM leave 255.
template <class T, int kStates>
__global__ void __launch_bounds__(kThreads, 2)
    ssd_chunk_outputs(const __grid_constant__ SsdParams<T> params) {
    using S = OutputTiles<kStates>;
    extern __shared__ __align__(1024) uint8_t shared[];
    const uint32_t c_tile = tc::shared_address(shared);
    const uint32_t stages = c_tile + S::kCBytes;
    const uint32_t b_tile = stages + S::kStageBytes;

    const BlockWork work(params);
    const int64_t bc_offset = work.batch * params.bc_batch_stride +
                              work.first_row * params.bc_row_stride + work.group * kStates;
    const T* x =
        params.x + work.batch * params.x_batch_stride + work.first_row * params.x_row_stride;
    const int64_t y_row_stride = static_cast<int64_t>(params.heads) * kHeadDim;
    T* y = params.y + (work.batch * params.length + work.first_row) * y_row_stride;

    const auto load_head = [&](int head) {
        const uint32_t stage = stages + (head - work.first_head) % 2 * S::kStageBytes;
        const int64_t slot = work.slot(params, head);
        load_tile_async<kChunk, S::kXRowBytes>(stage, x + head * kHeadDim, params.x_row_stride,
                                               work.rows);
        load_tile_async<kHeadDim, S::kCRowBytes>(stage + S::kXBytes,
                                                 params.entry_states + slot * (kHeadDim * kStates),
                                                 kStates, kHeadDim);
        if (threadIdx.x < S::kDecayBytes / 16)
            tc::cp_async_16(stage + S::kXBytes + S::kEntryBytes + threadIdx.x * 16,
                            params.log_decay + slot * (2 * kChunk) + threadIdx.x * 4, true);
        tc::cp_async_commit();
    };

    load_tile_async<kChunk, S::kCRowBytes>(c_tile, params.c + bc_offset, params.bc_row_stride,
                                           work.rows);
    load_tile_async<kChunk, S::kCRowBytes>(b_tile, params.b + bc_offset, params.bc_row_stride,
                                           work.rows);
    tc::cp_async_commit();
    load_head(work.first_head);
    tc::cp_async_wait<1>();
    __syncthreads();
    Products products;
    multiply_c_b<T, kStates>(products, c_tile, b_tile);

    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
#pragma unroll 1
    for (int head = work.first_head; head < work.end_head; ++head) {
        tc::cp_async_wait<0>();
        __syncthreads();  // this head's stage has landed, and all have left the other one (or B)
        if (head + 1 < work.end_head) load_head(head + 1);

        const int stage_offset = S::kCBytes + (head - work.first_head) % 2 * S::kStageBytes;
        const uint8_t* stage = shared + stage_offset;
        const uint32_t x_tile = c_tile + stage_offset;
        const auto* decay = reinterpret_cast<const float*>(stage + S::kXBytes + S::kEntryBytes);
        float row_decay[2][2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            row_decay[0][half] = decay[warp * 16 + half * 8 + lane / 4];
            row_decay[1][half] = decay[(S::kRowTiles - 1 - warp) * 16 + half * 8 + lane / 4];
        }

        OutputTile output = {};
        apply_entry_state<T, kStates>(output, c_tile, x_tile + S::kXBytes, row_decay);
        apply_chunk<T, kStates>(output, products, x_tile, decay + kChunk, row_decay);
        store_output<T, kStates>(output, y + head * kHeadDim, y_row_stride, work.rows, stage,
                                 params.d == nullptr ? 0.0f : params.d[head]);
    }
}

template <class T, int kStates>
cudaError_t launch(const SsdParams<T>& params, int batch, cudaStream_t stream) {
    const auto states_kernel = ssd_chunk_states<T, kStates>;
    const auto outputs_kernel = ssd_chunk_outputs<T, kStates>;
    constexpr int kStatesBytes = StateTiles<kStates>::kSharedBytes;
    constexpr int kOutputsBytes = OutputTiles<kStates>::kSharedBytes;
    // More than 48 KiB of shared memory has to be asked for explicitly.
    cudaError_t status = cudaFuncSetAttribute(
        states_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kStatesBytes);
    if (status == cudaSuccess)
        status = cudaFuncSetAttribute(outputs_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      kOutputsBytes);
    if (status != cudaSuccess) return status;

    const int groups = params.heads / params.heads_per_group;
    const dim3 grid(groups * params.blocks_per_group, params.chunks, batch);
    const dim3 passing_grid(kHeadDim * kStates / (4 * kPassingThreads), params.heads, batch);
    states_kernel<<<grid, kThreads, kStatesBytes, stream>>>(params);
    ssd_state_passing<T, kStates><<<passing_grid, kPassingThreads, 0, stream>>>(params);
    outputs_kernel<<<grid, kThreads, kOutputsBytes, stream>>>(params);
    return cudaGetLastError();
}

// Several heads per block share one load of B and C and one product of them, as long as there are
// enough blocks left to keep every multiprocessor busy for a few rounds.
inline int choose_heads_per_block(int64_t chunks_in_all, int heads_per_group, int groups,
                                  int multiprocessors) {
    int heads = min(16, heads_per_group);
    while (heads > 1 && chunks_in_all * groups * ((heads_per_group + heads - 1) / heads) <
                            static_cast<int64_t>(8) * multiprocessors)
        heads /= 2;
    return heads;
}

}  // namespace kx

// Bytes of workspace for log_decay, chunk_states and entry_states together.
extern "C" int64_t kx_ssd_chunk_scan_workspace(int batch, int length, int heads, int states) {
    const int64_t slots =
        static_cast<int64_t>(batch) * ((length + kx::kChunk - 1) / kx::kChunk) * heads;
    return slots * (2 * kx::kChunk * 4 + kx::kHeadDim * states * (4 + 2));
}

// Strides are {batch, position} in elements, of x, of b and c, and of dt; heads, groups and what is
// below them are contiguous, y is contiguous. Head dimension 64, states 64 or 128. dtype: 1 half,
// 2 bfloat16. Returns a cudaError_t as int.
extern "C" int kx_ssd_chunk_scan_forward(
    const void* x, const void* b, const void* c, const void* dt, const float* a, const float* d,
    const float* dt_bias, const float* initial_state, void* y, float* final_state, void* workspace,
    const int64_t* x_strides, const int64_t* bc_strides, const int64_t* dt_strides, int batch,
    int length, int heads, int groups, int states, int dtype, int softplus, void* stream) {
    if (batch < 0 || batch > 65535 || length < 1 || length > 65535 * kx::kChunk || heads < 0 ||
        heads > 65535 || groups < 1 || heads % groups != 0)
        return cudaErrorInvalidValue;
    if (batch == 0 || heads == 0) return cudaSuccess;
    for (const void* pointer :
         {x, b, c, static_cast<const void*>(y), static_cast<const void*>(workspace),
          static_cast<const void*>(initial_state), static_cast<const void*>(final_state)})
        if (reinterpret_cast<uintptr_t>(pointer) % 16 != 0) return cudaErrorMisalignedAddress;
    for (const int64_t* strides : {x_strides, bc_strides})
        if (strides[0] % 8 != 0 || strides[1] % 8 != 0) return cudaErrorMisalignedAddress;

    int device = 0;
    int multiprocessors = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess)
        status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (status != cudaSuccess) return status;

    const auto run = [&](auto element) {
        using T = decltype(element);
        kx::SsdParams<T> params{};
        params.x = static_cast<const T*>(x);
        params.b = static_cast<const T*>(b);
        params.c = static_cast<const T*>(c);
        params.dt = static_cast<const T*>(dt);
        params.a = a;
        params.d = d;
        params.dt_bias = dt_bias;
        params.initial_state = initial_state;
        params.y = static_cast<T*>(y);
        params.final_state = final_state;
        params.x_batch_stride = x_strides[0];
        params.x_row_stride = x_strides[1];
        params.bc_batch_stride = bc_strides[0];
        params.bc_row_stride = bc_strides[1];
        params.dt_batch_stride = dt_strides[0];
        params.dt_row_stride = dt_strides[1];
        params.length = length;
        params.chunks = (length + kx::kChunk - 1) / kx::kChunk;
        params.heads = heads;
        params.heads_per_group = heads / groups;
        const int64_t chunks_in_all = static_cast<int64_t>(batch) * params.chunks;
        params.heads_per_block = kx::choose_heads_per_block(chunks_in_all, params.heads_per_group,
                                                            groups, multiprocessors);
        params.blocks_per_group =
            (params.heads_per_group + params.heads_per_block - 1) / params.heads_per_block;
        params.softplus = softplus != 0;

        const int64_t slots = chunks_in_all * heads;
        params.log_decay = static_cast<float*>(workspace);
        params.chunk_states = params.log_decay + slots * (2 * kx::kChunk);
        params.entry_states =
            reinterpret_cast<T*>(params.chunk_states + slots * kx::kHeadDim * states);
        const auto cuda_stream = static_cast<cudaStream_t>(stream);
        switch (states) {
            case 64:
                return kx::launch<T, 64>(params, batch, cuda_stream);
            case 128:
                return kx::launch<T, 128>(params, batch, cuda_stream);
            default:
                return cudaErrorInvalidValue;
        }
    };
    switch (dtype) {
        case 1:
            return run(__half{});
        case 2:
            return run(__nv_bfloat16{});
        default:
            return cudaErrorInvalidValue;
    }
}
