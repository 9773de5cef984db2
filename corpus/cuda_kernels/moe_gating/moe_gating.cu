// Mixture-of-experts routing: softmax top-k gating, then the tokens sorted by expert.
// Written for kx. SPDX-License-Identifier: Apache-2.0
//
// For every token t, with logits over E experts:
//
//   ids[t]     = the k experts of largest logit, largest first; the lower index wins a tie
//   weights[t] = softmax(logits[t])[ids[t]], divided by their sum if renormalize
//
// A (token, slot) pair has the number t * k + slot. All pairs are then sorted by expert, stably,
// and every expert's run is padded to a multiple of `alignment`, so that a grouped product can work
// in tiles that never mix experts:
//
//   offsets[e]       where the run of expert e starts; offsets[E] is the padded length
//   sorted_pairs[i]  the pair at place i; the number of pairs, tokens * k, marks padding
//   places[pair]     the inverse: where each pair went
//   tile_experts[j]  the expert of places j * alignment and up
//
// Three kernels. gate_tokens finds the experts and counts them per chunk of tokens; scan_counts
// turns each expert's counts into starts; sort_pairs gives every pair its place. No atomic decides
// an order, so the result is the same in every run.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace kx {

constexpr unsigned kFullWarp = 0xffffffffu;
constexpr float kLog2e = 1.44269504088896341f;
constexpr int kMaxExperts = 512;
constexpr int kMaxTop = 8;
constexpr int kGateThreads = 128;
constexpr int kScanThreads = 256;
constexpr int kSortThreads = 256;
constexpr int kSortWarps = kSortThreads / 32;
constexpr int kSortItems = 16;  // pairs per thread, at most
constexpr int kChunkStep = 32;  // chunks are multiples of so many tokens
constexpr int kMaxChunkTokens = kSortThreads * kSortItems / kMaxTop;
constexpr int kWantedChunks = 2048;

template <class T>
struct GateParams {
    const T* logits;      // (tokens, experts)
    float* weights;       // (tokens, top_k)
    int* ids;             // (tokens, top_k)
    int* chunk_counts;    // (experts, chunks)
    int tokens;
    int experts;
    int top_k;
    int chunks;
    int chunk_tokens;
    bool vectorized;  // rows start on 16-byte boundaries
    bool renormalize;
};

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

// A logit and its expert in one signed number, so that ranking is a plain comparison and equal
// logits fall to the lower index: the float's bits become monotone by flipping all but the sign of
// negative numbers, and `code`, which falls with the expert's index, takes the low bits. (-0 ranks
// just below +0, a NaN without sign above everything.)
//
// Sixteen-bit logits leave room for the code. A float does not: its lowest bits make way, and where
// that could matter, as is_ambiguous tells, the choice is made again with all bits. Comparing one
// word at a time is worth it: minimum and maximum of 32 bits are one instruction each, those of 64
// bits three.
template <class T, int kCapacity>
struct Ranking {
    static constexpr bool kExact = sizeof(T) == 2;
    static constexpr int kCodeMask = kCapacity - 1;
    static constexpr int kLogitMask = kExact ? static_cast<int>(0xffff0000u) : ~kCodeMask;
    static_assert((kCapacity & kCodeMask) == 0, "codes are all numbers of some bits");

    // The bits of a logit, at the upper end of a word.
    static __device__ __forceinline__ int bits(T logit) {
        if constexpr (kExact)
            return static_cast<int>(
                static_cast<uint32_t>(*reinterpret_cast<const uint16_t*>(&logit)) << 16);
        else
            return __float_as_int(logit);
    }

    static __device__ __forceinline__ int monotone(int bits) { return bits ^ (bits >> 31 & 0x7fffffff); }

    static __device__ __forceinline__ int key(T logit, int code) {
        return (monotone(bits(logit)) & kLogitMask) | code;
    }

    // The logit of a key; for float, the smallest of those with this key.
    static __device__ __forceinline__ T logit(int key) {
        const int raw = monotone(key & kLogitMask);
        T result;
        if constexpr (kExact)
            *reinterpret_cast<uint16_t*>(&result) = static_cast<uint16_t>(static_cast<uint32_t>(raw) >> 16);
        else
            result = __int_as_float(raw);
        return result;
    }
};

