// RMS normalization fused with the residual addition, for float, half and bfloat16 activations.
// Written for kx. SPDX-License-Identifier: Apache-2.0
//
// For every row r of x and, if given, of residual:
//
//   s            = x[r] + residual[r]
//   residual_out = s                                                  (rounded to T)
//   out[r]       = s / sqrt(mean(s * s) + epsilon) * (weight + weight_offset)
//
// Two rows come in, two go out, and about four operations are done per element: only the bytes
// count. So a row is read once, stays in registers as float between the two halves of the work
// (the sum of squares, then the scaling), and all accesses are 16 bytes wide. The sum is not
// rounded to T before it is normalized. A row too long for the registers is read twice instead.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace kx {

constexpr unsigned kFullWarp = 0xffffffffu;
constexpr int kWarpRowThreads = 128;  // block size where a row has a warp or less
constexpr int kBlockRowThreads = 512;  // largest block where a row has a block
constexpr int kBlockRowElements = 32;  // per thread: as many as 128 registers hold as float
constexpr int kSmallBatchThreads = 1024;
constexpr int kLongRowThreads = 512;

template <class T>
struct RmsNormParams {
    const T* x;
    const T* residual;  // may be null: plain normalization
    const T* weight;    // (cols)
    T* out;             // may be x
    T* residual_out;    // may be null; may be residual, the usual update in place
    int64_t row_stride;  // elements from row to row, the same in all four
    int rows;
    int cols;
    float inverse_cols;  // 1 / cols
    float epsilon;
    float weight_offset;  // 1 where the weights are stored as differences from 1
};

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

__device__ __forceinline__ void assign(float& target, float x) { target = x; }
__device__ __forceinline__ void assign(__half& target, float x) { target = __float2half_rn(x); }
__device__ __forceinline__ void assign(__nv_bfloat16& target, float x) {
    target = __float2bfloat16_rn(x);
}

// How the rows can be reached.
enum class Access {
    kAligned,  // every row starts on a 16-byte boundary and is a whole number of vectors
    kPeeled,   // all arrays are equally far from a boundary: single elements first and last
    kElements  // anything else: one element at a time
};

// Two 16-bit elements of one word as floats, and back.
template <class T>
__device__ __forceinline__ float2 unpack_pair(uint32_t word) {
    if constexpr (std::is_same_v<T, __half>)
        return __half22float2(*reinterpret_cast<const __half2*>(&word));
    else  // a bfloat16 is the upper half of a float
        return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
}

template <class T>
__device__ __forceinline__ uint32_t pack_pair(float low, float high) {
    if constexpr (std::is_same_v<T, __half>) {
        const __half2 pair = __floats2half2_rn(low, high);
        return *reinterpret_cast<const uint32_t*>(&pair);
    } else {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
        return *reinterpret_cast<const uint32_t*>(&pair);
    }
}

// kWidth neighbouring elements as they came from memory, 16 bytes or a single one. They stay whole
// words until they are used: whatever is done to a vector on arrival, be it only taking its halves
// apart, waits for it and keeps the loads after it from starting.
template <class T, int kWidth>
struct Vector {
    using Raw = std::conditional_t<kWidth == 1, T, uint4>;
    static_assert(sizeof(Raw) == sizeof(T) * kWidth, "a vector is 16 bytes or one element");
    Raw raw;

    __device__ __forceinline__ void unpack(float (&values)[kWidth]) const {
        if constexpr (kWidth == 1) {
            values[0] = to_float(raw);
        } else {
            const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if constexpr (kWidth == 4) {
                    values[i] = __uint_as_float(words[i]);
                } else {
                    const float2 pair = unpack_pair<T>(words[i]);
                    values[2 * i] = pair.x;
                    values[2 * i + 1] = pair.y;
                }
            }
        }
    }

    __device__ __forceinline__ void pack(const float (&values)[kWidth]) {
        if constexpr (kWidth == 1)
            assign(raw, values[0]);
        else if constexpr (kWidth == 4)
            raw = make_uint4(__float_as_uint(values[0]), __float_as_uint(values[1]),
                             __float_as_uint(values[2]), __float_as_uint(values[3]));
        else
            raw = make_uint4(pack_pair<T>(values[0], values[1]), pack_pair<T>(values[2], values[3]),
                             pack_pair<T>(values[4], values[5]), pack_pair<T>(values[6], values[7]));
    }
};

