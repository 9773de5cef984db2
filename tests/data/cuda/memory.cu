//@ present shared-memory-tiling
__global__ void product(const float* a, const float* b, float* c, int n) {
    __shared__ float left[16][16];
    float sum = 0.f;
    for (int k = 0; k < n; k += 16) {
        left[threadIdx.y][threadIdx.x] = a[blockIdx.y * 16 * n + threadIdx.y * n + k + threadIdx.x];
        __syncthreads();
        for (int i = 0; i < 16; ++i) sum += left[threadIdx.y][i] * b[(k + i) * n + threadIdx.x];
        __syncthreads();
    }
    c[threadIdx.y * n + threadIdx.x] = sum;
}
//@ present shared-memory-tiling by vector helpers
__device__ float4 take(const float* p) { return *reinterpret_cast<const float4*>(p); }
__device__ void put(float* p, float4 v) { *reinterpret_cast<float4*>(p) = v; }
__global__ void staged(const float* in, float* out) {
    __shared__ float rows[64][32];
    store_vec(&rows[threadIdx.y][4 * threadIdx.x], take(in + 4 * threadIdx.x));
    __syncthreads();
    out[threadIdx.x] = rows[threadIdx.x][threadIdx.y];
}
//@ absent shared-memory-tiling
__global__ void sum_rows(const float* in, float* out, int n) {
    __shared__ float scratch[256];
    float s = 0.f;
    for (int i = threadIdx.x; i < n; i += 256) s += in[i];
    scratch[threadIdx.x] = s;
    __syncthreads();
    for (int h = 128; h > 0; h >>= 1) {
        if (threadIdx.x < h) scratch[threadIdx.x] += scratch[threadIdx.x + h];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[0] = scratch[0];
}
//@ absent shared-memory-tiling because the load is reduced in place
__global__ void tree(const float* in, float* out) {
    __shared__ float box[128];
    box[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    for (int h = 64; h > 0; h >>= 1) {
        if (threadIdx.x < h) box[threadIdx.x] += box[threadIdx.x + h];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[0] = box[0];
}
//@ present register-tiling
__global__ void outer(const float* a, const float* b, float* c, int n) {
    float acc[8][4] = {};
    for (int k = 0; k < n; ++k)
        for (int i = 0; i < 8; ++i)
            for (int j = 0; j < 4; ++j) acc[i][j] += a[k * 8 + i] * b[k * 4 + j];
    for (int i = 0; i < 8; ++i)
        for (int j = 0; j < 4; ++j) c[i * 4 + j] = acc[i][j];
}
//@ absent register-tiling
__global__ void one(const float* a, float* c) {
    float acc[1] = {};
    for (int k = 0; k < 4; ++k) acc[0] += a[k];
    c[threadIdx.x] = acc[0];
}
//@ present vectorized-access
__global__ void copy4(const float* in, float* out) {
    reinterpret_cast<float4*>(out)[threadIdx.x] = reinterpret_cast<const float4*>(in)[threadIdx.x];
}
//@ present vectorized-access through an aligned struct
template <class T, int N> struct alignas(16) Pack { T items[N]; };
using Word = Pack<short, 8>;
__global__ void copy8(const short* in, short* out) {
    *reinterpret_cast<Word*>(out + 8 * threadIdx.x) = *reinterpret_cast<const Word*>(in + 8 * threadIdx.x);
}
//@ absent vectorized-access because 32 bits are no vector
__global__ void copy2(const __half* in, __half* out) {
    reinterpret_cast<__half2*>(out)[threadIdx.x] = reinterpret_cast<const __half2*>(in)[threadIdx.x];
}
//@ absent vectorized-access because a float2 is only a pair of values
__global__ void moments(const float* in, float* out) {
    float2 both = make_float2(0.f, 0.f);
    for (int i = 0; i < 8; ++i) { both.x += in[i]; both.y += in[i] * in[i]; }
    out[0] = both.x + both.y;
}
//@ present read-only-cache
__global__ void gather(const float* in, const int* at, float* out) { out[threadIdx.x] = __ldg(in + at[threadIdx.x]); }
//@ absent read-only-cache
__global__ void add(const float* in, float* out) { out[threadIdx.x] += in[threadIdx.x]; }
//@ present cache-hints
__global__ void pass(const float* in, float* out) { __stcs(out + threadIdx.x, __ldcs(in + threadIdx.x)); }
//@ present cache-hints in PTX
__device__ float far(const float* p) {
    float v;
    asm volatile("ld.global.L1::no_allocate.f32 %0, [%1];" : "=f"(v) : "l"(p));
    return v;
}
//@ absent cache-hints because .cg is only an operator
__device__ void fetch(unsigned to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(to), "l"(from));
}
//@ present constant-memory
__constant__ float weights[9];
__global__ void blur(float* out) { out[threadIdx.x] = weights[threadIdx.x % 9]; }
//@ absent constant-memory
__global__ void take(const __grid_constant__ int n, float* out) { constexpr int k = 4; out[n] = k; }
//@ present boundary-predication
__global__ void ragged(const float* in, float* out, int length) {
    float tile[4];
    for (int i = 0; i < 4; ++i) {
        const int at = threadIdx.x * 4 + i;
        tile[i] = at < length ? in[at] : 0.f;
    }
    for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = tile[i];
}
//@ present boundary-predication by a source size
__device__ void fetch(unsigned to, const void* from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(inside ? 16 : 0));
}
//@ absent boundary-predication because one thread leaves early
__global__ void scale(const float* in, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2.f * in[i];
}
//@ absent boundary-predication because scores are masked
__global__ void mask(float* out, int keys) {
    float scores[4];
    for (int i = 0; i < 4; ++i) {
        scores[i] = out[i];
        if (threadIdx.x * 4 + i >= keys) scores[i] = -INFINITY;
    }
    float m = scores[0];
    for (int i = 1; i < 4; ++i) m = fmaxf(m, scores[i]);
    out[threadIdx.x] = m;
}
//@ absent boundary-predication because the guard is about warps
__global__ void gather_sums(const float* sums, float* out) {
    __shared__ float part[32];
    float v = threadIdx.x < NUM_WARPS ? part[threadIdx.x] : 0.f;
    out[0] = v;
}
//@ present dynamic-shared-memory
__global__ void big() { extern __shared__ __align__(16) unsigned char pool[]; pool[threadIdx.x] = 0; }
//@ absent dynamic-shared-memory
__global__ void fixed(float* out) { __shared__ float pool[64]; pool[threadIdx.x] = 0.f; out[0] = pool[1]; }
extern int elsewhere;
//@ present shared-memory-aliasing
__global__ void reuse(float* out) {
    extern __shared__ char raw[];
    float* scores = reinterpret_cast<float*>(raw);
    int* ranks = reinterpret_cast<int*>(raw);
    scores[threadIdx.x] = 1.f;
    __syncthreads();
    ranks[threadIdx.x] = 2;
    out[0] = scores[0];
}
//@ present shared-memory-aliasing by a union
union SharedStorage { float tile[64]; int sorted[64]; };
__global__ void both() { __shared__ SharedStorage storage; storage.tile[threadIdx.x] = 0.f; }
//@ absent shared-memory-aliasing because the parts are disjoint
__global__ void carve(float* out) {
    extern __shared__ char raw[];
    float* scores = reinterpret_cast<float*>(raw);
    int* ranks = reinterpret_cast<int*>(raw + 1024);
    scores[threadIdx.x] = 1.f;
    ranks[threadIdx.x] = 2;
    out[0] = scores[0];
}
//@ present shared-memory-swizzle
__device__ int swizzled(int row, int chunk) { return row * 8 + (chunk ^ (row & 7)); }
//@ present shared-memory-swizzle in a subscript
__global__ void turn(const float* in, float* out) {
    __shared__ float box[32 * 32];
    box[threadIdx.y * 32 + (threadIdx.x ^ (threadIdx.y % 32))] = in[threadIdx.y * 32 + threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = box[threadIdx.x * 32 + (threadIdx.y ^ (threadIdx.x % 32))];
}
//@ absent shared-memory-swizzle because the XOR is a toggle or a partner lane
template <class Op> struct SwizzleOp { Op op; };
__global__ void pairs(float* out) {
    __shared__ float box[2][32];
    int stage = 0;
    for (int i = 0; i < 4; ++i) { box[stage][threadIdx.x] = out[i]; stage ^= 1; }
    out[0] = box[0][threadIdx.x] + __shfl_xor_sync(0xffffffffu, out[1], 8 ^ 3);
}
//@ present bank-conflict-padding
__global__ void transpose(const float* in, float* out) {
    __shared__ float box[32][32 + 1];
    box[threadIdx.y][threadIdx.x] = in[threadIdx.y * 32 + threadIdx.x];
    __syncthreads();
    out[threadIdx.y * 32 + threadIdx.x] = box[threadIdx.x][threadIdx.y];
}
//@ absent bank-conflict-padding because both sides have a halo
__global__ void stencil(const float* in, float* out) {
    __shared__ float box[16 + 2][16 + 2];
    box[threadIdx.y + 1][threadIdx.x + 1] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = box[threadIdx.y][threadIdx.x + 1] + box[threadIdx.y + 2][threadIdx.x + 1];
}
//@ absent bank-conflict-padding because one more element is no row
__global__ void ends() { __shared__ int offsets[64 + 1]; offsets[threadIdx.x] = 0; }
//@ present matrix-fragment-load
__device__ void fragment(unsigned (&r)[4], unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}
//@ absent matrix-fragment-load
__device__ void load_matrix(float (&m)[4], const float* p) { for (int i = 0; i < 4; ++i) m[i] = p[i]; }
//@ present transposed-operand-layout
__device__ void values(unsigned (&r)[2], unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];\n" : "=r"(r[0]), "=r"(r[1]) : "r"(at));
}
//@ present transposed-operand-layout by the store
__global__ void product(const float* a, float* c, int n) {
    __shared__ float columns[16][64];
    for (int k = 0; k < 16; ++k) columns[k][threadIdx.x] = a[threadIdx.x * n + k];
    __syncthreads();
    c[threadIdx.x] = columns[threadIdx.x % 16][threadIdx.x];
}
//@ absent transposed-operand-layout
__global__ void rows(const float* a, float* c, int n) {
    __shared__ float box[16][64];
    for (int k = 0; k < 16; ++k) box[k][threadIdx.x] = a[k * n + threadIdx.x];
    __syncthreads();
    c[threadIdx.x] = box[0][63 - threadIdx.x];
}
//@ present paged-kv-cache
__global__ void paged(const float* cache, const int* block_table, float* out, int block_size, int length) {
    for (int t = 0; t < length; ++t) {
        const int page = block_table[t / block_size];
        out[threadIdx.x] += cache[(page * block_size + t % block_size) * 64 + threadIdx.x];
    }
}
//@ absent paged-kv-cache because one index per sequence is no page table
__global__ void state(const float* cache, const int* state_indices, float* out) {
    out[threadIdx.x] = cache[state_indices[blockIdx.x] * 64 + threadIdx.x];
}