__device__ __forceinline__ void order_descending(int& larger, int& smaller) {
    const int maximum = max(larger, smaller);
    smaller = min(larger, smaller);
    larger = maximum;
}

// Batcher's odd-even merge sort, largest first: 19 comparisons for 8 keys, no branch. Fully
// unrolled, every index is a constant and the keys stay in registers.
template <int kCount>
__device__ __forceinline__ void sort_descending(int (&keys)[kCount]) {
#pragma unroll
    for (int run = 1; run < kCount; run *= 2)
#pragma unroll
        for (int step = run; step >= 1; step /= 2)
#pragma unroll
            for (int i = 0; i < kCount; ++i) {
                const int first = i - step % run;
                const bool compares = first >= 0 && first % (2 * step) < step && i + step < kCount &&
                                      i / (2 * run) == (i + step) / (2 * run);
                if (compares) order_descending(keys[i], keys[i + step]);
            }
}

// The kCount largest of two descending lists. The larger of a[i] and b[last - i], for all i, are
// the largest overall, in an order that first rises and then falls; log2(kCount) exchanges at
// halving distances then sort it.
template <int kCount>
__device__ __forceinline__ void merge_top(int (&best)[kCount], const int (&other)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
        best[i] = max(best[i], other[kCount - 1 - i]);
#pragma unroll
    for (int distance = kCount / 2; distance > 0; distance /= 2)
#pragma unroll
        for (int i = 0; i < kCount; ++i)
            if (i % (2 * distance) < distance) order_descending(best[i], best[i + distance]);
}

// One lane's share of a token's logits: 16-byte vectors, kLanes apart, so that the lanes of a token
// read whole 32-byte sectors together.
template <class T, int kLanes, int kPerLane>
struct LogitSlice {
    static constexpr int kWidth = 16 / static_cast<int>(sizeof(T));
    static constexpr int kCapacity = kLanes * kPerLane;
    static_assert(kPerLane % kWidth == 0, "a lane's share is a whole number of vectors");
    alignas(16) T elements[kPerLane];

    static __device__ __forceinline__ int expert(int i, int lane) {
        return (i / kWidth * kLanes + lane) * kWidth + i % kWidth;
    }

    // Experts that don't exist get the bits that rank lowest of all. An expert that does exist
    // wins even with the same bits, because its index is smaller: a missing one is never chosen.
    __device__ __forceinline__ void load(const T* __restrict__ row, int lane, int experts,
                                         bool vectorized) {
        if (vectorized) {
#pragma unroll
            for (int i = 0; i < kPerLane; i += kWidth) {
                uint4 word = make_uint4(~0u, ~0u, ~0u, ~0u);
                if (expert(i, lane) < experts)
                    word = __ldcs(reinterpret_cast<const uint4*>(row + expert(i, lane)));
                *reinterpret_cast<uint4*>(elements + i) = word;
            }
        } else {
            using Bits = std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>;
#pragma unroll
            for (int i = 0; i < kPerLane; ++i) {
                Bits word = static_cast<Bits>(~0u);
                if (expert(i, lane) < experts)
                    word = __ldg(reinterpret_cast<const Bits*>(row) + expert(i, lane));
                reinterpret_cast<Bits*>(elements)[i] = word;
            }
        }
    }
};

template <int kLanes>
__device__ __forceinline__ float sum_lanes(float value) {
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(kFullWarp, value, distance);
    return value;
}

__device__ __forceinline__ float exp2_approx(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(x));
    return result;
}

// The kTop best keys of one token, largest first, the same in all its lanes. Few lanes with many
// logits each are better than the opposite: sorting in a lane costs no exchange, and every step
// across lanes is done by all of them alike.
template <int kTop, class T, int kLanes, int kPerLane>
__device__ __forceinline__ void select_top(int (&best)[kTop],
                                           const LogitSlice<T, kLanes, kPerLane>& slice, int lane) {
    using Slice = LogitSlice<T, kLanes, kPerLane>;
    using Rank = Ranking<T, Slice::kCapacity>;
#pragma unroll
    for (int batch = 0; batch < kPerLane; batch += kTop) {
        int candidates[kTop];
        // The code of lane 0, a constant: within a lane it orders as well as the lane's own.
#pragma unroll
        for (int i = 0; i < kTop; ++i)
            candidates[i] = Rank::key(slice.elements[batch + i],
                                      Rank::kCodeMask ^ Slice::expert(batch + i, 0));
        sort_descending<kTop>(candidates);
        if (batch == 0) {
#pragma unroll
            for (int i = 0; i < kTop; ++i) best[i] = candidates[i];
        } else {
            merge_top<kTop>(best, candidates);
        }
    }
#pragma unroll
    for (int i = 0; i < kTop; ++i) best[i] ^= lane * Slice::kWidth;  // now the lane's own
#pragma unroll
    for (int distance = 1; distance < kLanes; distance *= 2) {
        int other[kTop];
#pragma unroll
        for (int i = 0; i < kTop; ++i) other[i] = __shfl_xor_sync(kFullWarp, best[i], distance);
        merge_top<kTop>(best, other);
    }
}

