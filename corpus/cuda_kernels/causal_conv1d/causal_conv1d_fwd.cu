// Depthwise causal convolution along the sequence, for float, half and bfloat16 activations.
// Written for kx. SPDX-License-Identifier: Apache-2.0
//
// For every batch b and channel d, with a filter of W = 2, 3 or 4 taps:
//
//   out[b,d,t] = act(bias[d] + sum_{w < W} weight[d,w] * x[b,d,t - (W-1) + w])
//
// where act is SiLU or nothing, and x[b,d,-1], x[b,d,-2], ... come from the initial state or are 0.
//
// Every input is needed by W outputs, yet it has to be read only once: a few multiply-adds per
// element are nothing beside the memory traffic, so the kernel is a copy with arithmetic in
// between, and is built like one. Each lane loads 128-bit vectors, gets the W - 1 elements before
// each of them from the neighbouring lane by shuffles, and stores 128-bit vectors. There is no
// shared memory and no barrier; warps are independent of each other.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace kx {

constexpr int kWarpsPerBlock = 4;
constexpr unsigned kFullWarp = 0xffffffffu;
constexpr float kLog2e = 1.44269504088896341f;

// Activations travel as raw bits, in 32-bit words: that is what shuffles move and what 128-bit
// accesses consist of. They become floats only at the point of use.
template <class T>
struct Element;

template <>
struct Element<float> {
    using Bits = uint32_t;
    static __device__ __forceinline__ float unpack(uint32_t word, int) {
        return __uint_as_float(word);
    }
    static __device__ __forceinline__ uint32_t pack(const float* values) {
        return __float_as_uint(values[0]);
    }
};

template <>
struct Element<__half> {
    using Bits = uint16_t;
    static __device__ __forceinline__ float unpack(uint32_t word, int i) {
        return __half2float(__ushort_as_half(static_cast<uint16_t>(word >> (16 * i))));
    }
    static __device__ __forceinline__ uint32_t pack(const float* values) {
        const __half2 pair = __floats2half2_rn(values[0], values[1]);
        return *reinterpret_cast<const uint32_t*>(&pair);
    }
};

template <>
struct Element<__nv_bfloat16> {
    using Bits = uint16_t;
    // A bfloat16 is the upper half of a float: one shift or one mask.
    static __device__ __forceinline__ float unpack(uint32_t word, int i) {
        return __uint_as_float(i == 0 ? word << 16 : word & 0xffff0000u);
    }
    static __device__ __forceinline__ uint32_t pack(const float* values) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(values[0], values[1]);
        return *reinterpret_cast<const uint32_t*>(&pair);
    }
};

// How a warp cuts its part of a row: kVectors times 32 vectors of 16 bytes, vector v of lane l at
// position v * 32 + l, so that each of the warp's loads covers 512 contiguous bytes.
template <class T, int kWidth_, int kVectors_>
struct Segment {
    using Bits = typename Element<T>::Bits;
    static constexpr int kWidth = kWidth_;
    static constexpr int kVectors = kVectors_;
    static constexpr int kPerWord = 4 / static_cast<int>(sizeof(T));
    static constexpr int kPerVector = 4 * kPerWord;
    static constexpr int kElements = kVectors * 32 * kPerVector;
    // The words that hold the W - 1 elements in front of a vector.
    static constexpr int kTailWords = (kWidth - 1 + kPerWord - 1) / kPerWord;
    static constexpr int kTailElements = kTailWords * kPerWord;
};

// All pointers are to raw bits of the activation type; strides are in elements.
template <class Bits>
struct ConvParams {
    const Bits* x;              // (batch, channels, length), the length contiguous
    const float* weight;        // (channels, width)
    const float* bias;          // (channels), may be null
    const Bits* initial_state;  // (batch, channels, width - 1), oldest first; may be null: zeros
    Bits* out;                  // (batch, channels, length)
    Bits* final_state;          // (batch, channels, width - 1): the last inputs; may be null
    int64_t x_batch_stride;
    int64_t x_channel_stride;
    int64_t out_batch_stride;
    int64_t out_channel_stride;
    int channels;
    int length;
    int segments;  // per row
    int max_lead;  // how far behind a 16-byte boundary a row may start, in elements
    bool silu;
    bool same_alignment;  // rows of x and out start at the same offset from a 16-byte boundary
};