// The inputs are read once by this kernel and, the residual stream apart, not needed again soon:
// evict-first keeps them from displacing the weights and the output that the next kernel wants.
template <class T, int kWidth>
__device__ __forceinline__ Vector<T, kWidth> load_streaming(const T* source) {
    return {__ldcs(reinterpret_cast<const typename Vector<T, kWidth>::Raw*>(source))};
}

template <class T, int kWidth>
__device__ __forceinline__ void store_vector(T* target, const float (&values)[kWidth]) {
    Vector<T, kWidth> vector;
    vector.pack(values);
    *reinterpret_cast<typename Vector<T, kWidth>::Raw*>(target) = vector.raw;
}

// The weights of the vector that begins at `column`. Weights start at column 0 whatever a
// row's alignment is, so after peeling they have to come one by one; they are in L1 by then.
template <Access kAccess, class T, int kWidth>
__device__ __forceinline__ void load_weights(float (&weights)[kWidth], const T* __restrict__ weight,
                                             int column) {
    if constexpr (kAccess == Access::kAligned) {
        const Vector<T, kWidth> vector = {__ldg(reinterpret_cast<const uint4*>(weight + column))};
        vector.unpack(weights);
    } else {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) weights[i] = to_float(__ldg(weight + column + i));
    }
}

// How one row divides into vectors: `head` single elements up to the first 16-byte boundary, the
// vectors, and what is left. Head and tail together are the row's edges, fewer than two vectors.
struct RowLayout {
    int head;
    int vectors;
    int edges;
};

template <Access kAccess, class T, int kWidth>
__device__ __forceinline__ RowLayout layout_row(const T* row, int cols) {
    int head = 0;
    if (kAccess == Access::kPeeled) {
        const int past_boundary = static_cast<int>(reinterpret_cast<uintptr_t>(row) % 16);
        head = min((16 - past_boundary) % 16 / static_cast<int>(sizeof(T)), cols);
    }
    const int vectors = (cols - head) / kWidth;
    return {head, vectors, cols - vectors * kWidth};
}

template <int kWidth>
__device__ __forceinline__ int edge_column(const RowLayout& layout, int edge) {
    return edge < layout.head ? edge : edge + layout.vectors * kWidth;
}

template <class T, int kWidth>
__device__ __forceinline__ void add_residual(float (&sum)[kWidth], const Vector<T, kWidth>& x,
                                             const Vector<T, kWidth>& residual) {
    float addend[kWidth];
    x.unpack(sum);
    residual.unpack(addend);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum[i] += addend[i];
}

// Sum over kLanes neighbouring lanes; every one of them gets it.
template <int kLanes>
__device__ __forceinline__ float sum_lanes(float value) {
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(kFullWarp, value, distance);
    return value;
}

// Sum over the block with a single barrier: each warp publishes its sum, and every warp then adds
// up all of them for itself, so the result needs no second trip through shared memory.
__device__ __forceinline__ float sum_block(float value) {
    __shared__ float warp_sums[32];
    const int lane = threadIdx.x % 32;
    value = sum_lanes<32>(value);
    if (lane == 0) warp_sums[threadIdx.x / 32] = value;
    __syncthreads();
    const int warps = static_cast<int>(blockDim.x) / 32;
    return sum_lanes<32>(lane < warps ? warp_sums[lane] : 0.0f);
}

template <class T>
__device__ __forceinline__ float inverse_rms(const RmsNormParams<T>& params, float square_sum) {
    return rsqrtf(fmaf(square_sum, params.inverse_cols, params.epsilon));
}