// Whether the bits that keys of float logits leave out could change the choice or its order: if two
// chosen logits agree in all others, or if more logits than the chosen reach the last one's. A NaN
// reaches nothing, and a missing expert is one, so a count that is too low tells of those.
template <int kTop, int kLanes, int kPerLane>
__device__ __forceinline__ bool is_ambiguous(const int (&best)[kTop],
                                             const LogitSlice<float, kLanes, kPerLane>& slice) {
    using Rank = Ranking<float, kLanes * kPerLane>;
    const float least = Rank::logit(best[kTop - 1]);
    float reaching = 0.0f;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
        if (slice.elements[i] >= least) reaching += 1.0f;
    bool ambiguous = sum_lanes<kLanes>(reaching) != static_cast<float>(kTop);
#pragma unroll
    for (int i = 1; i < kTop; ++i)
        ambiguous |= ((best[i - 1] ^ best[i]) & Rank::kLogitMask) == 0;
    return ambiguous;
}

// The choice with all bits of float logits: one pass per rank, for the largest below the previous
// one. Slow, but it needs few registers next to the quick way, and is hardly ever taken. Leaves keys
// whose codes alone are right.
template <int kTop, int kLanes, int kPerLane>
__device__ __forceinline__ void select_top_exactly(int (&best)[kTop],
                                                   const LogitSlice<float, kLanes, kPerLane>& slice,
                                                   int lane) {
    using Slice = LogitSlice<float, kLanes, kPerLane>;
    using Rank = Ranking<float, Slice::kCapacity>;
    int last = INT32_MAX;  // the previous choice; equal logits go by falling code
    int last_code = kMaxExperts;
#pragma unroll 1
    for (int rank = 0; rank < kTop; ++rank) {
        int largest = INT32_MIN;
        int code = 0;
#pragma unroll
        for (int i = 0; i < kPerLane; ++i) {
            const int value = Rank::monotone(__float_as_int(slice.elements[i]));
            const int value_code = Rank::kCodeMask ^ Slice::expert(i, lane);
            const bool is_left = value < last || (value == last && value_code < last_code);
            if (is_left && value > largest) {  // codes fall with i, so the first of equals stays
                largest = value;
                code = value_code;
            }
        }
#pragma unroll
        for (int distance = 1; distance < kLanes; distance *= 2) {
            const int other = __shfl_xor_sync(kFullWarp, largest, distance);
            const int other_code = __shfl_xor_sync(kFullWarp, code, distance);
            if (other > largest || (other == largest && other_code > code)) {
                largest = other;
                code = other_code;
            }
        }
#pragma unroll
        for (int i = 0; i < kTop; ++i)
            if (i == rank) best[i] = code;
        last = largest;
        last_code = code;
    }
}

// Blocks per multiprocessor, at least: enough warps to hide one another's sorting, with 80 registers
// per thread, or 128 where a logit takes a whole one.
template <class T>
constexpr int gate_blocks() {
    return sizeof(T) == 2 ? 6 : 4;
}

