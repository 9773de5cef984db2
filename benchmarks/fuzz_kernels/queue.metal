#include <metal_stdlib>
using namespace metal;

class Ring {
    threadgroup bfloat* values;
    uint length;

  public:
    Ring(threadgroup bfloat* values_, uint length_) : values(values_), length(length_) {}
    threadgroup bfloat& operator[](uint i) { return values[i % length]; }
    uint size() const { return length; }
};

[[kernel, max_total_threads_per_threadgroup(64)]] void rotate_ring(
    device const bfloat* x [[buffer(0)]], device bfloat* out [[buffer(1)]], device int* steps [[buffer(2)]],
    uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]]) {
    threadgroup bfloat storage[64];
    Ring ring(storage, 64);
    ring[t] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    auto turned = [&](uint by) { return ring[t + by]; };
    bfloat value = turned(3);
    int n = 27;
    int count = 0;
    while (n != 1) {
        n = n % 2 == 0 ? n / 2 : 3 * n + 1;
        ++count;
    }
    float sum = float(value) + sqrt(float(ring.size())) / 8;
    out[i] = bfloat(sum);
    steps[i] = count;
}