template <int kLanes, int kVectors>
constexpr int max_threads() {
    if (kLanes > 0) return kWarpRowThreads;
    return kVectors == 1 ? kSmallBatchThreads : kBlockRowThreads;
}

// kLanes lanes of a warp own a row; with kLanes 0 the whole block owns one. A thread holds
// kVectors vectors, `members` apart so that neighbours read neighbours, and at most one edge.
template <class T, int kLanes, int kVectors, Access kAccess>
__global__ void __launch_bounds__(max_threads<kLanes, kVectors>())
    rms_norm_rows(const __grid_constant__ RmsNormParams<T> params) {
    constexpr int kWidth = 16 / static_cast<int>(sizeof(T));
    static_assert(kAccess != Access::kElements, "rows in registers are read by vectors");
    constexpr int kLanesOrOne = kLanes == 0 ? 1 : kLanes;  // a divisor that is never zero
    constexpr int kRowsPerBlock = kLanes == 0 ? 1 : kWarpRowThreads / kLanesOrOne;
    const int thread = threadIdx.x;
    const int members = kLanes == 0 ? static_cast<int>(blockDim.x) : kLanes;
    const int member = kLanes == 0 ? thread : thread % kLanesOrOne;
    const int row = blockIdx.x * kRowsPerBlock + (kLanes == 0 ? 0 : thread / kLanesOrOne);

    // A warp that reaches past the last row keeps its lanes for the shuffles, with nothing to do.
    const bool exists = kLanes == 0 || row < params.rows;
    const int64_t offset = exists ? row * params.row_stride : 0;
    const RowLayout layout =
        exists ? layout_row<kAccess, T, kWidth>(params.x + offset, params.cols) : RowLayout{0, 0, 0};
    const int64_t body = offset + layout.head + member * kWidth;
    const int step = members * kWidth;  // from one vector of this thread to the next

    // All loads of both inputs are issued before the first is used. What a thread doesn't load is 0.
    Vector<T, kWidth> x[kVectors] = {};
    Vector<T, kWidth> residual[kVectors] = {};
    const T* x_source = params.x + body;
    const T* residual_source = params.residual + body;
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
        if (v * members + member < layout.vectors)
            x[v] = load_streaming<T, kWidth>(x_source + v * step);
    if (params.residual != nullptr) {
#pragma unroll
        for (int v = 0; v < kVectors; ++v)
            if (v * members + member < layout.vectors)
                residual[v] = load_streaming<T, kWidth>(residual_source + v * step);
    }
    const bool has_edge = kAccess == Access::kPeeled && member < layout.edges;
    const int edge_at = edge_column<kWidth>(layout, member);
    float edge = 0.0f;
    if (has_edge) {
        edge = to_float(params.x[offset + edge_at]);
        if (params.residual != nullptr) edge += to_float(params.residual[offset + edge_at]);
    }

    float sum[kVectors][kWidth];
    float square_sum = edge * edge;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
        add_residual<T, kWidth>(sum[v], x[v], residual[v]);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) square_sum = fmaf(sum[v][i], sum[v][i], square_sum);
    }

    // The residual stream needs no statistics: it leaves while the block waits for its sum.
    if (params.residual_out != nullptr) {
        T* target = params.residual_out + body;
#pragma unroll
        for (int v = 0; v < kVectors; ++v)
            if (v * members + member < layout.vectors)
                store_vector<T, kWidth>(target + v * step, sum[v]);
    }
    if (has_edge && params.residual_out != nullptr)
        assign(params.residual_out[offset + edge_at], edge);

    if constexpr (kLanes == 0)
        square_sum = sum_block(square_sum);
    else
        square_sum = sum_lanes<kLanes>(square_sum);
    const float scale = inverse_rms(params, square_sum);

    T* target = params.out + body;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
        if (v * members + member >= layout.vectors) break;
        float weights[kWidth];
        load_weights<kAccess, T, kWidth>(weights, params.weight,
                                         layout.head + member * kWidth + v * step);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) sum[v][i] *= scale * (weights[i] + params.weight_offset);
        store_vector<T, kWidth>(target + v * step, sum[v]);
    }
    if (has_edge) {
        const float weight = to_float(__ldg(params.weight + edge_at)) + params.weight_offset;
        assign(params.out[offset + edge_at], edge * scale * weight);
    }
}

