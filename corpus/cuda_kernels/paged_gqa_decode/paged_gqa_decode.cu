// Decode attention over a paged key/value cache, for half and bfloat16 (sm_80 and later).
// Written for kx. SPDX-License-Identifier: Apache-2.0
//
//   out[b,h] = softmax(scale * q[b,h] . K[b,h/group]^T) V[b,h/group]     one query per sequence
//
// Keys and values of a sequence lie in pages that its block table names. Every byte of the cache is
// used for one product only, so the kernel can be no faster than the cache can be read, and all of
// its structure serves that:
//  - All query heads that share a key/value head are handled together. They are the rows of a
//    tensor-core tile: K and V are read once, and on the matrix units even 16 heads cost little.
//  - A batch of few sequences has too few (sequence, head) pairs to fill the GPU, so the keys are
//    split as well (flash decoding). Each split leaves a normalized partial output and its
//    log-sum-exp, and a second small kernel combines them.
//  - Within a block every warp walks over its own tiles of keys, with its own asynchronous pipeline
//    in its own part of shared memory. No barrier makes a warp wait for another one's loads; the
//    four partial results meet once, at the end.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "../tensor_core.cuh"

namespace kx {

constexpr unsigned kFullWarp = 0xffffffffu;
constexpr int kHeadsPerBlock = 16;  // rows of one m16n8k16 tile
constexpr int kCombineWarps = 4;
constexpr int kMaxSplits = 256;
constexpr int kMinChunk = 256;   // keys; below that a block has hardly begun when it ends
constexpr int kMaxChunk = 2048;  // keys; above that sequences of unlike length balance badly

template <class T, int kHeadDim_>
struct DecodeTiling {
    static constexpr int kHeadDim = kHeadDim_;
    static constexpr int kWarps = 4;
    static constexpr int kThreads = kWarps * 32;
    static constexpr int kTileKeys = kHeadDim == 64 ? 32 : 16;  // per warp and stage
    static constexpr int kStages = 3;
    static constexpr int kRowBytes = kHeadDim * static_cast<int>(sizeof(T));
    static constexpr int kChunksPerRow = kRowBytes / 16;
    static constexpr int kRowsPerPass = 32 / kChunksPerRow;  // rows that one load of a warp covers
    static constexpr int kPasses = kTileKeys / kRowsPerPass;
    static constexpr int kTileBytes = kTileKeys * kRowBytes;
    static constexpr int kStageBytes = 2 * kTileBytes;  // K and V
    static constexpr int kWarpBytes = kStages * kStageBytes;
    static constexpr int kSharedBytes = kWarps * kWarpBytes;

    static constexpr int kKeyTiles = kTileKeys / 8;
    static constexpr int kDimTiles = kHeadDim / 8;
    static constexpr int kSlices = kHeadDim / 16;

