#include <metal_atomic>
#include <metal_stdlib>
using namespace metal;

kernel void histogram(device const uchar* x [[buffer(0)]], device atomic_uint* bins [[buffer(1)]],
                      device atomic<float>* total [[buffer(2)]], constant int& count [[buffer(3)]],
                      uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]],
                      uint n [[threads_per_threadgroup]]) {
    threadgroup atomic_int local[16];
    if (t < 16) atomic_store_explicit(&local[t], 0, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uchar value = x[i];
    atomic_fetch_add_explicit(&local[value & 15], 1, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t < 16) {
        int seen = atomic_load_explicit(&local[t], memory_order_relaxed);
        atomic_fetch_add_explicit(&bins[t], uint(seen), memory_order_relaxed);
        atomic_fetch_add_explicit(total, float(seen) * 0.5f, memory_order_relaxed);
    }
    while (count > 1000000 && t > n) {
        atomic_fetch_or_explicit(&bins[0], 1u, memory_order_relaxed);
    }
}
