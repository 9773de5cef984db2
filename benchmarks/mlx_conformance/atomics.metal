// {"outputs": 16, "grid": [128, 1, 1], "threadgroup": [64, 1, 1]}
// ---- body
threadgroup atomic_uint count;
threadgroup atomic_int most;
const uint t = thread_index_in_threadgroup;
if (t == 0) {
    atomic_store_explicit(&count, 0u, memory_order_relaxed);
    atomic_store_explicit(&most, -5000, memory_order_relaxed);
}
threadgroup_barrier(mem_flags::mem_threadgroup);
atomic_fetch_add_explicit(&count, t, memory_order_relaxed);
atomic_fetch_max_explicit(&most, i[t], memory_order_relaxed);
threadgroup_barrier(mem_flags::mem_threadgroup);
if (t < 8) {
    const float n = float(atomic_load_explicit(&count, memory_order_relaxed));
    const float m = float(atomic_load_explicit(&most, memory_order_relaxed));
    o[threadgroup_position_in_grid.x * 8 + t] = t % 2 == 0 ? n : m;
}
