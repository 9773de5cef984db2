// Mamba-1 selective scan, forward, for float, half and bfloat16 activations.
// Written for kx. SPDX-License-Identifier: Apache-2.0
//
// For every batch b and channel d, with a state of N independent numbers:
//
//   delta_t = softplus(delta[b,d,t] + delta_bias[d])
//   h_t[n]  = exp(delta_t * A[d,n]) * h_{t-1}[n] + delta_t * B[b,n,t] * u[b,d,t]
//   out_t   = (sum_n C[b,n,t] * h_t[n] + D[d] * u[b,d,t]) * z_t * sigmoid(z_t)
//
// The recurrence looks sequential, but a step h -> a * h + b is an affine map, maps compose
// associatively, and so the L steps can be scanned in parallel. One block owns one (batch, channel)
// row and walks over it in chunks of kThreads * kItems positions. The N states never exist outside
// registers and a few hundred bytes of shared memory; storing them per position, as a direct
// implementation would, costs N times the traffic of the output.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace kx {

constexpr int kMaxStates = 256;
constexpr unsigned kFullWarp = 0xffffffffu;
constexpr float kLog2e = 1.44269504088896341f;

template <class T>
struct SelectiveScanParams {
    // (batch, channels, length) and (batch, states, length), row t = 0 every row_stride elements.
    const T* u;
    const T* delta;
    const T* b;
    const T* c;
    const T* z;  // may be null: no gate
    T* out;
    const float* a;              // (channels, states)
    const float* d;              // (channels), may be null: no skip
    const float* delta_bias;     // (channels), may be null
    const float* initial_state;  // (batch, channels, states), may be null: zeros
    float* final_state;          // (batch, channels, states), may be null
    int64_t row_stride;
    int channels;
    int states;
    int length;
    bool softplus;
};

__device__ __forceinline__ float exp2_approx(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(x));
    return result;
}

template <class T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
    return x;
}
template <>
__device__ __forceinline__ __half from_float<__half>(float x) {
    return __float2half_rn(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
    return __float2bfloat16_rn(x);
}

// The affine map h -> a * h + b.
using AffineMap = float2;

__device__ __forceinline__ AffineMap identity_map() { return make_float2(1.0f, 0.0f); }

// First `earlier`, then `later`. Associative but not commutative: operands must stay in time order.
__device__ __forceinline__ AffineMap then(AffineMap earlier, AffineMap later) {
    return make_float2(earlier.x * later.x, fmaf(later.x, earlier.y, later.y));
}

// kItems consecutive elements of one row as they came from memory. Unpacking to float is put off
// to the point of use: 16-bit types then cost half a register per element while in flight.
template <class T, int kItems>
struct alignas(16) RowSlice {
    static constexpr int kPerVector = 16 / static_cast<int>(sizeof(T));
    static constexpr int kVectors = kItems / kPerVector;
    static_assert(kItems % kPerVector == 0, "a thread's slice is a whole number of 128-bit words");

    T elements[kItems];

    __device__ __forceinline__ uint4* vectors() { return reinterpret_cast<uint4*>(elements); }

    __device__ __forceinline__ float get(int i) const {
        if constexpr (std::is_same_v<T, float>) {
            return elements[i];
        } else if constexpr (std::is_same_v<T, __half>) {
            return __half2float(elements[i]);
        } else {
            // A bfloat16 is the upper half of a float: one shift or one mask on the packed pair.
            const uint32_t pair = reinterpret_cast<const uint32_t*>(elements)[i / 2];
            return __uint_as_float(i % 2 == 0 ? pair << 16 : pair & 0xffff0000u);
        }
    }
};

// How a chunk reaches memory. 128-bit accesses need rows that start on 16-byte boundaries.
enum class Access {
    kWhole,    // aligned rows, and the chunk lies wholly inside them: 128-bit words, no tests
    kPartial,  // aligned rows, last chunk: whole slices in 128-bit words, the ragged one by element
    kElements  // other rows: every element on its own, each with its test
};

// Loads source[0 .. kItems) through the read-only path. Only `available` elements exist (any number,
// also negative); the others become 0. Consecutive threads own consecutive slices of one or two
// words; a warp thus covers a contiguous range and needs no transposition through shared memory.
template <Access kAccess, class T, int kItems>
__device__ __forceinline__ void load_slice(RowSlice<T, kItems>& slice, const T* __restrict__ source,
                                           int available) {
    if (kAccess == Access::kWhole || (kAccess == Access::kPartial && available >= kItems)) {
#pragma unroll
        for (int v = 0; v < RowSlice<T, kItems>::kVectors; ++v)
            slice.vectors()[v] = __ldg(reinterpret_cast<const uint4*>(source) + v);
    } else {
#pragma unroll
        for (int i = 0; i < kItems; ++i)
            slice.elements[i] = i < available ? __ldg(source + i) : from_float<T>(0.0f);
    }
}

template <Access kAccess, class T, int kItems>
__device__ __forceinline__ void store_slice(T* __restrict__ target, RowSlice<T, kItems>& slice,
                                            int available) {
    if (kAccess == Access::kWhole || (kAccess == Access::kPartial && available >= kItems)) {
#pragma unroll
        for (int v = 0; v < RowSlice<T, kItems>::kVectors; ++v)
            reinterpret_cast<uint4*>(target)[v] = slice.vectors()[v];
    } else {
#pragma unroll
        for (int i = 0; i < kItems; ++i)
            if (i < available) target[i] = slice.elements[i];
    }
}

__device__ __forceinline__ float softplus(float x) {
    // Above 20 the result equals x to float precision; the exponential would overflow at 89.
    return x > 20.0f ? x : log1pf(exp2_approx(x * kLog2e));
}

__device__ __forceinline__ float silu(float x) {
    // For very negative x the denominator is +inf and the quotient the correct limit -0.
    return __fdividef(x, 1.0f + exp2_approx(-x * kLog2e));
}

// Inclusive scan over the lanes of a warp (Kogge-Stone, five steps).
__device__ __forceinline__ AffineMap inclusive_warp_scan(AffineMap value, int lane) {
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        // All lanes take part in the shuffle, but one without a left neighbour at this distance
        // gets its own value back, which is not neutral; it has to compose with the identity.
        AffineMap earlier = make_float2(__shfl_up_sync(kFullWarp, value.x, distance),
                                        __shfl_up_sync(kFullWarp, value.y, distance));
        if (lane < distance) earlier = identity_map();
        value = then(earlier, value);
    }
    return value;
}