// One row of x, continued to the left by the initial state and to the right by zeros.
template <class Bits, int kWidth>
struct InputRow {
    const Bits* x;
    const Bits* history;  // element i < 0 of the row is history[i + kWidth - 1]
    int length;

    __device__ __forceinline__ Bits at(int i) const {
        if (i >= 0) return i < length ? __ldg(x + i) : Bits{0};
        return history != nullptr && i >= 1 - kWidth ? __ldg(history + i + kWidth - 1) : Bits{0};
    }

    // Elements i .. i + kPerWord - 1, one by one.
    template <int kPerWord>
    __device__ __forceinline__ uint32_t word_at(int i) const {
        uint32_t word = 0;
#pragma unroll
        for (int e = 0; e < kPerWord; ++e)
            word |= static_cast<uint32_t>(at(i + e)) << (e * 8 * sizeof(Bits));
        return word;
    }
};

// Loads the vector that begins at element i of the row. Only the ragged first and last vector of a
// row go element by element.
template <class S>
__device__ __forceinline__ void load_vector(uint32_t (&words)[4],
                                            const InputRow<typename S::Bits, S::kWidth>& row,
                                            int i) {
    if (i >= 0 && i + S::kPerVector <= row.length) {
        const uint4 vector = __ldg(reinterpret_cast<const uint4*>(row.x + i));
        words[0] = vector.x;
        words[1] = vector.y;
        words[2] = vector.z;
        words[3] = vector.w;
    } else {
#pragma unroll
        for (int j = 0; j < 4; ++j)
            words[j] = row.template word_at<S::kPerWord>(i + j * S::kPerWord);
    }
}

template <class S>
__device__ __forceinline__ void store_vector(typename S::Bits* out, const uint32_t (&words)[4],
                                             int i, int length, bool whole) {
    using Bits = typename S::Bits;
    if (whole && i >= 0 && i + S::kPerVector <= length) {
        *reinterpret_cast<uint4*>(out + i) = make_uint4(words[0], words[1], words[2], words[3]);
    } else {
#pragma unroll
        for (int e = 0; e < S::kPerVector; ++e) {
            const uint32_t word = words[e / S::kPerWord];
            if (i + e >= 0 && i + e < length)
                out[i + e] = static_cast<Bits>(word >> (e % S::kPerWord * 8 * sizeof(Bits)));
        }
    }
}

// exp(-x) as one multiplication and one ex2, the quotient by a bare reciprocal: the denominator is
// at least 1, so none of the care that a division takes of tiny ones is needed. For very negative x
// the denominator is +inf and the product the correct limit -0.
__device__ __forceinline__ float silu(float x) {
    float exponential;
    float reciprocal;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(exponential) : "f"(-kLog2e * x));
    asm("rcp.approx.ftz.f32 %0, %1;\n" : "=f"(reciprocal) : "f"(1.0f + exponential));
    return x * reciprocal;
}

// The filter over one vector. `before` are the words in front of it.
template <class T, class S>
__device__ __forceinline__ void convolve_vector(uint32_t (&result)[4],
                                                const uint32_t (&before)[S::kTailWords],
                                                const uint32_t (&words)[4],
                                                const float (&weight)[S::kWidth], float bias,
                                                bool apply_silu) {
    float window[S::kTailElements + S::kPerVector];
#pragma unroll
    for (int e = 0; e < S::kTailElements; ++e)
        window[e] = Element<T>::unpack(before[e / S::kPerWord], e % S::kPerWord);
#pragma unroll
    for (int e = 0; e < S::kPerVector; ++e)
        window[S::kTailElements + e] = Element<T>::unpack(words[e / S::kPerWord], e % S::kPerWord);

    float values[S::kPerVector];
#pragma unroll
    for (int e = 0; e < S::kPerVector; ++e) {
        float sum = bias;
#pragma unroll
        for (int w = 0; w < S::kWidth; ++w)
            sum = fmaf(weight[w], window[S::kTailElements + e - (S::kWidth - 1) + w], sum);
        values[e] = apply_silu ? silu(sum) : sum;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) result[j] = Element<T>::pack(values + j * S::kPerWord);
}

