// Product of up to 16 activation vectors with a 4-bit weight matrix, for decoding.
// Written for kx. SPDX-License-Identifier: Apache-2.0
//
//   y[m, n] = sum_k x[m, k] * (q[n, k] - zero[n, k / group]) * scale[n, k / group] + bias[n]
//
// x, scale, zero, bias and y are half or bfloat16, q and zero are integers from 0 to 15, a group is
// 64 or 128 values of k.
//
// Half a byte per weight is all that has to come from memory, so the work per weight must be tiny:
// at an H200's bandwidth a multiprocessor has about 3 instructions per weight and lane to spend.
// Unpacking takes more than one of them; a conversion to float and a multiply-add for every vector
// would not fit. Hence the tensor cores, even for a single vector: with the weights as the 16-row
// operand and the vectors as the 8 columns of the other one, an mma multiplies and sums in float 8
// weights per lane in one instruction, and vectors 2 to 8 are free. A subtracted weight q - zero is
// exact in either 16-bit type, and scales multiply float sums: nothing is rounded before the end.
//
// The weights lie in memory in the order in which lanes use them (see check.py for the packing):
//
//   weights     [rows / 64][k / 64][4 tiles][32 lanes] of 16 bytes; a tile is 16 rows by 64 k
//   parameters  [rows / 64][k / group][4 tiles][8] of {scale, zero} of row g, {scale, zero} of row
//               g + 8 of the tile, rows padded with zeros to a multiple of 64
//
// Lane (g, t) = (lane / 4, lane % 4) owns k = 16 t .. 16 t + 15 of rows g and g + 8. A sum doesn't
// care which k an mma calls its first: numbering them this way gives each lane 16 neighbouring
// elements of x, two wide loads, where the documented order would give it scattered pairs. Word s
// of the 16 bytes holds k = 16 t + 4 s + {0, 1, 2, 3}. Nibbles i and i + 4 are the two k of operand
// register i: {row g, k 0-1}, {row g + 8, k 0-1}, {row g, k 2-3}, {row g + 8, k 2-3}.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "ptx.cuh"

namespace kx {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kRowTiles = 4;  // 16-row tiles of a warp: each fragment of x serves all of them
constexpr int kBlockRows = kRowTiles * 16;
constexpr int kChunk = 64;  // values of k that one 16-byte word per lane covers
constexpr int kMaxBatch = 16;
constexpr int kMaxSplits = 16;

template <class T>
struct GemvParams {
    const T* x;               // (batch, depth)
    const uint4* weights;     // as above
    const uint2* parameters;  // as above
    const T* bias;            // (rows), may be null
    T* y;                     // (batch, rows)
    float* partial_sums;      // (splits, batch, padded rows), for more than one split
    int* tickets;             // (padded rows / 64), zero before and after
    int batch;
    int rows;
    int depth;
    int chunks;        // depth / kChunk
    int group_chunks;  // 1 or 2 chunks share a scale and a zero
    int split_chunks;  // chunks per split
    int splits;
};

// The same 32 bits as two 16-bit floats, and back.
template <class Pair>
__device__ __forceinline__ Pair as_pair(uint32_t word) {
    return *reinterpret_cast<const Pair*>(&word);
}
template <class Pair>
__device__ __forceinline__ uint32_t as_word(Pair pair) {
    return *reinterpret_cast<const uint32_t*>(&pair);
}

__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void assign(__half& target, float x) { target = __float2half_rn(x); }
__device__ __forceinline__ void assign(__nv_bfloat16& target, float x) {
    target = __float2bfloat16_rn(x);
}

// Turns packed nibbles into q - zero. A nibble that is or-ed into the low mantissa bits of 1024
// (half) or 128 (bfloat16) is the number 1024 + q or 128 + q: no conversion instruction is needed,
// and one subtraction takes away the constant together with the zero point.
template <class T>
struct Unpacker;

template <>
struct Unpacker<__half> {
    __half2 low_offset;   // -(1024 + zero), rows g
    __half2 high_offset;  // -(64 + zero), rows g + 8

    __device__ __forceinline__ Unpacker(__half low_zero, __half high_zero) {
        low_offset = __hsub2(__float2half2_rn(-1024.0f), __half2half2(low_zero));
        high_offset = __hsub2(__float2half2_rn(-64.0f), __half2half2(high_zero));
    }

