// FlashAttention-2 forward for half inputs on mma.sync tensor cores (sm_80 and later).
// Written for kx. SPDX-License-Identifier: Apache-2.0
//
//   O = softmax(scale * Q K^T [+ causal mask]) V,   lse = log(sum(exp(scale * Q K^T)))
//
// One block of four warps owns 128 query rows of one head and streams over the keys. Every warp
// owns 32 complete rows, so the softmax never needs another warp: row statistics live in registers
// and are reduced inside quads of lanes. Two 16-row MMA tiles per warp (instead of one) mean that
// each K or V fragment fetched by ldmatrix feeds twice as many MMAs; with 16 rows per warp, shared
// memory bandwidth and not the tensor cores would set the pace.

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "ptx.cuh"
#include "tiles.cuh"

namespace kx {

// Element strides. The head dimension itself is contiguous, so (B, H, L, D) and (B, L, H, D)
// tensors, or slices of a packed QKV projection, can all be passed without a copy.
struct HeadStrides {
    int64_t batch;
    int64_t head;
    int row;  // 32 bits: a row address is then a single widening multiply-add
};

struct FlashAttentionParams {
    const __half* q;
    const __half* k;
    const __half* v;
    __half* o;
    float* lse;  // (B, query heads, Lq), may be null
    HeadStrides q_strides;
    HeadStrides k_strides;
    HeadStrides v_strides;
    HeadStrides o_strides;
    int query_heads;
    int queries_per_kv_head;
    int query_length;
    int key_length;
    float scale_log2;  // softmax scale * log2(e): the kernel works in base 2 throughout
};

// Per-warp accumulators. Index [i][n][e] follows the m16n8 accumulator layout: row tile i,
// column tile n, and e = 2 * (upper half) + column parity.
template <class T>
struct WarpState {
    float output[T::kRowTiles][T::kDimTiles][4];
    float row_max[T::kRowTiles][2];  // raw (unscaled) running maximum
    float row_sum[T::kRowTiles][2];  // this lane's share only; quads are summed once at the end
};

// scores = Q K^T for the warp's 32 rows and one tile of keys.
//
// Lane addresses carry the swizzle: all rows a lane ever addresses agree modulo 8 (tiles are 16
// rows apart), and moving to the next 16-wide slice of the head flips chunk bits above bit 0 only,
// so slice s of any row is simply (lane address) XOR (32 * s). Tile bases are 1 KiB aligned, hence
// the XOR can act on the complete shared address, and row tiles become immediate offsets.
template <class T>
__device__ __forceinline__ void compute_scores(float (&scores)[T::kRowTiles][T::kKeyTiles][4],
                                               uint32_t query_lane, uint32_t key_lane) {
#pragma unroll
    for (int i = 0; i < T::kRowTiles; ++i)
#pragma unroll
        for (int n = 0; n < T::kKeyTiles; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) scores[i][n][e] = 0.0f;

#pragma unroll
    for (int slice = 0; slice < T::kHeadDim / 16; ++slice) {
        // Q is fetched again for every key tile: keeping it would cost 64 registers at D = 128,
        // which the output accumulator has already spoken for.
        uint32_t query[T::kRowTiles][4];
#pragma unroll
        for (int i = 0; i < T::kRowTiles; ++i)
            ptx::ldmatrix_x4(query[i], (query_lane ^ (slice * 32)) + i * 16 * T::kRowBytes);
#pragma unroll
        for (int pair = 0; pair < T::kKeyTiles / 2; ++pair) {
            // K rows are contiguous along the head, which is just what the "col" operand wants:
            // no transpose. One x4 load brings both k-halves of two 8-key tiles.
            uint32_t key[4];
            ptx::ldmatrix_x4(key, (key_lane ^ (slice * 32)) + pair * 16 * T::kRowBytes);
#pragma unroll
            for (int i = 0; i < T::kRowTiles; ++i) {
                ptx::mma_m16n8k16(scores[i][2 * pair], query[i], key[0], key[1]);
                ptx::mma_m16n8k16(scores[i][2 * pair + 1], query[i], key[2], key[3]);
            }
        }
    }
}

// Sets scores of invisible keys to -inf. Only the diagonal and the ragged last tile come here.
template <class T, bool kCausal>
__device__ __forceinline__ void mask_scores(float (&scores)[T::kRowTiles][T::kKeyTiles][4],
                                            int first_row, int first_key, int key_length,
                                            int causal_shift) {
    const int lane = threadIdx.x % 32;
    const int lane_key = first_key + 2 * (lane % 4);
#pragma unroll
    for (int i = 0; i < T::kRowTiles; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first_row + i * 16 + half * 8 + lane / 4;
            const int key_end = kCausal ? min(key_length, row + causal_shift + 1) : key_length;
            const int visible = key_end - lane_key;
#pragma unroll
            for (int n = 0; n < T::kKeyTiles; ++n)
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    if (n * 8 + e >= visible) scores[i][n][2 * half + e] = -INFINITY;
        }
    }
}