// One block routes the tokens of one chunk, kLanes lanes to a token, and counts its experts.
template <class T, int kTop, int kLanes, int kPerLane>
__global__ void __launch_bounds__(kGateThreads, gate_blocks<T>())
    gate_tokens(const __grid_constant__ GateParams<T> params) {
    using Slice = LogitSlice<T, kLanes, kPerLane>;
    using Rank = Ranking<T, Slice::kCapacity>;
    constexpr int kSlots = kTop > kLanes ? kTop / kLanes : 1;  // results that one lane writes
    __shared__ int counts[kMaxExperts];
    for (int e = threadIdx.x; e < params.experts; e += kGateThreads) counts[e] = 0;
    __syncthreads();

    const int lane = static_cast<int>(threadIdx.x) % kLanes;
    const int begin = blockIdx.x * params.chunk_tokens;
    const int end = min(begin + params.chunk_tokens, params.tokens);
    // The bound is the block's, not the lane's: lanes without a token have to join the shuffles.
    for (int tile = begin; tile < end; tile += kGateThreads / kLanes) {
        const int token = tile + static_cast<int>(threadIdx.x) / kLanes;
        const bool exists = token < end;
        const T* logits = params.logits + static_cast<int64_t>(token) * params.experts;
        Slice slice;
        slice.load(logits, lane, exists ? params.experts : 0, params.vectorized);
        int best[kTop];
        select_top<kTop>(best, slice, lane);
        if constexpr (!Rank::kExact) {
            // Asked by all lanes, for it shuffles; those without a token have nothing to choose.
            const bool ambiguous = is_ambiguous<kTop>(best, slice);
            if (__any_sync(kFullWarp, ambiguous && exists))
                select_top_exactly<kTop>(best, slice, lane);
        }

        // Lane l goes on with slots l * kSlots and up. Picking them by comparison keeps the register
        // arrays free of indices that are only known at run time.
        int keys[kSlots] = {};
#pragma unroll
        for (int i = 0; i < kTop; ++i)
            if (i / kSlots == lane) keys[i % kSlots] = best[i];
        int ids[kSlots];
        float chosen[kSlots];
#pragma unroll
        for (int s = 0; s < kSlots; ++s) {
            ids[s] = Rank::kCodeMask ^ (keys[s] & Rank::kCodeMask);
            if constexpr (Rank::kExact) {
                chosen[s] = to_float(Rank::logit(keys[s]));
            } else {  // the key has not all bits of it, but it was read a moment ago
                ids[s] = min(ids[s], params.experts - 1);
                chosen[s] = exists ? __ldg(logits + ids[s]) : 0.0f;
            }
        }

        // Softmax relative to the largest logit. Renormalized weights need no other logit than the
        // chosen ones: the softmax's own denominator cancels.
        const float shift = -__shfl_sync(kFullWarp, chosen[0], 0, kLanes) * kLog2e;
        float weights[kSlots];
        float sum = 0.0f;
#pragma unroll
        for (int s = 0; s < kSlots; ++s) {
            weights[s] = exp2_approx(fmaf(chosen[s], kLog2e, shift));
            if (lane * kSlots + s < params.top_k) sum += weights[s];
        }
        if (!params.renormalize) {
            sum = 0.0f;
#pragma unroll
            for (int i = 0; i < kPerLane; ++i)
                if (Slice::expert(i, lane) < params.experts)
                    sum += exp2_approx(fmaf(to_float(slice.elements[i]), kLog2e, shift));
        }
        const float inverse = __fdividef(1.0f, sum_lanes<kLanes>(sum));

        const int64_t row = static_cast<int64_t>(token) * params.top_k;
#pragma unroll
        for (int s = 0; s < kSlots; ++s) {
            const int slot = lane * kSlots + s;
            if (exists && slot < params.top_k) {
                params.weights[row + slot] = weights[s] * inverse;
                params.ids[row + slot] = ids[s];
                atomicAdd(&counts[ids[s]], 1);
            }
        }
    }

    __syncthreads();
    for (int e = threadIdx.x; e < params.experts; e += kGateThreads)
        params.chunk_counts[static_cast<int64_t>(e) * params.chunks + blockIdx.x] = counts[e];
}

// The sum of the values of all threads before this one; `total` becomes that of the whole block.
template <int kThreads>
__device__ __forceinline__ int exclusive_block_scan(int value, int& total) {
    constexpr int kWarps = kThreads / 32;
    __shared__ int warp_totals[kWarps];
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    int inclusive = value;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const int before = __shfl_up_sync(kFullWarp, inclusive, distance);
        if (lane >= distance) inclusive += before;
    }
    __syncthreads();  // the totals of a previous scan may still be in use
    if (lane == 31) warp_totals[warp] = inclusive;
    __syncthreads();
    int exclusive = inclusive - value;
    total = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
        if (w < warp) exclusive += warp_totals[w];
        total += warp_totals[w];
    }
    return exclusive;
}