    // Half has ten mantissa bits: the nibble above fits too, as 1024 + 16 q, and is brought down
    // by the multiplication of a fused multiply-add. That saves two of three shifts.
    __device__ __forceinline__ void unpack(uint32_t (&a)[4], uint32_t packed) const {
        constexpr uint32_t kMagic = 0x64006400u;
        const __half2 sixteenth = __float2half2_rn(1.0f / 16.0f);
        const uint32_t upper = packed >> 8;
        const auto low = [](uint32_t word) {
            return as_pair<__half2>(ptx::and_or(word, 0x000f000fu, kMagic));
        };
        const auto high = [](uint32_t word) {
            return as_pair<__half2>(ptx::and_or(word, 0x00f000f0u, kMagic));
        };
        a[0] = as_word(__hadd2(low(packed), low_offset));
        a[1] = as_word(__hfma2(high(packed), sixteenth, high_offset));
        a[2] = as_word(__hadd2(low(upper), low_offset));
        a[3] = as_word(__hfma2(high(upper), sixteenth, high_offset));
    }
};

template <>
struct Unpacker<__nv_bfloat16> {
    __nv_bfloat162 low_offset;   // -(128 + zero), rows g
    __nv_bfloat162 high_offset;  // -(128 + zero), rows g + 8

    __device__ __forceinline__ Unpacker(__nv_bfloat16 low_zero, __nv_bfloat16 high_zero) {
        const __nv_bfloat162 constant = __float2bfloat162_rn(-128.0f);
        low_offset = __hsub2(constant, __bfloat162bfloat162(low_zero));
        high_offset = __hsub2(constant, __bfloat162bfloat162(high_zero));
    }

    __device__ __forceinline__ void unpack(uint32_t (&a)[4], uint32_t packed) const {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t magic = ptx::and_or(packed >> (4 * i), 0x000f000fu, 0x43004300u);
            a[i] = as_word(
                __hadd2(as_pair<__nv_bfloat162>(magic), i % 2 == 0 ? low_offset : high_offset));
        }
    }
};

// Everything that a warp needs of one chunk of k, on its way from memory. Where two chunks share a
// group, both load its parameters: that costs an access to L1, but a step of one chunk needs half
// the registers, and more warps on a multiprocessor hide memory better.
template <class T, int kColumnTiles>
struct ChunkOperands {
    uint4 weights[kRowTiles];
    uint2 parameters[kRowTiles];
    uint4 x[kColumnTiles][2];

    __device__ __forceinline__ void load(const GemvParams<T>& params, int row_block, int chunk,
                                         int lane) {
        const int quad_row = lane / 4;
        const int64_t first_tile = (static_cast<int64_t>(row_block) * params.chunks + chunk) * kRowTiles;
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i)
            weights[i] = ptx::load_streaming(params.weights + (first_tile + i) * 32 + lane);

        const int shift = params.group_chunks - 1;  // halves a chunk number or leaves it
        const int64_t group = (static_cast<int64_t>(row_block) * params.chunks + chunk) >> shift;
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i)
            parameters[i] = __ldg(params.parameters + (group * kRowTiles + i) * 8 + quad_row);

#pragma unroll
        for (int n = 0; n < kColumnTiles; ++n) {
            // Columns beyond the batch are zeros; their sums are never looked at.
            const int column = n * 8 + quad_row;
            const uint4* source = reinterpret_cast<const uint4*>(
                params.x + static_cast<int64_t>(column) * params.depth + chunk * kChunk + lane % 4 * 16);
            const bool exists = column < params.batch;
            x[n][0] = exists ? __ldg(source) : make_uint4(0, 0, 0, 0);
            x[n][1] = exists ? __ldg(source + 1) : make_uint4(0, 0, 0, 0);
        }
    }
};