// Up to 64 registers per thread: 32 warps per SM, each with four loads of 512 bytes under way.
template <class T, int kWidth, int kVectors>
__global__ void __launch_bounds__(kWarpsPerBlock * 32, 8)
    causal_conv1d_forward(const __grid_constant__ ConvParams<typename Element<T>::Bits> params) {
    using S = Segment<T, kWidth, kVectors>;
    using Bits = typename S::Bits;

    // One warp, one segment of one row. Neighbouring warps read neighbouring memory.
    const int lane = threadIdx.x % 32;
    const unsigned task = blockIdx.x * kWarpsPerBlock + threadIdx.x / 32;
    const int channel = task / params.segments;
    if (channel >= params.channels) return;
    const int segment = task - channel * params.segments;
    const int64_t batch = blockIdx.y;
    const int64_t state_offset = (batch * params.channels + channel) * (kWidth - 1);

    InputRow<Bits, kWidth> row;
    row.x = params.x + batch * params.x_batch_stride + channel * params.x_channel_stride;
    row.history = params.initial_state == nullptr ? nullptr : params.initial_state + state_offset;
    row.length = params.length;
    Bits* out = params.out + batch * params.out_batch_stride + channel * params.out_channel_stride;

    // Vectors are cut at 16-byte boundaries of memory, not of the row. A row that starts between
    // two boundaries (any odd length makes such rows) has a ragged vector at its front, but all
    // others are as aligned as those of any row.
    const int lead =
        static_cast<int>(reinterpret_cast<uintptr_t>(row.x) / sizeof(Bits)) & (S::kPerVector - 1);
    const int first = segment * S::kElements - lead;
    if (first >= params.length) return;

    // All loads are started before anything waits for one of them.
    uint32_t words[kVectors][4];
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
        load_vector<S>(words[v], row, first + (v * 32 + lane) * S::kPerVector);

    float weight[kWidth];
#pragma unroll
    for (int w = 0; w < kWidth; ++w) weight[w] = __ldg(params.weight + channel * kWidth + w);
    const float bias = params.bias == nullptr ? 0.0f : __ldg(params.bias + channel);

    // What precedes the segment. Lane 31 fetches it, because it hands it to lane 0 below.
    uint32_t halo[S::kTailWords];
#pragma unroll
    for (int j = 0; j < S::kTailWords; ++j) {
        halo[j] = 0;
        if (lane == 31)
            halo[j] = row.template word_at<S::kPerWord>(first - S::kTailElements + j * S::kPerWord);
    }

#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
        // A rotation by one lane: everyone gets the end of the vector to its left. For lane 0 that
        // is the last vector of the round before, which lane 31 supplies instead of its own; its
        // own belongs to lane 0 of the next round.
        uint32_t before[S::kTailWords];
#pragma unroll
        for (int j = 0; j < S::kTailWords; ++j) {
            const int position = 4 - S::kTailWords + j;
            const uint32_t previous_round = v == 0 ? halo[j] : words[v == 0 ? 0 : v - 1][position];
            const uint32_t supplied = lane == 31 ? previous_round : words[v][position];
            before[j] = __shfl_sync(kFullWarp, supplied, (lane + 31) % 32);
        }
        uint32_t result[4];
        convolve_vector<T, S>(result, before, words[v], weight, bias, params.silu);
        store_vector<S>(out, result, first + (v * 32 + lane) * S::kPerVector, params.length,
                        params.same_alignment);
    }

    // The last W - 1 inputs, some of them perhaps still from the initial state.
    const bool last_segment = first + S::kElements >= params.length;
    if (params.final_state != nullptr && last_segment && lane < kWidth - 1)
        params.final_state[state_offset + lane] = row.at(params.length - (kWidth - 1) + lane);
}

template <class S, class Params>
int count_segments(const Params& params) {
    const int64_t span = static_cast<int64_t>(params.length) + params.max_lead;
    return static_cast<int>((span + S::kElements - 1) / S::kElements);
}

template <class T, int kWidth, int kVectors>
cudaError_t launch(ConvParams<typename Element<T>::Bits> params, int batch, cudaStream_t stream) {
    params.segments = count_segments<Segment<T, kWidth, kVectors>>(params);
    const int64_t tasks = static_cast<int64_t>(params.channels) * params.segments;
    if (tasks > INT32_MAX - kWarpsPerBlock) return cudaErrorInvalidValue;
    const dim3 grid(static_cast<unsigned>((tasks + kWarpsPerBlock - 1) / kWarpsPerBlock), batch);
    causal_conv1d_forward<T, kWidth, kVectors><<<grid, kWarpsPerBlock * 32, 0, stream>>>(params);
    return cudaGetLastError();
}