// One block per expert: its counts per chunk become the number of its pairs in earlier chunks.
__global__ void __launch_bounds__(kScanThreads)
    scan_counts(int* __restrict__ chunk_counts, int* __restrict__ totals, int chunks) {
    int* counts = chunk_counts + static_cast<int64_t>(blockIdx.x) * chunks;
    int carry = 0;
    for (int first = 0; first < chunks; first += kScanThreads) {
        const int chunk = first + static_cast<int>(threadIdx.x);
        const int count = chunk < chunks ? counts[chunk] : 0;
        int sum = 0;
        const int before = exclusive_block_scan<kScanThreads>(count, sum);
        if (chunk < chunks) counts[chunk] = carry + before;
        carry += sum;
    }
    if (threadIdx.x == 0) totals[blockIdx.x] = carry;
}

struct SortParams {
    const int* ids;            // (tokens, top_k)
    const int* chunk_starts;   // (experts, chunks), from scan_counts
    const int* totals;         // (experts)
    int* sorted_pairs;
    int* places;               // may be null
    int* tile_experts;
    int* offsets;              // (experts + 1)
    int pairs;
    int experts;
    int chunks;
    int chunk_pairs;
    int alignment;
};

struct SortMemory {
    int offsets[kMaxExperts + 1];
    int to_global[kMaxExperts];                // from a place in the chunk to the place in the result
    uint16_t next[kSortWarps][kMaxExperts];    // a warp's count, then its first place in the chunk
    uint32_t staged[kSortThreads * kSortItems];  // the chunk's pairs in the new order
};

// Where each expert's padded run starts. Every block does this small scan for itself; that is
// cheaper than one more kernel between the other two.
__device__ __forceinline__ void scan_totals(const SortParams& params, SortMemory& memory) {
    int carry = 0;
    for (int first = 0; first < params.experts; first += kSortThreads) {
        const int e = first + static_cast<int>(threadIdx.x);
        const int count = e < params.experts ? __ldg(params.totals + e) : 0;
        const int padded = (count + params.alignment - 1) / params.alignment * params.alignment;
        int sum = 0;
        const int before = exclusive_block_scan<kSortThreads>(padded, sum);
        if (e < params.experts) memory.offsets[e] = carry + before;
        carry += sum;
    }
    if (threadIdx.x == 0) memory.offsets[params.experts] = carry;
}

// The padding and the tile table of some experts, dealt out over the grid.
__device__ __forceinline__ void describe_runs(const SortParams& params, const SortMemory& memory) {
    for (int e = blockIdx.x; e < params.experts; e += gridDim.x) {
        const int begin = memory.offsets[e];
        const int end = memory.offsets[e + 1];
        for (int i = begin + __ldg(params.totals + e) + threadIdx.x; i < end; i += kSortThreads)
            params.sorted_pairs[i] = params.pairs;
        for (int j = begin / params.alignment + threadIdx.x; j < end / params.alignment;
             j += kSortThreads)
            params.tile_experts[j] = e;
    }
    if (blockIdx.x == 0)
        for (int e = threadIdx.x; e <= params.experts; e += kSortThreads)
            params.offsets[e] = memory.offsets[e];
}

// A pair's number among those of its expert in its warp's part of the chunk, 32 pairs at a time.
// The lanes with the same expert find one another by a vote; each one's rank among them is the
// number of such lanes below it, which is what keeps the sort stable.
__device__ __forceinline__ int rank_in_warp(int expert, uint16_t (&next)[kMaxExperts], int lane) {
    const unsigned peers = __match_any_sync(kFullWarp, expert);
    const int rank = __popc(peers & ((1u << lane) - 1u));
    const int start = expert >= 0 ? next[expert] : 0;
    __syncwarp();  // everybody has read the count before it moves on
    if (expert >= 0 && rank == 0) next[expert] = static_cast<uint16_t>(start + __popc(peers));
    __syncwarp();
    return start + rank;
}