    // The merge at the end reuses the tiles. Eight rows of 8 bytes each are written at a time; the
    // padding shifts consecutive rows by 8 banks, so that they do not fall on the same ones.
    static constexpr int kPaddedRow = kHeadDim + 8;
    static constexpr int kMergeBytes = kWarps * kHeadsPerBlock * (kPaddedRow + 2) * 4;
    static_assert(kMergeBytes <= kSharedBytes, "the merge area must fit into the tiles");
    static_assert(kHeadDim == 64 || kHeadDim == 128, "the swizzle needs 8 or 16 chunks per row");
};

template <class T>
struct DecodeParams {
    const T* q;  // (batch, query heads, head dim)
    const T* k_cache;
    const T* v_cache;
    const int* block_table;  // (batch, table_stride): pages of each sequence, in order
    const int* lengths;      // (batch): keys of each sequence
    T* out;                  // (batch, query heads, head dim)
    float* lse;              // (batch, query heads), may be null
    float* partial_out;      // (splits, batch, query heads, head dim)
    float* partial_lse;      // (splits, batch, query heads), base 2
    int64_t page_stride;     // strides of both caches, in elements
    int64_t head_stride;
    int64_t token_stride;
    int table_stride;
    int page_shift;  // log2 of the page size
    int query_heads;
    int group;        // query heads per key/value head
    int head_blocks;  // blocks of kHeadsPerBlock that a group takes
    int max_length;   // what the splits cover; a longer length would be an error of the caller
    int chunk_keys;   // keys per split
    int splits;
    float scale_log2;  // softmax scale * log2(e)
};

// What a warp knows about its heads: rows g and g + 8 of the tile, g = lane / 4.
template <class S>
struct WarpState {
    float output[S::kDimTiles][4];
    float row_max[2];  // scaled, base 2
    float row_sum[2];  // this lane's share; quads are summed at the end
};

// The query heads as A operands, straight from global memory. Rows beyond the group stay 0.
template <class T, class S>
__device__ __forceinline__ void load_queries(uint32_t (&queries)[S::kSlices][4], const T* q,
                                             int heads) {
    const int row = threadIdx.x % 32 / 4;
    const int column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int slice = 0; slice < S::kSlices; ++slice)
#pragma unroll
        for (int part = 0; part < 4; ++part) {
            const int head = row + part % 2 * 8;
            const T* source = q + head * S::kHeadDim + slice * 16 + part / 2 * 8 + column;
            queries[slice][part] =
                head < heads ? __ldg(reinterpret_cast<const uint32_t*>(source)) : 0u;
        }
}

// The tiles of one warp: tile i holds the kTileKeys keys from first_key + i * kWarps * kTileKeys.
template <class T, class S>
struct KeyStream {
    const T* k;
    const T* v;
    const int* pages;
    int64_t page_stride;
    int64_t token_stride;
    int page_shift;
    int first_key;
    int end_key;

    __device__ __forceinline__ int tile_start(int tile) const {
        return first_key + tile * (S::kWarps * S::kTileKeys);
    }

    // Each lane looks up the page of one key of the tile. Keys beyond the end have no page.
    __device__ __forceinline__ int page_of(int tile, int lane) const {
        const int key = tile_start(tile) + lane % S::kTileKeys;
        return key < end_key ? __ldg(pages + (key >> page_shift)) : 0;
    }

    // Starts the copy of a tile. `page` is this lane's page_of; the row offsets computed from it
    // are handed around by shuffles, so that any page size, down to 1, takes the same path.
    __device__ __forceinline__ void load(int tile, int page, uint32_t shared_tile, int lane) const {
        const int start = tile_start(tile);
        const int slot = (start + lane % S::kTileKeys) & ((1 << page_shift) - 1);
        const long long row_offset = page * page_stride + slot * token_stride;
        const int chunk = lane % S::kChunksPerRow;
#pragma unroll
        for (int pass = 0; pass < S::kPasses; ++pass) {
            const int row = pass * S::kRowsPerPass + lane / S::kChunksPerRow;
            const int64_t offset = __shfl_sync(kFullWarp, row_offset, row) + chunk * 8;
            const bool valid = start + row < end_key;
            const uint32_t target = shared_tile + tc::swizzled_offset<S::kRowBytes>(row, chunk);
            tc::cp_async_16(target, k + offset, valid);
            // The zeros that an invalid V row becomes are needed: 0 * (stale NaN) would be NaN.
            tc::cp_async_16(target + S::kTileBytes, v + offset, valid);
        }
    }
};