// For rows beyond the registers of a block, and for arrays that share no alignment. The first pass
// only adds up squares; the second reads both inputs again, mostly from L2, and adds them again:
// cheaper than writing the float sums out and back. Nothing is written before the second pass, so
// working in place is safe here too: each thread overwrites only what it has just read itself.
template <class T, Access kAccess>
__global__ void __launch_bounds__(kLongRowThreads, 2)
    rms_norm_long_rows(const __grid_constant__ RmsNormParams<T> params) {
    constexpr int kWidth = kAccess == Access::kElements ? 1 : 16 / static_cast<int>(sizeof(T));
    const int64_t offset = blockIdx.x * params.row_stride;
    const RowLayout layout = layout_row<kAccess, T, kWidth>(params.x + offset, params.cols);
    const int64_t body = offset + layout.head;

    const auto load_sum = [&](float(&sum)[kWidth], int index) {
        const int64_t at = body + static_cast<int64_t>(index) * kWidth;
        const Vector<T, kWidth> x = load_streaming<T, kWidth>(params.x + at);
        Vector<T, kWidth> residual = {};
        if (params.residual != nullptr) residual = load_streaming<T, kWidth>(params.residual + at);
        add_residual<T, kWidth>(sum, x, residual);
    };
    const auto load_edge = [&](int column) {
        const float x = to_float(params.x[offset + column]);
        return params.residual == nullptr ? x : x + to_float(params.residual[offset + column]);
    };

    float square_sum = 0.0f;
#pragma unroll 4
    for (int index = threadIdx.x; index < layout.vectors; index += blockDim.x) {
        float sum[kWidth];
        load_sum(sum, index);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) square_sum = fmaf(sum[i], sum[i], square_sum);
    }
    const bool has_edge = static_cast<int>(threadIdx.x) < layout.edges;
    const int edge_at = edge_column<kWidth>(layout, threadIdx.x);
    const float edge = has_edge ? load_edge(edge_at) : 0.0f;
    const float scale = inverse_rms(params, sum_block(fmaf(edge, edge, square_sum)));

#pragma unroll 2
    for (int index = threadIdx.x; index < layout.vectors; index += blockDim.x) {
        float sum[kWidth];
        load_sum(sum, index);
        const int64_t at = body + static_cast<int64_t>(index) * kWidth;
        if (params.residual_out != nullptr) store_vector<T, kWidth>(params.residual_out + at, sum);
        float weights[kWidth];
        load_weights<kAccess, T, kWidth>(weights, params.weight, layout.head + index * kWidth);
#pragma unroll
        for (int i = 0; i < kWidth; ++i)
            sum[i] *= scale * (weights[i] + params.weight_offset);
        store_vector<T, kWidth>(params.out + at, sum);
    }
    if (has_edge) {
        if (params.residual_out != nullptr) assign(params.residual_out[offset + edge_at], edge);
        const float weight = to_float(__ldg(params.weight + edge_at)) + params.weight_offset;
        assign(params.out[offset + edge_at], edge * scale * weight);
    }
}

int round_to_warps(int threads) { return (threads + 31) / 32 * 32; }

template <class T, int kLanes, int kVectors, Access kAccess>
cudaError_t launch_rows(const RmsNormParams<T>& params, int threads, cudaStream_t stream) {
    const int rows_per_block = kLanes == 0 ? 1 : kWarpRowThreads / (kLanes == 0 ? 1 : kLanes);
    const int blocks = (params.rows + rows_per_block - 1) / rows_per_block;
    rms_norm_rows<T, kLanes, kVectors, kAccess><<<blocks, threads, 0, stream>>>(params);
    return cudaGetLastError();
}