// The composition of all maps of the threads before this one. One barrier: the caller alternates
// between two sets of warp_totals, so a fast warp that already runs the next scan writes into the
// other set, and cannot come back to this one before everybody has passed that scan's barrier.
template <int kWarps>
__device__ __forceinline__ AffineMap exclusive_block_scan(AffineMap value, AffineMap* warp_totals) {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const AffineMap inclusive = inclusive_warp_scan(value, lane);
    if (kWarps > 1 && lane == 31) warp_totals[warp] = inclusive;

    AffineMap exclusive = make_float2(__shfl_up_sync(kFullWarp, inclusive.x, 1),
                                      __shfl_up_sync(kFullWarp, inclusive.y, 1));
    if (lane == 0) exclusive = identity_map();

    __syncthreads();
    if constexpr (kWarps > 1) {
        // With this few warps a serial fold of broadcast reads beats another shuffle scan.
        AffineMap before = identity_map();
#pragma unroll
        for (int w = 0; w < kWarps - 1; ++w)
            if (w < warp) before = then(before, warp_totals[w]);
        exclusive = then(before, exclusive);
    }
    return exclusive;
}

template <int kThreads>
struct BlockMemory {
    float decay_rates[kMaxStates];     // A * log2(e): exp becomes a bare exp2
    float carried_states[kMaxStates];  // h at the end of the previous chunk
    AffineMap warp_totals[2][kThreads / 32];
};

// Where a block's rows start, and the constants of its channel.
struct BlockRow {
    int64_t channel_offset;
    int64_t state_offset;
    float skip;
    float bias;
};