// Turns the warps' counts into first places within the chunk: experts in order, and for each expert
// the warps in order. Also where the chunk's pairs of each expert go in the result.
__device__ __forceinline__ void scan_chunk(const SortParams& params, SortMemory& memory) {
    int carry = 0;
    for (int first = 0; first < params.experts; first += kSortThreads) {
        const int e = first + static_cast<int>(threadIdx.x);
        int count = 0;
        if (e < params.experts)
            for (int w = 0; w < kSortWarps; ++w) count += memory.next[w][e];
        int sum = 0;
        int place = carry + exclusive_block_scan<kSortThreads>(count, sum);
        carry += sum;
        if (e < params.experts) {
            const int64_t start = static_cast<int64_t>(e) * params.chunks + blockIdx.x;
            memory.to_global[e] = memory.offsets[e] + __ldg(params.chunk_starts + start) - place;
            for (int w = 0; w < kSortWarps; ++w) {
                const int warp_count = memory.next[w][e];
                memory.next[w][e] = static_cast<uint16_t>(place);
                place += warp_count;
            }
        }
    }
}

// One block sorts the pairs of one chunk, each warp a contiguous part of them. The chunk is put in
// order in shared memory first: pairs of one expert then leave side by side, in whole sectors, where
// each on its own would cost a sector of 32 bytes for its four.
__global__ void __launch_bounds__(kSortThreads, 4) sort_pairs(const __grid_constant__ SortParams params) {
    __shared__ SortMemory memory;
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int chunk_begin = blockIdx.x * params.chunk_pairs;
    const int chunk_end = min(chunk_begin + params.chunk_pairs, params.pairs);
    const int rounds = (params.chunk_pairs + kSortThreads - 1) / kSortThreads;  // at most kSortItems
    const int first = chunk_begin + warp * rounds * 32 + lane;

    int items[kSortItems];  // the pair's expert, and later in the upper half its rank; or -1
#pragma unroll
    for (int i = 0; i < kSortItems; ++i) {
        const bool exists = i < rounds && first + i * 32 < chunk_end;
        items[i] = exists ? __ldg(params.ids + first + i * 32) : -1;
    }
    for (int i = threadIdx.x; i < kSortWarps * kMaxExperts; i += kSortThreads) (&memory.next[0][0])[i] = 0;
    scan_totals(params, memory);
    __syncthreads();

#pragma unroll
    for (int i = 0; i < kSortItems; ++i)
        if (i < rounds) {
            const int rank = rank_in_warp(items[i], memory.next[warp], lane);
            if (items[i] >= 0) items[i] |= rank << 16;
        }
    __syncthreads();
    scan_chunk(params, memory);
    __syncthreads();

#pragma unroll
    for (int i = 0; i < kSortItems; ++i) {
        if (items[i] < 0) continue;
        const int pair = first + i * 32;
        const int expert = items[i] & 0xffff;
        const int place = memory.next[warp][expert] + (items[i] >> 16);
        memory.staged[place] = static_cast<uint32_t>(expert) << 16 | (pair - chunk_begin);
        if (params.places != nullptr) params.places[pair] = place + memory.to_global[expert];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < chunk_end - chunk_begin; i += kSortThreads) {
        const uint32_t staged = memory.staged[i];
        params.sorted_pairs[i + memory.to_global[staged >> 16]] = chunk_begin + (staged & 0xffffu);
    }
    describe_runs(params, memory);
}

struct Chunking {
    int tokens;  // per chunk
    int chunks;
};

Chunking divide_tokens(int tokens) {
    const int wanted = (tokens + kWantedChunks - 1) / kWantedChunks;
    const int size = min((wanted + kChunkStep - 1) / kChunkStep * kChunkStep, kMaxChunkTokens);
    return {size, (tokens + size - 1) / size};
}

template <class T, int kTop, int kLanes, int kPerLane>
cudaError_t launch_gate(const GateParams<T>& params, cudaStream_t stream) {
    gate_tokens<T, kTop, kLanes, kPerLane><<<params.chunks, kGateThreads, 0, stream>>>(params);
    return cudaGetLastError();
}

template <class T, int kTop>
cudaError_t dispatch_experts(const GateParams<T>& params, cudaStream_t stream) {
    if (params.experts <= 16) return launch_gate<T, kTop, 2, 8>(params, stream);
    if (params.experts <= 64) return launch_gate<T, kTop, 4, 16>(params, stream);
    if (params.experts <= 128) return launch_gate<T, kTop, 4, 32>(params, stream);
    if (params.experts <= 256) return launch_gate<T, kTop, 8, 32>(params, stream);
    return launch_gate<T, kTop, 16, 32>(params, stream);
}