// scores = scale * Q K^T for one tile, in base 2, with keys beyond the end at -inf.
template <class T, class S>
__device__ __forceinline__ void compute_scores(float (&scores)[S::kKeyTiles][4],
                                               const uint32_t (&queries)[S::kSlices][4],
                                               uint32_t key_tile, int visible, float scale_log2) {
    const int lane = threadIdx.x % 32;
    // B operand: first both k-halves of eight keys, then the next eight keys.
    const uint32_t key_lane =
        key_tile + tc::swizzled_offset<S::kRowBytes>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
    for (int n = 0; n < S::kKeyTiles; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) scores[n][e] = 0.0f;
#pragma unroll
    for (int slice = 0; slice < S::kSlices; ++slice) {
#pragma unroll
        for (int pair = 0; pair < S::kKeyTiles / 2; ++pair) {
            // Tiles are 1 KiB aligned, so moving along the row is an XOR on the whole address.
            uint32_t key[4];
            tc::ldmatrix_x4(key, (key_lane ^ (slice * 32)) + pair * 16 * S::kRowBytes);
            tc::mma_m16n8k16<T>(scores[2 * pair], queries[slice], key[0], key[1]);
            tc::mma_m16n8k16<T>(scores[2 * pair + 1], queries[slice], key[2], key[3]);
        }
    }
    const int lane_key = lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < S::kKeyTiles; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
            scores[n][e] =
                n * 8 + lane_key + e % 2 < visible ? scores[n][e] * scale_log2 : -INFINITY;
}

// Folds a tile of scores into the running maximum and sum and turns it into probabilities, packed
// as A operands of the next product. (Accumulator columns 2t, 2t+1 of two neighbouring 8-key tiles
// are exactly the k = 2t, 2t+1, 2t+8, 2t+9 that a lane must hold there.)
template <class T, class S>
__device__ __forceinline__ void online_softmax(uint32_t (&probabilities)[S::kKeyTiles / 2][4],
                                               const float (&scores)[S::kKeyTiles][4],
                                               WarpState<S>& state) {
    float new_max[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float tile_max = state.row_max[half];
#pragma unroll
        for (int n = 0; n < S::kKeyTiles; ++n)
            tile_max = fmaxf(tile_max, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
        // The four lanes of a quad share the row.
        tile_max = fmaxf(tile_max, __shfl_xor_sync(kFullWarp, tile_max, 1));
        new_max[half] = fmaxf(tile_max, __shfl_xor_sync(kFullWarp, tile_max, 2));
    }
    // After a few tiles a maximum seldom moves. Then there is nothing to rescale, and the vote
    // saves a multiplication for every accumulator. A tile always has a visible key, so the new
    // maximum is finite (and exp2 of the first, infinite difference is 0).
    const bool moved = new_max[0] > state.row_max[0] || new_max[1] > state.row_max[1];
    if (__any_sync(kFullWarp, moved)) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float correction = tc::exp2_approx(state.row_max[half] - new_max[half]);
            state.row_max[half] = new_max[half];
            state.row_sum[half] *= correction;
#pragma unroll
            for (int n = 0; n < S::kDimTiles; ++n) {
                state.output[n][2 * half] *= correction;
                state.output[n][2 * half + 1] *= correction;
            }
        }
    }
#pragma unroll
    for (int n = 0; n < S::kKeyTiles; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float p0 = tc::exp2_approx(scores[n][2 * half] - state.row_max[half]);
            const float p1 = tc::exp2_approx(scores[n][2 * half + 1] - state.row_max[half]);
            state.row_sum[half] += p0 + p1;
            probabilities[n / 2][2 * (n % 2) + half] = tc::pack<T>(p0, p1);
        }
}

// output += P V. V rows are keys, the k index of this product: ldmatrix transposes on the way.
template <class T, class S>
__device__ __forceinline__ void accumulate_output(
    WarpState<S>& state, const uint32_t (&probabilities)[S::kKeyTiles / 2][4],
    uint32_t value_tile) {
    const int lane = threadIdx.x % 32;
    const uint32_t value_lane =
        value_tile + tc::swizzled_offset<S::kRowBytes>(lane % 16, lane / 16);
#pragma unroll
    for (int slice = 0; slice < S::kTileKeys / 16; ++slice)
#pragma unroll
        for (int pair = 0; pair < S::kDimTiles / 2; ++pair) {
            uint32_t value[4];
            tc::ldmatrix_x4_trans(value, (value_lane ^ (pair * 32)) + slice * 16 * S::kRowBytes);
            tc::mma_m16n8k16<T>(state.output[2 * pair], probabilities[slice], value[0], value[1]);
            tc::mma_m16n8k16<T>(state.output[2 * pair + 1], probabilities[slice], value[2],
                                value[3]);
        }
}