// Folds one tile of scores into the running maximum and sum, rescales the output accumulated so
// far, and returns the probabilities as A operands of the second product.
//
// P needs no trip through shared memory: in the accumulator a lane holds columns 2t, 2t+1 of rows
// g and g+8, and in the A operand it must hold k = 2t, 2t+1 and 2t+8, 2t+9 of the same rows. Two
// neighbouring 8-key accumulator tiles therefore are one 16-key A tile, register by register.
template <class T>
__device__ __forceinline__ void online_softmax(
    uint32_t (&probabilities)[T::kRowTiles][T::kKeyTiles / 2][4],
    float (&scores)[T::kRowTiles][T::kKeyTiles][4], WarpState<T>& state, float scale_log2) {
#pragma unroll
    for (int i = 0; i < T::kRowTiles; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float old_max = state.row_max[i][half];
            float new_max = old_max;
#pragma unroll
            for (int n = 0; n < T::kKeyTiles; ++n)
                new_max = fmaxf(new_max, fmaxf(scores[i][n][2 * half], scores[i][n][2 * half + 1]));
            // The four lanes of a quad share the row.
            new_max = fmaxf(new_max, __shfl_xor_sync(0xffffffffu, new_max, 1));
            new_max = fmaxf(new_max, __shfl_xor_sync(0xffffffffu, new_max, 2));

            // A row that has seen no key yet has maximum -inf, and -inf - (-inf) is NaN: measure
            // from 0 instead, all its exponentials then are exp2(-inf) = 0.
            // __fmul_rn keeps both products rounded alike (no contraction into an FMA), so an
            // unchanged maximum gives a correction of exactly 1.
            const float offset = new_max == -INFINITY ? 0.0f : __fmul_rn(new_max, scale_log2);
            const float correction = ptx::exp2_approx(__fmul_rn(old_max, scale_log2) - offset);
            state.row_max[i][half] = new_max;
#pragma unroll
            for (int n = 0; n < T::kDimTiles; ++n) {
                state.output[i][n][2 * half] *= correction;
                state.output[i][n][2 * half + 1] *= correction;
            }

            // exp(scale * (s - max)) = exp2(s * scale_log2 - offset): one FMA, one ex2.
            float sum = state.row_sum[i][half] * correction;
#pragma unroll
            for (int n = 0; n < T::kKeyTiles; ++n) {
                const float p0 =
                    ptx::exp2_approx(fmaf(scores[i][n][2 * half], scale_log2, -offset));
                const float p1 =
                    ptx::exp2_approx(fmaf(scores[i][n][2 * half + 1], scale_log2, -offset));
                sum += p0 + p1;
                probabilities[i][n / 2][2 * (n % 2) + half] = ptx::pack_half2(p0, p1);
            }
            state.row_sum[i][half] = sum;
        }
    }
}