// Scans kThreads * kItems positions, beginning at `chunk`, for all states.
template <Access kAccess, int kThreads, int kItems, class T>
__device__ __forceinline__ void scan_chunk(const SelectiveScanParams<T>& params,
                                           BlockMemory<kThreads>& memory, const BlockRow& row,
                                           int chunk) {
    using Slice = RowSlice<T, kItems>;
    const int first = chunk + static_cast<int>(threadIdx.x) * kItems;
    const int available = params.length - first;  // positions left for this thread, maybe <= 0

    float step[kItems];   // delta
    float input[kItems];  // delta * u
    float y[kItems];
    float step_sum = 0.0f;
    {
        Slice u;
        Slice delta;
        load_slice<kAccess>(u, params.u + row.channel_offset + first, available);
        load_slice<kAccess>(delta, params.delta + row.channel_offset + first, available);
#pragma unroll
        for (int i = 0; i < kItems; ++i) {
            float value = delta.get(i) + row.bias;
            if (params.softplus) value = softplus(value);
            // Positions beyond the end must be identity maps (1, 0), or the last thread would carry
            // a wrong state out of the chunk. Zero-filling is not enough: a zero-filled pair (0, *)
            // is the opposite of neutral, it wipes the state, and a zero-filled delta still becomes
            // softplus(bias) > 0, a decay. Only a step of exactly 0 is safe: exp2(0 * A) = 1 and
            // 0 * u * B = 0.
            if (kAccess != Access::kWhole && i >= available) value = 0.0f;
            step[i] = value;
            input[i] = value * u.get(i);
            y[i] = row.skip * u.get(i);
            step_sum += value;
        }
    }

    // Publishes carried_states: the initial ones, or those of the previous chunk.
    __syncthreads();

    const T* b_source = params.b + row.state_offset + first;
    const T* c_source = params.c + row.state_offset + first;
    // Whole chunks fetch B one state ahead. Elsewhere the loads with their tests already need the
    // registers that a row in waiting would occupy.
    constexpr bool kPrefetch = kAccess == Access::kWhole;
    Slice b;
    if (kPrefetch) load_slice<kAccess>(b, b_source, available);
#pragma unroll 1
    for (int n = 0; n < params.states; ++n) {
        if (!kPrefetch) load_slice<kAccess>(b, b_source, available);
        // C is not needed before the scan is done: its latency hides behind it.
        Slice c;
        load_slice<kAccess>(c, c_source, available);
        c_source += params.row_stride;

        const float rate = memory.decay_rates[n];
        // Read on this side of the barrier in the scan; the update is on the other side.
        const float carried = memory.carried_states[n];

        // Compose this thread's maps. The decays of consecutive steps multiply, so their exponents
        // add and one exp2 of the step sum replaces kItems - 1 multiplications.
        AffineMap maps[kItems];
        AffineMap total = make_float2(exp2_approx(rate * step_sum), 0.0f);
#pragma unroll
        for (int i = 0; i < kItems; ++i) {
            maps[i] = make_float2(exp2_approx(rate * step[i]), input[i] * b.get(i));
            total.y = fmaf(maps[i].x, total.y, maps[i].y);
        }

        // Start on the next B row, it arrives while the scan waits for its barrier.
        b_source += params.row_stride;
        if (kPrefetch && n + 1 < params.states) load_slice<kAccess>(b, b_source, available);

        const AffineMap before = exclusive_block_scan<kThreads / 32>(total, memory.warp_totals[n % 2]);

        // Replay the steps from the true state; the maps are still in registers.
        float h = fmaf(before.x, carried, before.y);
#pragma unroll
        for (int i = 0; i < kItems; ++i) {
            h = fmaf(maps[i].x, h, maps[i].y);
            y[i] = fmaf(c.get(i), h, y[i]);
        }
        if (threadIdx.x == kThreads - 1) memory.carried_states[n] = h;
    }

    if (params.z != nullptr) {
        Slice z;
        load_slice<kAccess>(z, params.z + row.channel_offset + first, available);
#pragma unroll
        for (int i = 0; i < kItems; ++i) y[i] *= silu(z.get(i));
    }
    Slice result;
#pragma unroll
    for (int i = 0; i < kItems; ++i) result.elements[i] = from_float<T>(y[i]);
    store_slice<kAccess>(params.out + row.channel_offset + first, result, available);
}

// At least 16 warps per SM, to hide the barriers and shuffles of one another: 128 registers each.
template <class T, int kThreads, int kItems, bool kAligned>
__global__ void __launch_bounds__(kThreads, 512 / kThreads)
    selective_scan_forward(const __grid_constant__ SelectiveScanParams<T> params) {
    constexpr int kChunk = kThreads * kItems;
    __shared__ BlockMemory<kThreads> memory;

    // Channels of one batch are neighbours in the grid: blocks that share an SM stream through the
    // same B and C rows at about the same time and find them in L1 or L2.
    const int channel = blockIdx.x;
    const int64_t batch = blockIdx.y;
    const int64_t channel_row = batch * params.channels + channel;
    BlockRow row;
    row.channel_offset = channel_row * params.row_stride;
    row.state_offset = batch * params.states * params.row_stride;
    row.skip = params.d == nullptr ? 0.0f : params.d[channel];
    row.bias = params.delta_bias == nullptr ? 0.0f : params.delta_bias[channel];

    for (int n = threadIdx.x; n < params.states; n += kThreads) {
        memory.decay_rates[n] = params.a[static_cast<int64_t>(channel) * params.states + n] * kLog2e;
        memory.carried_states[n] = params.initial_state == nullptr
                                       ? 0.0f
                                       : params.initial_state[channel_row * params.states + n];
    }

    int chunk = 0;
    if constexpr (kAligned) {
        for (; chunk + kChunk <= params.length; chunk += kChunk)
            scan_chunk<Access::kWhole, kThreads, kItems>(params, memory, row, chunk);
        if (chunk < params.length)
            scan_chunk<Access::kPartial, kThreads, kItems>(params, memory, row, chunk);
    } else {
        for (; chunk < params.length; chunk += kChunk)
            scan_chunk<Access::kElements, kThreads, kItems>(params, memory, row, chunk);
    }

    if (params.final_state != nullptr) {
        __syncthreads();
        for (int n = threadIdx.x; n < params.states; n += kThreads)
            params.final_state[channel_row * params.states + n] = memory.carried_states[n];
    }
}