// The warps' results side by side, in the shared memory that held the tiles.
template <class S>
struct MergeArea {
    float output[S::kWarps][kHeadsPerBlock][S::kPaddedRow];
    float row_max[S::kWarps][kHeadsPerBlock];
    float row_sum[S::kWarps][kHeadsPerBlock];
};

template <class S>
__device__ __forceinline__ void publish(MergeArea<S>& area, const WarpState<S>& state) {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = half * 8 + lane / 4;
        float sum = state.row_sum[half];
        sum += __shfl_xor_sync(kFullWarp, sum, 1);
        sum += __shfl_xor_sync(kFullWarp, sum, 2);
        if (lane % 4 == 0) {
            area.row_max[warp][row] = state.row_max[half];
            area.row_sum[warp][row] = sum;
        }
#pragma unroll
        for (int n = 0; n < S::kDimTiles; ++n)
            *reinterpret_cast<float2*>(&area.output[warp][row][n * 8 + lane % 4 * 2]) =
                make_float2(state.output[n][2 * half], state.output[n][2 * half + 1]);
    }
}

// Joins the warps' results and writes the block's: the final output when there is one split, a
// partial one otherwise. Four consecutive elements per thread.
template <class T, class S>
__device__ __forceinline__ void merge_and_store(const DecodeParams<T>& params,
                                                const MergeArea<S>& area, int64_t first_head_row,
                                                int64_t partial_row, int heads) {
    constexpr int kQuads = S::kHeadDim / 4;
    for (int item = threadIdx.x; item < heads * kQuads; item += S::kThreads) {
        const int row = item / kQuads;
        const int column = item % kQuads * 4;
        float block_max = -INFINITY;
#pragma unroll
        for (int w = 0; w < S::kWarps; ++w) block_max = fmaxf(block_max, area.row_max[w][row]);

        float sum = 0.0f;
        float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (int w = 0; w < S::kWarps; ++w) {
            // A warp without keys has maximum -inf; so has the block of an empty sequence, where
            // -inf - (-inf) would be NaN.
            const float warp_max = area.row_max[w][row];
            const float weight =
                warp_max == -INFINITY ? 0.0f : tc::exp2_approx(warp_max - block_max);
            const float4 part = *reinterpret_cast<const float4*>(&area.output[w][row][column]);
            sum = fmaf(weight, area.row_sum[w][row], sum);
            total.x = fmaf(weight, part.x, total.x);
            total.y = fmaf(weight, part.y, total.y);
            total.z = fmaf(weight, part.z, total.z);
            total.w = fmaf(weight, part.w, total.w);
        }
        const float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
        const float lse2 = sum > 0.0f ? block_max + log2f(sum) : -INFINITY;
        total =
            make_float4(total.x * inverse, total.y * inverse, total.z * inverse, total.w * inverse);
        if (params.splits == 1) {
            T* out = params.out + (first_head_row + row) * S::kHeadDim + column;
            *reinterpret_cast<uint2*>(out) =
                make_uint2(tc::pack<T>(total.x, total.y), tc::pack<T>(total.z, total.w));
            if (column == 0 && params.lse != nullptr)
                params.lse[first_head_row + row] = lse2 * tc::kLn2;
        } else {
            float* out = params.partial_out + (partial_row + row) * S::kHeadDim + column;
            *reinterpret_cast<float4*>(out) = total;
            if (column == 0) params.partial_lse[partial_row + row] = lse2;
        }
    }
}

