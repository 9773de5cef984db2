// {"outputs": 3003, "grid": [11, 13, 3], "threadgroup": [4, 5, 2]}
// ---- body
const uint at = (thread_position_in_grid.z * 13 + thread_position_in_grid.y) * 11 + thread_position_in_grid.x;
device float* out = o + at * 7;
out[0] = float(thread_index_in_threadgroup);
out[1] = float(threads_per_threadgroup.x * 100 + threads_per_threadgroup.y * 10 + threads_per_threadgroup.z);
out[2] = float(threadgroup_position_in_grid.x * 100 + threadgroup_position_in_grid.y * 10 + threadgroup_position_in_grid.z);
out[3] = float(thread_position_in_threadgroup.x * 100 + thread_position_in_threadgroup.y * 10 + thread_position_in_threadgroup.z);
out[4] = float(threads_per_grid.x * 10000 + threads_per_grid.y * 100 + threads_per_grid.z);
out[5] = float(dispatch_threads_per_threadgroup.x + threadgroups_per_grid.y * 10);
out[6] = float(h_shape[0] + i_ndim);