__device__ __forceinline__ uint32_t word_of(const uint4& v, int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// sums += scale * ((q - zero) x) over one chunk, for the warp's 64 rows and all columns.
template <class T, int kColumnTiles>
__device__ __forceinline__ void multiply_chunk(float (&sums)[kRowTiles][kColumnTiles][4],
                                               const ChunkOperands<T, kColumnTiles>& operands) {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
        struct ScaleAndZero {
            T scale;
            T zero;
        };
        const auto low = *reinterpret_cast<const ScaleAndZero*>(&operands.parameters[i].x);
        const auto high = *reinterpret_cast<const ScaleAndZero*>(&operands.parameters[i].y);
        const Unpacker<T> unpacker(low.zero, high.zero);

        float chunk_sums[kColumnTiles][4] = {};
#pragma unroll
        for (int s = 0; s < 4; ++s) {
            uint32_t a[4];
            unpacker.unpack(a, word_of(operands.weights[i], s));
#pragma unroll
            for (int n = 0; n < kColumnTiles; ++n) {
                const uint4& x = operands.x[n][s / 2];
                ptx::mma_m16n8k16<T>(chunk_sums[n], a, word_of(x, s % 2 * 2),
                                     word_of(x, s % 2 * 2 + 1));
            }
        }

        const float low_scale = to_float(low.scale);
        const float high_scale = to_float(high.scale);
#pragma unroll
        for (int n = 0; n < kColumnTiles; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                sums[i][n][e] = fmaf(e < 2 ? low_scale : high_scale, chunk_sums[n][e], sums[i][n][e]);
    }
}

// Four more rows than needed: with 68 floats from column to column, the four columns and eight rows
// that a warp stores at once fall on 32 different banks.
template <int kColumns>
struct BlockMemory {
    float sums[kWarps][kColumns][kBlockRows + 4];
    bool is_last;
};

template <class T>
__device__ __forceinline__ void store_result(const GemvParams<T>& params, int column, int row,
                                             float value) {
    if (row >= params.rows) return;
    if (params.bias != nullptr) value += to_float(params.bias[row]);
    assign(params.y[static_cast<int64_t>(column) * params.rows + row], value);
}

// Adds up the splits' sums. The block that comes last, as its ticket tells, does it for all: it
// always adds in the same order, so the result does not depend on who that is.
template <class T, int kColumns>
__device__ __forceinline__ void combine_splits(const GemvParams<T>& params,
                                               BlockMemory<kColumns>& memory, int first_row) {
    __threadfence();  // this thread's partial sums are visible before the ticket is drawn
    __syncthreads();
    if (threadIdx.x == 0)
        memory.is_last = atomicAdd(&params.tickets[blockIdx.x], 1) == params.splits - 1;
    __syncthreads();
    if (!memory.is_last) return;
    __threadfence();

    const int padded_rows = gridDim.x * kBlockRows;
    for (int i = threadIdx.x; i < params.batch * kBlockRows; i += kThreads) {
        const int column = i / kBlockRows;
        const int row = first_row + i % kBlockRows;
        float sum = 0.0f;
        for (int split = 0; split < params.splits; ++split)
            sum += __ldcg(params.partial_sums +
                          (static_cast<int64_t>(split) * params.batch + column) * padded_rows + row);
        store_result(params, column, row, sum);
    }
    if (threadIdx.x == 0) params.tickets[blockIdx.x] = 0;  // ready for the next launch
}

// A block owns 64 rows and, of k, one split, whose chunks its warps take in turns. 128 registers
// leave room for four blocks, or three with twice the columns: at least 12 warps with 2 KiB under
// way each, about what the latency of memory asks for.
template <class T, int kColumnTiles>
__global__ void __launch_bounds__(kThreads, kColumnTiles == 1 ? 4 : 3)
    dequant_gemv(const __grid_constant__ GemvParams<T> params) {
    constexpr int kColumns = kColumnTiles * 8;
    using Operands = ChunkOperands<T, kColumnTiles>;
    __shared__ BlockMemory<kColumns> memory;
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int split_end = min((static_cast<int>(blockIdx.y) + 1) * params.split_chunks, params.chunks);

    float sums[kRowTiles][kColumnTiles][4] = {};
    int chunk = blockIdx.y * params.split_chunks + warp;
    Operands current;
    if (chunk < split_end) current.load(params, blockIdx.x, chunk, lane);
#pragma unroll 2
    for (; chunk < split_end; chunk += kWarps) {
        // The next chunk is under way while this one is unpacked and multiplied.
        Operands next;
        if (chunk + kWarps < split_end) next.load(params, blockIdx.x, chunk + kWarps, lane);
        multiply_chunk<T, kColumnTiles>(sums, current);
        current = next;
    }

    // The warps have sums over different k for the same rows: add them up through shared memory.
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
        for (int n = 0; n < kColumnTiles; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                memory.sums[warp][n * 8 + lane % 4 * 2 + e % 2][i * 16 + e / 2 * 8 + lane / 4] =
                    sums[i][n][e];
    __syncthreads();
    const int first_row = blockIdx.x * kBlockRows;
    const int padded_rows = gridDim.x * kBlockRows;
    for (int i = threadIdx.x; i < params.batch * kBlockRows; i += kThreads) {
        const int column = i / kBlockRows;
        const int row = i % kBlockRows;
        float sum = 0.0f;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) sum += memory.sums[w][column][row];
        if (params.splits == 1)
            store_result(params, column, first_row + row, sum);
        else
            params.partial_sums[(static_cast<int64_t>(blockIdx.y) * params.batch + column) *
                                    padded_rows + first_row + row] = sum;
    }
    if (params.splits > 1) combine_splits(params, memory, first_row);
}

int divide_up(int a, int b) { return (a + b - 1) / b; }

// How many blocks share the k of one row block. Few rows alone would not fill the device, and a
// grid slightly larger than what fits at once would wait for a few stragglers: the least number of
// rounds times steps per warp wins, with two steps added for starting and ending a block.
int choose_splits(int row_blocks, int chunks, int resident_blocks) {
    int best = 1;
    int64_t best_cost = INT64_MAX;
    for (int splits = 1; splits <= kMaxSplits && splits * kWarps * 2 <= chunks + kWarps; ++splits) {
        const int64_t rounds = divide_up(row_blocks * splits, resident_blocks);
        const int64_t cost = rounds * (divide_up(divide_up(chunks, splits), kWarps) + 2);
        if (cost < best_cost) {
            best = splits;
            best_cost = cost;
        }
    }
    return best;
}

template <class T, int kColumnTiles>
cudaError_t launch(GemvParams<T> params, cudaStream_t stream) {
    const auto kernel = dequant_gemv<T, kColumnTiles>;
    int device = 0;
    int multiprocessors = 0;
    int blocks_each = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess)
        status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (status == cudaSuccess)
        status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_each, kernel, kThreads, 0);
    if (status != cudaSuccess) return status;

    const int row_blocks = divide_up(params.rows, kBlockRows);
    const int splits = choose_splits(row_blocks, params.chunks, multiprocessors * blocks_each);
    params.split_chunks = divide_up(params.chunks, splits);
    params.splits = divide_up(params.chunks, params.split_chunks);
    kernel<<<dim3(row_blocks, params.splits), kThreads, 0, stream>>>(params);
    return cudaGetLastError();
}