// On Hopper the combine kernel may be launched while the split kernel still runs, as soon as all
// blocks of that one have said so or ended. Its own launch then costs nothing; it waits here until
// everything the split kernel wrote can be seen.
__device__ __forceinline__ void allow_next_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

__device__ __forceinline__ void wait_for_previous_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
}

// Two blocks per SM (their tiles take 96 KiB each), with 128 KiB of loads in flight between them.
template <class T, int kHeadDim>
__global__ void __launch_bounds__(DecodeTiling<T, kHeadDim>::kThreads, 2)
    paged_decode_split(const __grid_constant__ DecodeParams<T> params) {
    using S = DecodeTiling<T, kHeadDim>;
    extern __shared__ __align__(1024) uint8_t shared[];

    // Heads vary fastest: blocks that run together read neighbouring parts of the same pages.
    const int kv_head = blockIdx.x / params.head_blocks;
    const int first_row = blockIdx.x % params.head_blocks * kHeadsPerBlock;
    const int heads = min(kHeadsPerBlock, params.group - first_row);
    const int first_head = kv_head * params.group + first_row;
    const int split = blockIdx.y;
    const int64_t batch = blockIdx.z;

    const int length = min(params.lengths[batch], params.max_length);
    const int first_key = split * params.chunk_keys;
    if (split > 0 && first_key >= length) return;  // the first split also stands for no keys at all
    const int end_key = min(length, first_key + params.chunk_keys);

    // Once all blocks have begun, nothing is left that a block of the next kernel could displace.
    allow_next_kernel();

    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    KeyStream<T, S> stream;
    stream.k = params.k_cache + kv_head * params.head_stride;
    stream.v = params.v_cache + kv_head * params.head_stride;
    stream.pages = params.block_table + batch * params.table_stride;
    stream.page_stride = params.page_stride;
    stream.token_stride = params.token_stride;
    stream.page_shift = params.page_shift;
    stream.first_key = first_key + warp * S::kTileKeys;
    stream.end_key = end_key;
    constexpr int kStride = S::kWarps * S::kTileKeys;
    const int tiles = max(0, (end_key - stream.first_key + kStride - 1) / kStride);
    const uint32_t warp_tiles = tc::shared_address(shared) + warp * S::kWarpBytes;

    // A table entry must have arrived before the addresses of its keys are known. Fetched one tile
    // ahead, that latency hides behind a whole tile instead of delaying each load.
#pragma unroll
    for (int tile = 0; tile < S::kStages - 1; ++tile) {
        if (tile < tiles)
            stream.load(tile, stream.page_of(tile, lane), warp_tiles + tile * S::kStageBytes, lane);
        tc::cp_async_commit();
    }
    int next_page = stream.page_of(S::kStages - 1, lane);

    const int64_t head_row = batch * params.query_heads + first_head;
    uint32_t queries[S::kSlices][4];
    load_queries<T, S>(queries, params.q + head_row * kHeadDim, heads);
    WarpState<S> state;
#pragma unroll
    for (int n = 0; n < S::kDimTiles; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) state.output[n][e] = 0.0f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        state.row_max[half] = -INFINITY;
        state.row_sum[half] = 0.0f;
    }

    int stage = 0;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
        tc::cp_async_wait<S::kStages - 2>();
        __syncwarp();  // the tile is there for all lanes, and all have left the tile before it
        // That one's stage, the one before this in the ring, takes the newest load.
        const int free_stage = stage == 0 ? S::kStages - 1 : stage - 1;
        const int ahead = tile + S::kStages - 1;
        if (ahead < tiles)
            stream.load(ahead, next_page, warp_tiles + free_stage * S::kStageBytes, lane);
        tc::cp_async_commit();  // empty groups at the end keep the count of the wait right
        next_page = stream.page_of(ahead + 1, lane);

        const uint32_t key_tile = warp_tiles + stage * S::kStageBytes;
        float scores[S::kKeyTiles][4];
        compute_scores<T, S>(scores, queries, key_tile, end_key - stream.tile_start(tile),
                             params.scale_log2);
        uint32_t probabilities[S::kKeyTiles / 2][4];
        online_softmax<T, S>(probabilities, scores, state);
        accumulate_output<T, S>(state, probabilities, key_tile + S::kTileBytes);
        stage = stage == S::kStages - 1 ? 0 : stage + 1;
    }

    tc::cp_async_wait<0>();
    __syncthreads();  // nobody reads a tile any more: the merge may overwrite them
    auto& area = *reinterpret_cast<MergeArea<S>*>(shared);
    publish<S>(area, state);
    __syncthreads();
    const int64_t partial_row =
        split * (static_cast<int64_t>(gridDim.z) * params.query_heads) + head_row;
    merge_and_store<T, S>(params, area, head_row, partial_row, heads);
}