// output += P V. V rows are keys, so the k index of this product runs down the columns of the
// shared tile; ldmatrix.trans hands out the transposed fragments and V is never moved for it.
template <class T>
__device__ __forceinline__ void accumulate_output(
    WarpState<T>& state, const uint32_t (&probabilities)[T::kRowTiles][T::kKeyTiles / 2][4],
    uint32_t value_lane) {
#pragma unroll
    for (int slice = 0; slice < T::kBlockKeys / 16; ++slice) {
#pragma unroll
        for (int pair = 0; pair < T::kDimTiles / 2; ++pair) {
            uint32_t value[4];
            ptx::ldmatrix_x4_trans(value, (value_lane ^ (pair * 32)) + slice * 16 * T::kRowBytes);
#pragma unroll
            for (int i = 0; i < T::kRowTiles; ++i) {
                ptx::mma_m16n8k16(state.output[i][2 * pair], probabilities[i][slice], value[0],
                                  value[1]);
                ptx::mma_m16n8k16(state.output[i][2 * pair + 1], probabilities[i][slice], value[2],
                                  value[3]);
            }
        }
    }
}

// Normalizes, writes the log-sum-exp, and stores the warp's rows with 128-bit accesses. The
// accumulator layout would give 4-byte stores; staging through the Q tile, which nobody needs any
// more, makes whole rows out of them. A warp only touches the 32 Q rows that it alone has read, so
// warp-level synchronization is enough. The swizzle serves again: quad t of row g writes word
// 4 * (chunk ^ g) + t, 32 different banks.
template <class T>
__device__ __forceinline__ void write_output(WarpState<T>& state, uint8_t* staging, int first_row,
                                             __half* output, int row_stride, float* lse,
                                             int query_length, float scale_log2) {
    constexpr float kLn2 = 0.693147180559945309f;
    const int lane = threadIdx.x % 32;
    const int quad_row = lane / 4;
    const int quad_lane = lane % 4;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < T::kRowTiles; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float sum = state.row_sum[i][half];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            // A row without a visible key is defined as zero output and lse = -inf.
            const float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
            const int local_row = i * 16 + half * 8 + quad_row;
            const int row = first_row + local_row;
            if (lse != nullptr && quad_lane == 0 && row < query_length) {
                lse[row] = sum > 0.0f
                               ? (__fmul_rn(state.row_max[i][half], scale_log2) + log2f(sum)) * kLn2
                               : -INFINITY;
            }
#pragma unroll
            for (int n = 0; n < T::kDimTiles; ++n) {
                uint8_t* word = staging + swizzled_offset<T>(local_row, n) + quad_lane * 4;
                *reinterpret_cast<__half2*>(word) =
                    __floats2half2_rn(state.output[i][n][2 * half] * inverse,
                                      state.output[i][n][2 * half + 1] * inverse);
            }
        }
    }
    __syncwarp();
    constexpr int kRowsPerPass = 32 / T::kChunksPerRow;
    const int chunk = lane % T::kChunksPerRow;
#pragma unroll
    for (int pass = 0; pass < T::kWarpRows / kRowsPerPass; ++pass) {
        const int local_row = pass * kRowsPerPass + lane / T::kChunksPerRow;
        const int row = first_row + local_row;
        if (row < query_length) {
            *reinterpret_cast<uint4*>(output + static_cast<int64_t>(row) * row_stride + chunk * 8) =
                *reinterpret_cast<const uint4*>(staging + swizzled_offset<T>(local_row, chunk));
        }
    }
}