// More vectors per lane keep more loads in flight and spread the fixed cost of a warp, but leave
// more lanes empty at the end of a row. A warp's fixed cost is put at that of one more vector.
template <class T, int kWidth>
cudaError_t dispatch_vectors(const ConvParams<typename Element<T>::Bits>& params, int batch,
                             cudaStream_t stream) {
    const int64_t one = count_segments<Segment<T, kWidth, 1>>(params) * int64_t{1 + 1};
    const int64_t two = count_segments<Segment<T, kWidth, 2>>(params) * int64_t{2 + 1};
    const int64_t four = count_segments<Segment<T, kWidth, 4>>(params) * int64_t{4 + 1};
    if (four <= one && four <= two) return launch<T, kWidth, 4>(params, batch, stream);
    if (two <= one) return launch<T, kWidth, 2>(params, batch, stream);
    return launch<T, kWidth, 1>(params, batch, stream);
}

template <class T>
cudaError_t dispatch(const void* x, const float* weight, const float* bias,
                     const void* initial_state, void* out, void* final_state,
                     const int64_t* x_strides, const int64_t* out_strides, int batch, int channels,
                     int length, int width, bool silu, cudaStream_t stream) {
    using Bits = typename Element<T>::Bits;
    ConvParams<Bits> params{};
    params.x = static_cast<const Bits*>(x);
    params.weight = weight;
    params.bias = bias;
    params.initial_state = static_cast<const Bits*>(initial_state);
    params.out = static_cast<Bits*>(out);
    params.final_state = static_cast<Bits*>(final_state);
    params.x_batch_stride = x_strides[0];
    params.x_channel_stride = x_strides[1];
    params.out_batch_stride = out_strides[0];
    params.out_channel_stride = out_strides[1];
    params.channels = channels;
    params.length = length;
    params.silu = silu;

    constexpr int64_t kPerVector = 16 / sizeof(T);
    const auto x_address = reinterpret_cast<uintptr_t>(x);
    const auto out_address = reinterpret_cast<uintptr_t>(out);
    const bool aligned_rows =
        x_address % 16 == 0 && x_strides[0] % kPerVector == 0 && x_strides[1] % kPerVector == 0;
    params.max_lead = aligned_rows ? 0 : static_cast<int>(kPerVector) - 1;
    params.same_alignment = (x_address - out_address) % 16 == 0 &&
                            (x_strides[0] - out_strides[0]) % kPerVector == 0 &&
                            (x_strides[1] - out_strides[1]) % kPerVector == 0;
    switch (width) {
        case 2:
            return dispatch_vectors<T, 2>(params, batch, stream);
        case 3:
            return dispatch_vectors<T, 3>(params, batch, stream);
        case 4:
            return dispatch_vectors<T, 4>(params, batch, stream);
        default:
            return cudaErrorInvalidValue;
    }
}

}  // namespace kx

// Strides are {batch, channel} in elements. dtype: 0 float, 1 half, 2 bfloat16 (x, out and the
// states; weight and bias are float). final_state must not overlap an input. Returns a cudaError_t
// as int.
extern "C" int kx_causal_conv1d_forward(const void* x, const float* weight, const float* bias,
                                        const void* initial_state, void* out, void* final_state,
                                        const int64_t* x_strides, const int64_t* out_strides,
                                        int batch, int channels, int length, int width, int dtype,
                                        int silu, void* stream) {
    // The length limit keeps element indices beyond the row's end from overflowing.
    if (batch < 0 || batch > 65535 || channels < 0 || length < 1 || length > (1 << 30))
        return cudaErrorInvalidValue;
    if (batch == 0 || channels == 0) return cudaSuccess;

    const auto run = [&](auto element) {
        return kx::dispatch<decltype(element)>(x, weight, bias, initial_state, out, final_state,
                                               x_strides, out_strides, batch, channels, length,
                                               width, silu != 0, static_cast<cudaStream_t>(stream));
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