// Combines the splits: out = sum_s 2^(lse_s - lse) out_s. One block per (sequence, head). The warps
// share the splits, since a long sequence may have hundreds while there are few heads to work on;
// each lane has kHeadDim / 32 neighbouring elements.
template <class T, int kHeadDim>
__global__ void __launch_bounds__(kCombineWarps * 32)
    paged_decode_combine(const __grid_constant__ DecodeParams<T> params) {
    constexpr int kItems = kHeadDim / 32;
    __shared__ float warp_totals[kCombineWarps][kHeadDim];
    __shared__ float warp_weights[kCombineWarps];
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int row = blockIdx.x;
    const int64_t rows = gridDim.x;
    wait_for_previous_kernel();
    const int length = min(params.lengths[row / params.query_heads], params.max_length);
    const int splits = max(1, (length + params.chunk_keys - 1) / params.chunk_keys);

    float max_lse = -INFINITY;
    for (int s = lane; s < splits; s += 32)
        max_lse = fmaxf(max_lse, params.partial_lse[s * rows + row]);
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        max_lse = fmaxf(max_lse, __shfl_xor_sync(kFullWarp, max_lse, distance));

    float weight_sum = 0.0f;
    float total[kItems] = {};
    // Without any key every log-sum-exp is -inf, and -inf - (-inf) would be NaN.
    if (max_lse > -INFINITY) {
#pragma unroll 4
        for (int s = warp; s < splits; s += kCombineWarps) {
            const int64_t partial_row = s * rows + row;
            const float weight = tc::exp2_approx(params.partial_lse[partial_row] - max_lse);
            weight_sum += weight;
            const float* source = params.partial_out + partial_row * kHeadDim + lane * kItems;
#pragma unroll
            for (int i = 0; i < kItems; i += 2) {
                const float2 part = *reinterpret_cast<const float2*>(source + i);
                total[i] = fmaf(weight, part.x, total[i]);
                total[i + 1] = fmaf(weight, part.y, total[i + 1]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < kItems; i += 2)
        *reinterpret_cast<float2*>(&warp_totals[warp][lane * kItems + i]) =
            make_float2(total[i], total[i + 1]);
    if (lane == 0) warp_weights[warp] = weight_sum;
    __syncthreads();

    if (threadIdx.x >= kHeadDim / 2) return;
    const int column = threadIdx.x * 2;
    float sum = 0.0f;
    float2 value = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int w = 0; w < kCombineWarps; ++w) {
        const float2 part = *reinterpret_cast<const float2*>(&warp_totals[w][column]);
        sum += warp_weights[w];
        value.x += part.x;
        value.y += part.y;
    }
    const float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
    T* out = params.out + static_cast<int64_t>(row) * kHeadDim + column;
    *reinterpret_cast<uint32_t*>(out) = tc::pack<T>(value.x * inverse, value.y * inverse);
    if (column == 0 && params.lse != nullptr)
        params.lse[row] = sum > 0.0f ? (max_lse + log2f(sum)) * tc::kLn2 : -INFINITY;
}

// How the keys are split, from what the host knows: lengths live on the device, only their maximum
// is given.
struct SplitPlan {
    int chunk_keys;
    int splits;
};

// A wave of blocks takes about as long as one block's keys, plus what a block costs before and
// after its loop, here put at 128 keys. The cheapest number of splits under that model wins.
inline SplitPlan plan_splits(int64_t pairs, int max_length, int multiprocessors) {
    constexpr int kAlignment = 128;  // a block advances by whole tiles of four warps
    constexpr int64_t kFixedKeys = 128;
    const int64_t slots = 2 * static_cast<int64_t>(multiprocessors);
    const int most = min(kMaxSplits, max(1, max_length / kMinChunk));
    const int least = min(most, (max_length + kMaxChunk - 1) / kMaxChunk);
    SplitPlan best{max(max_length, kAlignment), 1};
    int64_t best_cost = INT64_MAX;
    for (int wanted = max(1, least); wanted <= most; ++wanted) {
        const int per_split = (max_length + wanted - 1) / wanted;
        const int chunk = max(1, (per_split + kAlignment - 1) / kAlignment) * kAlignment;
        const int splits = max(1, (max_length + chunk - 1) / chunk);
        const int64_t waves = (pairs * splits + slots - 1) / slots;
        const int64_t cost = waves * (chunk + kFixedKeys);
        if (cost < best_cost) {
            best_cost = cost;
            best = SplitPlan{chunk, splits};
        }
    }
    return best;
}

inline cudaError_t plan_for_device(SplitPlan& plan, int batch, int query_heads, int kv_heads,
                                   int max_length, int wanted_splits) {
    if (wanted_splits > 0) {
        const int per_split = (max_length + wanted_splits - 1) / wanted_splits;
        plan.chunk_keys = max(1, per_split);
        plan.splits = max(1, (max_length + plan.chunk_keys - 1) / plan.chunk_keys);
        return cudaSuccess;
    }
    int device = 0;
    int multiprocessors = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess)
        status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (status != cudaSuccess) return status;
    const int head_blocks = (query_heads / kv_heads + kHeadsPerBlock - 1) / kHeadsPerBlock;
    plan = plan_splits(static_cast<int64_t>(batch) * kv_heads * head_blocks, max_length,
                       multiprocessors);
    return cudaSuccess;
}

template <class T, int kHeadDim>
cudaError_t launch_combine(const DecodeParams<T>& params, int batch, cudaStream_t stream) {
    int device = 0;
    int major = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess)
        status = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (status != cudaSuccess) return status;
    cudaLaunchAttribute overlap{};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(batch * params.query_heads);
    config.blockDim = dim3(kCombineWarps * 32);
    config.stream = stream;
    config.attrs = &overlap;
    config.numAttrs = major >= 9 ? 1 : 0;
    return cudaLaunchKernelEx(&config, paged_decode_combine<T, kHeadDim>, params);
}