template <class T, int kThreads, int kVectors, bool kAligned>
cudaError_t launch(const SelectiveScanParams<T>& params, int batch, cudaStream_t stream) {
    constexpr int kItems = kVectors * RowSlice<T, 16>::kPerVector;
    const dim3 grid(params.channels, batch);
    selective_scan_forward<T, kThreads, kItems, kAligned><<<grid, kThreads, 0, stream>>>(params);
    return cudaGetLastError();
}

// A longer slice per thread spreads the fixed cost of the scan over more positions, but the block
// must not be much longer than the sequence, or most threads would scan padding.
template <class T, bool kAligned>
cudaError_t dispatch_length(const SelectiveScanParams<T>& params, int batch, cudaStream_t stream) {
    constexpr int kPerVector = RowSlice<T, 16>::kPerVector;
    if (params.length <= 32 * kPerVector) return launch<T, 32, 1, kAligned>(params, batch, stream);
    if (params.length <= 64 * 2 * kPerVector)
        return launch<T, 64, 2, kAligned>(params, batch, stream);
    return launch<T, 128, 2, kAligned>(params, batch, stream);
}

template <class T>
cudaError_t dispatch(const void* u, const void* delta, const float* a, const void* b, const void* c,
                     const float* d, const void* z, const float* delta_bias,
                     const float* initial_state, void* out, float* final_state, int batch,
                     int channels, int states, int length, int64_t row_stride, bool softplus,
                     cudaStream_t stream) {
    SelectiveScanParams<T> params{};
    params.u = static_cast<const T*>(u);
    params.delta = static_cast<const T*>(delta);
    params.b = static_cast<const T*>(b);
    params.c = static_cast<const T*>(c);
    params.z = static_cast<const T*>(z);
    params.out = static_cast<T*>(out);
    params.a = a;
    params.d = d;
    params.delta_bias = delta_bias;
    params.initial_state = initial_state;
    params.final_state = final_state;
    params.row_stride = row_stride;
    params.channels = channels;
    params.states = states;
    params.length = length;
    params.softplus = softplus;

    bool aligned = row_stride * static_cast<int64_t>(sizeof(T)) % 16 == 0;
    for (const void* pointer : {u, delta, b, c, z, static_cast<const void*>(out)})
        aligned = aligned && reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
    return aligned ? dispatch_length<T, true>(params, batch, stream)
                   : dispatch_length<T, false>(params, batch, stream);
}

}  // namespace kx

// dtype: 0 float, 1 half, 2 bfloat16 (u, delta, b, c, z and out). Returns a cudaError_t as int.
extern "C" int kx_selective_scan_forward(const void* u, const void* delta, const float* a,
                                         const void* b, const void* c, const float* d,
                                         const void* z, const float* delta_bias,
                                         const float* initial_state, void* out, float* final_state,
                                         int batch, int channels, int states, int length,
                                         int64_t row_stride, int dtype, int softplus,
                                         void* stream) {
    // The length limit keeps `chunk + kChunk` from overflowing in the last step of the loop.
    if (batch < 0 || batch > 65535 || channels < 0 || states < 1 || states > kx::kMaxStates ||
        length < 0 || length > (1 << 30) || row_stride < length)
        return cudaErrorInvalidValue;
    if (batch == 0 || channels == 0) return cudaSuccess;

    const auto run = [&](auto element) {
        using T = decltype(element);
        return kx::dispatch<T>(u, delta, a, b, c, d, z, delta_bias, initial_state, out, final_state,
                               batch, channels, states, length, row_stride, softplus != 0,
                               static_cast<cudaStream_t>(stream));
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