template <class T>
cudaError_t dispatch(const GemvParams<T>& params, cudaStream_t stream) {
    return params.batch <= 8 ? launch<T, 1>(params, stream) : launch<T, 2>(params, stream);
}

}  // namespace kx

// Bytes of device memory for tickets and partial sums. All zero before the first use; every launch
// leaves the tickets zero again. Launches that may overlap need a workspace each.
extern "C" int64_t kx_dequant_gemv_workspace_bytes(int batch, int rows) {
    const int64_t row_blocks = kx::divide_up(rows, kx::kBlockRows);
    const int64_t tickets = (row_blocks + 3) / 4 * 16;
    return tickets + row_blocks * kx::kBlockRows * batch * kx::kMaxSplits * int64_t{sizeof(float)};
}

// dtype: 1 half, 2 bfloat16. depth must be a multiple of group, group 64 or 128, batch at most 16;
// x and weights start on 16-byte boundaries. Returns a cudaError_t as int.
extern "C" int kx_dequant_gemv(const void* x, const void* weights, const void* parameters,
                               const void* bias, void* y, void* workspace, int batch, int rows,
                               int depth, int group, int dtype, void* stream) {
    if (batch < 0 || batch > kx::kMaxBatch || rows < 0 || rows > (1 << 24) || depth < 1 ||
        (group != 64 && group != 128) || depth % group != 0)
        return cudaErrorInvalidValue;
    if (batch == 0 || rows == 0) return cudaSuccess;
    for (const void* pointer : {x, weights, parameters, static_cast<const void*>(workspace)})
        if (reinterpret_cast<uintptr_t>(pointer) % 16 != 0) return cudaErrorMisalignedAddress;

    const auto run = [&](auto element) {
        using T = decltype(element);
        kx::GemvParams<T> params{};
        params.x = static_cast<const T*>(x);
        params.weights = static_cast<const uint4*>(weights);
        params.parameters = static_cast<const uint2*>(parameters);
        params.bias = static_cast<const T*>(bias);
        params.y = static_cast<T*>(y);
        params.tickets = static_cast<int*>(workspace);
        const int64_t tickets = (kx::divide_up(rows, kx::kBlockRows) + 3) / 4 * 16;
        params.partial_sums =
            reinterpret_cast<float*>(static_cast<char*>(workspace) + tickets);
        params.batch = batch;
        params.rows = rows;
        params.depth = depth;
        params.chunks = depth / kx::kChunk;
        params.group_chunks = group / kx::kChunk;
        return kx::dispatch(params, static_cast<cudaStream_t>(stream));
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