template <class T, int kHeadDim>
cudaError_t launch(const DecodeParams<T>& params, int batch, cudaStream_t stream) {
    using S = DecodeTiling<T, kHeadDim>;
    const auto kernel = paged_decode_split<T, kHeadDim>;
    // More than 48 KiB of shared memory has to be asked for explicitly.
    const cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kSharedBytes);
    if (status != cudaSuccess) return status;
    const int kv_heads = params.query_heads / params.group;
    const dim3 grid(kv_heads * params.head_blocks, params.splits, batch);
    kernel<<<grid, S::kThreads, S::kSharedBytes, stream>>>(params);
    if (params.splits > 1) return launch_combine<T, kHeadDim>(params, batch, stream);
    return cudaGetLastError();
}

template <class T>
cudaError_t dispatch(DecodeParams<T> params, int batch, int head_dim, cudaStream_t stream) {
    const auto aligned = [](const void* pointer) {
        return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
    };
    if (!aligned(params.q) || !aligned(params.k_cache) || !aligned(params.v_cache) ||
        !aligned(params.out) || !aligned(params.partial_out) || params.page_stride % 8 != 0 ||
        params.head_stride % 8 != 0 || params.token_stride % 8 != 0)
        return cudaErrorMisalignedAddress;
    switch (head_dim) {
        case 64:
            return launch<T, 64>(params, batch, stream);
        case 128:
            return launch<T, 128>(params, batch, stream);
        default:
            return cudaErrorInvalidValue;
    }
}

}  // namespace kx