// Two blocks per SM: while one waits at a barrier or works through its exponentials, the other
// keeps the tensor cores busy. That allows 255 registers per thread, and they are all needed.
template <class T, bool kCausal>
__global__ void __launch_bounds__(T::kThreads, 2)
    flash_attention_forward(const __grid_constant__ FlashAttentionParams params) {
    extern __shared__ __align__(1024) uint8_t shared[];
    const uint32_t query_tile = ptx::shared_address(shared);
    const uint32_t key_tiles = query_tile + T::kQueryBytes;
    const uint32_t value_tiles = key_tiles + T::kStages * T::kKeyBytes;

    // The x index runs over the row blocks of one head, so that blocks resident together share
    // K and V in L2. Causal blocks near the bottom have the most keys: start those first, or a
    // few long blocks are left running alone at the end.
    const int row_block = kCausal ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    const int head = blockIdx.y;
    const int kv_head = head / params.queries_per_kv_head;  // grouped queries read the same K, V
    const int64_t batch = blockIdx.z;
    const int block_row = row_block * T::kBlockRows;

    const __half* q = params.q + batch * params.q_strides.batch + head * params.q_strides.head;
    const __half* k = params.k + batch * params.k_strides.batch + kv_head * params.k_strides.head;
    const __half* v = params.v + batch * params.v_strides.batch + kv_head * params.v_strides.head;
    __half* o = params.o + batch * params.o_strides.batch + head * params.o_strides.head;
    float* lse = params.lse == nullptr
                     ? nullptr
                     : params.lse + (batch * params.query_heads + head) * params.query_length;

    // Bottom-right alignment: the last query row sees every key, row r sees keys <= r + shift.
    const int causal_shift = params.key_length - params.query_length;
    int visible_keys = params.key_length;
    if (kCausal) {
        const int row_end = min(block_row + T::kBlockRows, params.query_length);
        visible_keys = max(0, min(visible_keys, row_end + causal_shift));
    }
    const int tile_count = (visible_keys + T::kBlockKeys - 1) / T::kBlockKeys;

    const int lane = threadIdx.x % 32;
    const int warp_row = (threadIdx.x / 32) * T::kWarpRows;
    // A operand: lanes 0-15 address rows 0-15 of the left 8 columns, lanes 16-31 of the right 8.
    const uint32_t query_lane =
        query_tile + swizzled_offset<T>(warp_row + lane % 16, lane / 16);
    // B operand from K: lanes go k-half first, then the next 8 keys.
    const uint32_t key_lane =
        key_tiles + swizzled_offset<T>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
    // B operand from V, transposed: the k-halves are 8 rows (keys) apart, then the next 8 columns.
    const uint32_t value_lane = value_tiles + swizzled_offset<T>(lane % 16, lane / 16);

    const auto load_keys = [&](int tile) {
        load_tile_async<T, T::kBlockKeys>(key_tiles + tile % T::kStages * T::kKeyBytes, k,
                                          params.k_strides.row, tile * T::kBlockKeys,
                                          params.key_length);
    };
    const auto load_values = [&](int tile) {
        load_tile_async<T, T::kBlockKeys>(value_tiles + tile % T::kStages * T::kKeyBytes, v,
                                          params.v_strides.row, tile * T::kBlockKeys,
                                          params.key_length);
    };

    WarpState<T> state;
#pragma unroll
    for (int i = 0; i < T::kRowTiles; ++i) {
#pragma unroll
        for (int n = 0; n < T::kDimTiles; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) state.output[i][n][e] = 0.0f;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            state.row_max[i][half] = -INFINITY;
            state.row_sum[i][half] = 0.0f;
        }
    }

    // Nothing is started for a block without visible keys: its epilogue reuses the Q tile, and a
    // copy still in flight would overwrite the staged output.
    if (tile_count > 0) {
        load_tile_async<T, T::kBlockRows>(query_tile, q, params.q_strides.row, block_row,
                                          params.query_length);
        load_keys(0);
        ptx::cp_async_commit();
        load_values(0);
        ptx::cp_async_commit();
    }

    // Groups complete in commit order and always alternate K, V, K, V. At either wait exactly two
    // are in flight, and only the older one is needed: wait_group 1 takes it and leaves the newer
    // one streaming in behind the arithmetic. The last tile commits empty groups so that the
    // count, and with it the constant 1, stays right.
#pragma unroll 1
    for (int tile = 0; tile < tile_count; ++tile) {
        const uint32_t stage = tile % T::kStages * T::kKeyBytes;
        const int first_key = tile * T::kBlockKeys;
        const bool has_next = tile + 1 < tile_count;

        ptx::cp_async_wait<1>();  // K of this tile (and Q) has landed, V may still be on its way
        __syncthreads();          // ... for all threads, and everyone has left the previous tile
        if (has_next) load_keys(tile + 1);
        ptx::cp_async_commit();

        float scores[T::kRowTiles][T::kKeyTiles][4];
        compute_scores<T>(scores, query_lane, key_lane + stage);

        // Decided per block, on uniform registers: every key of a tile left of this bound is
        // visible to the block's first row and therefore to all of its rows.
        const int unmasked_keys =
            kCausal ? min(params.key_length, block_row + causal_shift + 1) : params.key_length;
        if (first_key + T::kBlockKeys > unmasked_keys)
            mask_scores<T, kCausal>(scores, block_row + warp_row, first_key, params.key_length,
                                    causal_shift);

        uint32_t probabilities[T::kRowTiles][T::kKeyTiles / 2][4];
        online_softmax<T>(probabilities, scores, state, params.scale_log2);

        ptx::cp_async_wait<1>();  // V of this tile has landed, K of the next may be on its way
        __syncthreads();
        if (has_next) load_values(tile + 1);
        ptx::cp_async_commit();

        accumulate_output<T>(state, probabilities, value_lane + stage);
    }

    write_output<T>(state, shared + warp_row * T::kRowBytes, block_row + warp_row, o,
                    params.o_strides.row, lse, params.query_length, params.scale_log2);
}

