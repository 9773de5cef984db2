// Techniques behind lambdas, helpers, macros and tile operations, and what only looks like them.

//@ present shared-memory-tiling through a lambda that returns the buffer
__global__ void staged(const half* in, half* out, int n) {
    extern __shared__ char raw[];
    auto part = [&](int which) -> half* { return reinterpret_cast<half*>(raw + which * 512); };
    half* mine = part(0);
    mine[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = part(0)[255 - threadIdx.x];
}
//@ absent shared-memory-tiling because a load from shared memory fills nothing
__global__ void scratch(float* out) {
    __shared__ float sums[32];
    float one = 0.f;
    sums[threadIdx.x] = 1.f;
    __syncthreads();
    load_shared(&one, sums + threadIdx.x);
    out[threadIdx.x] = one;
}
//@ present software-pipelining in a lambda that the loop calls
template <int stages>
__global__ void fetched(const float4* in, float4* out, int tiles) {
    extern __shared__ float4 box[];
    auto fetch = [&](int stage, int tile) {
        __pipeline_memcpy_async(&box[stage * 64 + threadIdx.x], &in[tile * 64 + threadIdx.x], 16);
        __pipeline_commit();
    };
    auto settle = [&]() { __pipeline_wait_prior(stages - 2); __syncthreads(); };
    for (int t = 0; t < tiles; ++t) {
        fetch((t + stages - 1) % stages, t + stages - 1);
        settle();
        out[t * 64 + threadIdx.x] = box[(t % stages) * 64 + threadIdx.x];
    }
}
//@ present shared-memory-swizzle by a lambda
__global__ void permuted(const int4* in, int4* out, int wide) {
    __shared__ int4 tile[256];
    auto place = [&](int i) { int row = i / wide; return wide * row + ((i % wide) ^ (row % 8)); };
    int spot = place(threadIdx.x);
    tile[spot] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[place(255 - threadIdx.x)];
}
//@ absent shared-memory-swizzle because the exclusive or ends in no address
__global__ void mixed_bits(const int* in, int* out) {
    auto mix = [&](int i) { int row = i / 8; return (i % 8) ^ (row % 8); };
    out[threadIdx.x] = in[threadIdx.x] + mix(threadIdx.x);
}
//@ present bank-conflict-padding in a layout
__device__ auto layout() { return make_layout(make_shape(Int<64>{}, Int<32>{}), make_stride(Int<32 + 8>{}, Int<1>{})); }
//@ absent bank-conflict-padding in a plain layout
__device__ auto layout() { return make_layout(make_shape(Int<64>{}, Int<32>{}), make_stride(Int<32>{}, Int<1>{})); }
//@ present shared-memory-aliasing of a carved buffer through its own name
__global__ void reused(const float4* in, float4* out) {
    extern __shared__ float4 pool[];
    float4* left = pool;
    float4* right = left + 64;
    left[threadIdx.x] = in[threadIdx.x];
    right[threadIdx.x] = in[threadIdx.x + 64];
    __syncthreads();
    float4 kept = right[63 - threadIdx.x];
    __syncthreads();
    pool[threadIdx.x * 2] = kept;
    __syncthreads();
    out[threadIdx.x] = pool[threadIdx.x];
}
//@ absent shared-memory-aliasing because the parts stay apart
__global__ void carved(const float4* in, float4* out) {
    extern __shared__ float4 pool[];
    float4* left = pool;
    float4* right = left + 64;
    left[threadIdx.x] = in[threadIdx.x];
    right[threadIdx.x] = in[threadIdx.x + 64];
    __syncthreads();
    out[threadIdx.x] = right[63 - threadIdx.x];
}
//@ present boundary-predication by a zero that stays
__global__ void tail(const float4* in, float4* out, int rows) {
    for (int v = 0; v < 4; ++v) {
        const int row = blockIdx.x * 64 + threadIdx.x * 4 + v;
        float4 value = make_float4(0.f, 0.f, 0.f, 0.f);
        if (row < rows) {
            value = in[row];
        }
        out[row] = value;
    }
}
//@ absent boundary-predication because the loop's length is no tile
__global__ void slots(float* out, int steps, int count) {
    for (int t = 0; t < steps; ++t) {
        const int slot = steps - 1 - t;
        if (slot < count) out[slot * 32 + threadIdx.x] = 1.f;
    }
}
//@ present block-reduction over the rows of a block
__global__ void rows(const half* in, half* out) {
    __shared__ half part[8][32];
    half sum = in[threadIdx.y * 32 + threadIdx.x];
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0) {
        for (int i = 1; i < blockDim.y; ++i) sum = __hadd(part[i][threadIdx.x], sum);
        out[threadIdx.x] = sum;
    }
}
//@ present block-reduction in the memory that the caller gives
__device__ void joined(float* parts, float mine) {
    parts[threadIdx.x] = cg::reduce(tile32, mine, cg::plus<float>());
    __syncthreads();
    float all = 0.f;
    if (threadIdx.x == 0)
        for (int i = 0; i < blockDim.x; i += 32) all += parts[i];
}
__global__ void caller(const float* in) {
    extern float __shared__ buffer[];
    joined(buffer, in[threadIdx.x]);
}
//@ present dynamic-shared-memory with the qualifier behind the type
__global__ void late(float* out) { extern float __shared__ buffer[]; out[0] = buffer[0]; }
//@ present warp-shuffle-scan from above
template <int WIDTH>
__device__ float suffix(float value, int lane) {
    for (int step = 1; step < WIDTH; step <<= 1) {
        float other = __shfl_down_sync(0xffffffff, value, step);
        value = lane >= WIDTH - step ? value : value + other;
    }
    return value;
}
//@ absent warp-shuffle-scan because every lane takes part
__device__ float total(float value) {
    for (int step = 16; step > 0; step >>= 1) value += __shfl_down_sync(0xffffffff, value, step);
    return value;
}
//@ present split-k-reduction with a slot for every part
__global__ void shared_sequence(const float* in, float* out, int length) {
    float sum = 0.f;
    for (int i = blockIdx.y * 128; i < length; i += gridDim.y * 128) sum += in[i + threadIdx.x];
    out[(blockIdx.x * gridDim.y + blockIdx.y) * 128 + threadIdx.x] = sum;
}
//@ present split-k-reduction joined by atomics
__global__ void ranges(const float* a, const float* b, float* out, int depth, int columns) {
    const int first = blockIdx.z * 256, last = min(first + 256, depth);
    float sum = 0.f;
    for (int k = first; k < last; ++k) sum += a[k] * b[k * columns + blockIdx.x * 32 + threadIdx.x];
    atomicAdd(&out[blockIdx.x * 32 + threadIdx.x], sum);
}
//@ absent split-k-reduction because one total is added up
__global__ void one_total(const float* in, float* out, int n) {
    float sum = 0.f;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) sum += in[i];
    atomicAdd(out, sum);
}
//@ absent atomic-accumulation because the reduction is on a lock
__device__ void release(int* lock) { asm volatile("red.relaxed.gpu.global.add.s32 [%0], %1;" ::"l"(lock), "r"(1)); }
//@ present mixed-precision-accumulation of a packed type
__device__ float summed(const Packed* in, int n) {
    float total[8] = {0.f};
    for (int i = 0; i < n; ++i) {
        Packed one = in[i];
        for (int k = 0; k < 8; ++k) total[k] += (float)one[k];
    }
    return total[0];
}
//@ absent mixed-precision-accumulation because float tiles are only multiplied
struct state { st_bf<16, 64> in; rt_fl<16, 64> a, b; };
__device__ void turn(state& s) { mul(s.a, s.a, s.b); }
//@ present dequantize-in-register by a table
__device__ float2 decoded(const float* table, unsigned char byte, float scale) {
    const float high = table[byte >> 4];
    const float low = table[byte & 0x0f];
    return make_float2(high * scale, low * scale);
}
//@ present fused-epilogue that starts from the bias
__global__ void biased(const float* a, const float* b, const float* bias, float* out, int depth) {
    float sum = bias != nullptr ? bias[threadIdx.x] : 0.f;
    for (int k = 0; k < depth; ++k) sum += a[k] * b[k * 32 + threadIdx.x];
    out[threadIdx.x] = sum;
}
//@ absent fused-epilogue because adding a bias is all it does
__global__ void add_bias(float* out, const float* bias, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] += bias[i];
}
//@ present causal-block-skipping in a function that returns the bounds
template <bool Is_causal>
__device__ int last_block(int m_block, int length) {
    int n_block_max = ceil_div(length, 64);
    if constexpr (Is_causal) n_block_max = min(n_block_max, ceil_div((m_block + 1) * 64, 64));
    return n_block_max;
}
//@ present online-softmax in tile operators
__device__ void step(state& s, const tile& scores) {
    s.last_max = s.max_vec * SCALE;
    s.max_vec = warp::max<axis::COL>(scores, s.max_vec);
    s.new_max = s.max_vec * SCALE;
    s.last_max = warp::exp2(s.last_max - s.new_max);
    s.sum_vec *= s.last_max;
    s.out *= s.last_max;
}
//@ present chunked-scan-carry of a tile
__device__ void chunks(tile& q, tile& k, tile& v, tile& out, tile& kept, float decay, int n) {
    for (int chunk = 0; chunk < n; ++chunk) {
        mma_AB(out, q, kept, out);
        mul(kept, kept, decay);
        mma_AtB(kept, k, v, kept);
    }
}
//@ absent chunked-scan-carry because the sum is never read by a product
__device__ void product(tile& a, tile& b, tile& sum, int n) {
    for (int k = 0; k < n; ++k) mma_AB(sum, a, b, sum);
}
//@ present warp-specialization by the warp's number
__global__ void roles(int tiles) {
    const int warp_id = threadIdx.x / 32;
    if (warp_id == 0) {
        for (int t = 0; t < tiles; ++t) tma::load_async(box[t % 3], input, {t}, ready[t % 3]);
    } else if (warp_id == 1) {
        for (int t = 0; t < tiles; ++t) mma_AB(sum, box[t % 3], other);
    }
}
//@ absent warp-specialization because both sides multiply
__global__ void halves(int tiles) {
    const int warp_id = threadIdx.x / 32;
    if (warp_id == 0) {
        mma_AB(left, a, b);
    } else {
        mma_AB(right, a, b);
    }
}
//@ present persistent-kernel by rounds of the grid
__device__ void task(arguments& args) { int number = args.task_iter * gridDim.x + blockIdx.x; args.row = number / args.columns; }
//@ absent persistent-kernel because the number is a block's
__device__ int number(int plane) { return plane * gridDim.x + blockIdx.x; }
//@ absent async-copy because the transaction barrier counts it
__device__ void bulk(tile& to, source& from, semaphore& ready) { tma::load_async(to, from, {0}, ready); }
//@ absent tensor-core-mma because another object multiplies
__device__ void outer(loop& mainloop, state& s) { mainloop.mma(s.a, s.b); }
//@ present vectorized-access by references
__global__ void quads(float* out) {
    float local[8];
    float4& first = (float4&)(local[0]);
    first.x = 1.f;
    out[threadIdx.x] = local[0];
}