// Bytes of workspace that a launch with the same arguments needs, or -1 when no device answers.
extern "C" int64_t kx_paged_gqa_decode_workspace(int batch, int query_heads, int kv_heads,
                                                 int head_dim, int max_length, int splits) {
    kx::SplitPlan plan{};
    if (kv_heads <= 0 ||
        kx::plan_for_device(plan, batch, query_heads, kv_heads, max_length, splits) != cudaSuccess)
        return -1;
    if (plan.splits == 1) return 0;
    return static_cast<int64_t>(plan.splits) * batch * query_heads * (head_dim + 1) * 4;
}

// Cache strides are {page, head, token} in elements, the head dimension is contiguous: both
// (pages, heads, tokens, dim) and (pages, tokens, heads, dim) caches fit. page_size is a power of
// two. splits: 0 lets the plan decide. dtype: 1 half, 2 bfloat16. Returns a cudaError_t as int.
extern "C" int kx_paged_gqa_decode(const void* q, const void* k_cache, const void* v_cache,
                                   const int* block_table, const int* lengths, void* out,
                                   float* lse, void* workspace, const int64_t* cache_strides,
                                   int batch, int query_heads, int kv_heads, int head_dim,
                                   int page_size, int table_stride, int max_length, int splits,
                                   float scale, int dtype, void* stream) {
    if (batch < 0 || batch > 65535 || kv_heads <= 0 || query_heads < 0 ||
        query_heads % kv_heads != 0 || page_size <= 0 || (page_size & (page_size - 1)) != 0 ||
        max_length < 0 || max_length > (1 << 30) || splits < 0 || splits > kx::kMaxSplits ||
        !(scale > 0.0f))
        return cudaErrorInvalidValue;
    if (batch == 0 || query_heads == 0) return cudaSuccess;
    kx::SplitPlan plan{};
    const cudaError_t status =
        kx::plan_for_device(plan, batch, query_heads, kv_heads, max_length, splits);
    if (status != cudaSuccess) return status;
    if (plan.splits > 1 && workspace == nullptr) return cudaErrorInvalidValue;

    const auto run = [&](auto element) {
        using T = decltype(element);
        kx::DecodeParams<T> params{};
        params.q = static_cast<const T*>(q);
        params.k_cache = static_cast<const T*>(k_cache);
        params.v_cache = static_cast<const T*>(v_cache);
        params.block_table = block_table;
        params.lengths = lengths;
        params.out = static_cast<T*>(out);
        params.lse = lse;
        params.partial_out = static_cast<float*>(workspace);
        params.partial_lse = params.partial_out == nullptr
                                 ? nullptr
                                 : params.partial_out + static_cast<int64_t>(plan.splits) * batch *
                                                            query_heads * head_dim;
        params.page_stride = cache_strides[0];
        params.head_stride = cache_strides[1];
        params.token_stride = cache_strides[2];
        params.table_stride = table_stride;
        while ((1 << params.page_shift) < page_size) ++params.page_shift;
        params.query_heads = query_heads;
        params.group = query_heads / kv_heads;
        params.head_blocks = (params.group + kx::kHeadsPerBlock - 1) / kx::kHeadsPerBlock;
        params.max_length = max_length;
        params.chunk_keys = plan.chunk_keys;
        params.splits = plan.splits;
        params.scale_log2 = scale * kx::tc::kLog2e;
        return kx::dispatch<T>(params, batch, head_dim, static_cast<cudaStream_t>(stream));
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