template <int kHeadDim, bool kCausal>
cudaError_t launch(const FlashAttentionParams& params, int batch, cudaStream_t stream) {
    using T = Tiling<kHeadDim>;
    const auto kernel = flash_attention_forward<T, kCausal>;
    // More than 48 KiB of shared memory has to be asked for explicitly.
    const cudaError_t status = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, T::kSharedBytes);
    if (status != cudaSuccess) return status;
    const dim3 grid((params.query_length + T::kBlockRows - 1) / T::kBlockRows, params.query_heads,
                    batch);
    kernel<<<grid, T::kThreads, T::kSharedBytes, stream>>>(params);
    return cudaGetLastError();
}

bool is_aligned(const void* pointer, const HeadStrides& strides) {
    return reinterpret_cast<uintptr_t>(pointer) % 16 == 0 && strides.batch % 8 == 0 &&
           strides.head % 8 == 0 && strides.row % 8 == 0;
}

}  // namespace kx

// Strides are {batch, head, row} in elements. Returns a cudaError_t as int.
extern "C" int kx_flash_attention_forward(
    const void* q, const void* k, const void* v, void* o, float* lse, const int64_t* q_strides,
    const int64_t* k_strides, const int64_t* v_strides, const int64_t* o_strides, int batch,
    int query_heads, int kv_heads, int query_length, int key_length, int head_dim, float scale,
    int causal, void* stream) {
    if (batch < 0 || query_heads < 0 || query_length < 0 || key_length < 0 || kv_heads <= 0 ||
        query_heads % kv_heads != 0 || batch > 65535 || query_heads > 65535 || !(scale > 0.0f))
        return cudaErrorInvalidValue;
    for (const int64_t* s : {q_strides, k_strides, v_strides, o_strides})
        if (s[2] < 0 || s[2] > INT32_MAX) return cudaErrorInvalidValue;
    if (batch == 0 || query_heads == 0 || query_length == 0) return cudaSuccess;

    const auto strides = [](const int64_t* s) {
        return kx::HeadStrides{s[0], s[1], static_cast<int>(s[2])};
    };
    kx::FlashAttentionParams params{};
    params.q = static_cast<const __half*>(q);
    params.k = static_cast<const __half*>(k);
    params.v = static_cast<const __half*>(v);
    params.o = static_cast<__half*>(o);
    params.lse = lse;
    params.q_strides = strides(q_strides);
    params.k_strides = strides(k_strides);
    params.v_strides = strides(v_strides);
    params.o_strides = strides(o_strides);
    params.query_heads = query_heads;
    params.queries_per_kv_head = query_heads / kv_heads;
    params.query_length = query_length;
    params.key_length = key_length;
    params.scale_log2 = scale * 1.44269504088896341f;
    if (!kx::is_aligned(q, params.q_strides) || !kx::is_aligned(k, params.k_strides) ||
        !kx::is_aligned(v, params.v_strides) || !kx::is_aligned(o, params.o_strides))
        return cudaErrorMisalignedAddress;

    const auto cuda_stream = static_cast<cudaStream_t>(stream);
    switch (head_dim) {
        case 64:
            return causal ? kx::launch<64, true>(params, batch, cuda_stream)
                          : kx::launch<64, false>(params, batch, cuda_stream);
        case 128:
            return causal ? kx::launch<128, true>(params, batch, cuda_stream)
                          : kx::launch<128, false>(params, batch, cuda_stream);
        default:
            return cudaErrorInvalidValue;
    }
}