template <class T, Access kAccess>
cudaError_t launch_long_rows(const RmsNormParams<T>& params, cudaStream_t stream) {
    const int threads = min(kLongRowThreads, round_to_warps(params.cols));
    rms_norm_long_rows<T, kAccess><<<params.rows, threads, 0, stream>>>(params);
    return cudaGetLastError();
}

// As few threads per row as can hold it: short rows then need no barrier at all, and every thread
// has many independent 16-byte loads in flight. With too few rows to fill the device, more threads
// with one vector each finish sooner.
template <class T, Access kAccess>
cudaError_t dispatch_length(const RmsNormParams<T>& params, cudaStream_t stream) {
    constexpr int kWidth = 16 / static_cast<int>(sizeof(T));
    const int vectors = (params.cols + kWidth - 1) / kWidth;
    if (vectors <= 16)
        return launch_rows<T, 16, 1, kAccess>(params, kWarpRowThreads, stream);
    if (vectors <= 32)
        return launch_rows<T, 32, 1, kAccess>(params, kWarpRowThreads, stream);
    if (vectors <= 64)
        return launch_rows<T, 32, 2, kAccess>(params, kWarpRowThreads, stream);
    if (vectors <= 128)
        return launch_rows<T, 32, 4, kAccess>(params, kWarpRowThreads, stream);

    int device = 0;
    int multiprocessors = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess)
        status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (status != cudaSuccess) return status;
    if (params.rows <= 2 * multiprocessors && vectors <= kSmallBatchThreads)
        return launch_rows<T, 0, 1, kAccess>(params, round_to_warps(vectors), stream);
    constexpr int kVectors = kBlockRowElements / kWidth;
    const int threads = round_to_warps((vectors + kVectors - 1) / kVectors);
    if (threads <= kBlockRowThreads)
        return launch_rows<T, 0, kVectors, kAccess>(params, threads, stream);
    return launch_long_rows<T, kAccess>(params, stream);
}

template <class T>
cudaError_t dispatch(const RmsNormParams<T>& params, cudaStream_t stream) {
    const auto past_boundary = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16; };
    const uintptr_t start = past_boundary(params.x);
    const auto agrees = [&](const void* p) { return p == nullptr || past_boundary(p) == start; };
    if (!agrees(params.out) || !agrees(params.residual) || !agrees(params.residual_out))
        return launch_long_rows<T, Access::kElements>(params, stream);

    const int64_t size = sizeof(T);
    const bool aligned = start == 0 && past_boundary(params.weight) == 0 &&
                         params.row_stride * size % 16 == 0 && params.cols * size % 16 == 0;
    return aligned ? dispatch_length<T, Access::kAligned>(params, stream)
                   : dispatch_length<T, Access::kPeeled>(params, stream);
}

}  // namespace kx

// dtype: 0 float, 1 half, 2 bfloat16 (all arrays). Returns a cudaError_t as int.
extern "C" int kx_rms_norm_residual(const void* x, const void* residual, const void* weight,
                                    void* out, void* residual_out, int rows, int cols,
                                    int64_t row_stride, float epsilon, float weight_offset,
                                    int dtype, void* stream) {
    // The length limit keeps the column arithmetic, one block stride ahead, within an int.
    if (rows < 0 || cols < 0 || cols > (1 << 30) || row_stride < cols || !(epsilon >= 0.0f))
        return cudaErrorInvalidValue;
    if (rows == 0 || cols == 0) return cudaSuccess;

    const auto run = [&](auto element) {
        using T = decltype(element);
        kx::RmsNormParams<T> params{};
        params.x = static_cast<const T*>(x);
        params.residual = static_cast<const T*>(residual);
        params.weight = static_cast<const T*>(weight);
        params.out = static_cast<T*>(out);
        params.residual_out = static_cast<T*>(residual_out);
        params.row_stride = row_stride;
        params.rows = rows;
        params.cols = cols;
        params.inverse_cols = 1.0f / static_cast<float>(cols);
        params.epsilon = epsilon;
        params.weight_offset = weight_offset;
        return kx::dispatch(params, static_cast<cudaStream_t>(stream));
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