template <class T>
cudaError_t dispatch_top(const GateParams<T>& params, cudaStream_t stream) {
    if (params.top_k <= 2) return dispatch_experts<T, 2>(params, stream);
    if (params.top_k <= 4) return dispatch_experts<T, 4>(params, stream);
    return dispatch_experts<T, 8>(params, stream);
}

bool is_valid(int tokens, int experts, int top_k) {
    return tokens >= 0 && tokens <= (1 << 27) && experts >= 1 && experts <= kMaxExperts &&
           top_k >= 1 && top_k <= kMaxTop && top_k <= experts;
}

}  // namespace kx

// Bytes of device memory that hand the counts over from the gate to the sort.
extern "C" int64_t kx_moe_workspace_bytes(int tokens, int experts) {
    const int64_t chunks = kx::divide_tokens(tokens).chunks;
    return (chunks + 1) * experts * static_cast<int64_t>(sizeof(int));
}

// dtype of the logits: 0 float, 1 half, 2 bfloat16. Returns a cudaError_t as int.
extern "C" int kx_moe_gate(const void* logits, float* weights, int* ids, int* workspace, int tokens,
                           int experts, int top_k, int renormalize, int dtype, void* stream) {
    if (!kx::is_valid(tokens, experts, top_k)) return cudaErrorInvalidValue;
    if (tokens == 0) return cudaSuccess;
    const kx::Chunking chunking = kx::divide_tokens(tokens);
    const auto run = [&](auto element) {
        using T = decltype(element);
        kx::GateParams<T> params{};
        params.logits = static_cast<const T*>(logits);
        params.weights = weights;
        params.ids = ids;
        params.chunk_counts = workspace;
        params.tokens = tokens;
        params.experts = experts;
        params.top_k = top_k;
        params.chunks = chunking.chunks;
        params.chunk_tokens = chunking.tokens;
        params.vectorized = reinterpret_cast<uintptr_t>(logits) % 16 == 0 &&
                            experts * static_cast<int>(sizeof(T)) % 16 == 0;
        params.renormalize = renormalize != 0;
        return kx::dispatch_top(params, static_cast<cudaStream_t>(stream));
    };
    switch (dtype) {
        case 0:
            return run(float{});
        case 1:
            return run(__half{});
        case 2:
            return run(__nv_bfloat16{});
        default:
            return cudaErrorInvalidValue;
    }
}

// Sorts what kx_moe_gate wrote to ids and workspace, with the same tokens, experts and top_k.
// sorted_pairs needs room for pairs + experts * (alignment - 1), tile_experts for that over
// alignment; both are written up to offsets[experts] only.
extern "C" int kx_moe_sort(const int* ids, int* workspace, int* sorted_pairs, int* places,
                           int* tile_experts, int* offsets, int tokens, int experts, int top_k,
                           int alignment, void* stream) {
    if (!kx::is_valid(tokens, experts, top_k) || tokens == 0 || alignment < 1 || alignment > 1024)
        return cudaErrorInvalidValue;
    const kx::Chunking chunking = kx::divide_tokens(tokens);
    const auto cuda_stream = static_cast<cudaStream_t>(stream);
    kx::SortParams params{};
    params.ids = ids;
    params.chunk_starts = workspace;
    params.totals = workspace + static_cast<int64_t>(experts) * chunking.chunks;
    params.sorted_pairs = sorted_pairs;
    params.places = places;
    params.tile_experts = tile_experts;
    params.offsets = offsets;
    params.pairs = tokens * top_k;
    params.experts = experts;
    params.chunks = chunking.chunks;
    params.chunk_pairs = chunking.tokens * top_k;
    params.alignment = alignment;
    int* totals = workspace + static_cast<int64_t>(experts) * chunking.chunks;
    kx::scan_counts<<<experts, kx::kScanThreads, 0, cuda_stream>>>(workspace, totals, chunking.chunks);
    const cudaError_t status = cudaGetLastError();
    if (status != cudaSuccess) return status;
    kx::sort_pairs<<<chunking.chunks, kx::kSortThreads, 0, cuda_stream>>>(params);
    return cudaGetLastError();
}
