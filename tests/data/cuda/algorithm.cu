//@ present online-softmax
__global__ void attend(const float* s, const float* v, float* out, int n) {
    float m = -INFINITY, l = 0.f, acc = 0.f;
    for (int j = 0; j < n; ++j) {
        const float m_new = fmaxf(m, s[j]);
        const float correction = expf(m - m_new);
        const float p = expf(s[j] - m_new);
        l = l * correction + p;
        acc = acc * correction + p * v[j];
        m = m_new;
    }
    out[0] = acc / l;
}
//@ present online-softmax with a branch
__global__ void normalizer(const float* s, float* out, int n) {
    float best = -INFINITY, sum = 0.f;
    for (int j = 0; j < n; ++j) {
        const float before = best;
        if (s[j] > best) {
            best = s[j];
            sum = sum * expf(before - best) + 1.f;
        } else {
            sum += expf(s[j] - best);
        }
    }
    out[0] = sum;
}
//@ absent online-softmax because the maximum is known first
__global__ void softmax(const float* s, float* out, int n) {
    float m = -INFINITY;
    for (int j = 0; j < n; ++j) m = fmaxf(m, s[j]);
    float sum = 0.f;
    for (int j = 0; j < n; ++j) sum += expf(s[j] - m);
    for (int j = 0; j < n; ++j) out[j] = expf(s[j] - m) / sum;
}
//@ absent online-softmax because parts are combined at once
__global__ void combine(const float* lse, const float* o, float* out, int splits) {
    float top = -INFINITY;
    for (int s = 0; s < splits; ++s) top = fmaxf(top, lse[s]);
    float sum = 0.f, acc = 0.f;
    for (int s = 0; s < splits; ++s) {
        const float w = expf(lse[s] - top);
        sum += w;
        acc += w * o[s];
    }
    out[0] = acc / sum;
}
//@ present causal-block-skipping
__global__ void attend(float* out, int keys, bool is_causal) {
    int last_block = (keys + 63) / 64;
    if (is_causal) last_block = min(last_block, ((blockIdx.x + 1) * 64 + 63) / 64);
    for (int block = 0; block < last_block; ++block) out[block] += 1.f;
}
//@ absent causal-block-skipping because single scores are masked
__global__ void attend(float* out, int keys, bool is_causal) {
    for (int j = 0; j < keys; ++j)
        if (is_causal && j > threadIdx.x) out[j] = -INFINITY;
}
//@ absent causal-block-skipping because a convolution is causal by nature
__global__ void causal_conv(const float* x, float* out, int width) {
    float acc = 0.f;
    for (int w = 0; w < width; ++w) acc += x[threadIdx.x - w];
    out[threadIdx.x] = acc;
}
//@ present grouped-query-sharing
__global__ void attend(const float* k, float* out, int heads, int kv_heads) {
    const int head = blockIdx.y;
    const int kv_head = head / (heads / kv_heads);
    out[head] = k[kv_head * 64 + threadIdx.x];
}
//@ absent grouped-query-sharing because states share groups
__global__ void scan(const float* b, float* out, int dim_ngroups_ratio) {
    const int group = blockIdx.y / dim_ngroups_ratio;
    out[blockIdx.y] = b[group];
}
//@ present topk-in-registers
__global__ void route(const float* logits, int* chosen, int topk) {
    float score = logits[threadIdx.x];
    for (int k = 0; k < topk; ++k) {
        float max_val = score;
        int expert = threadIdx.x;
        for (int o = 16; o > 0; o >>= 1) {
            const float other_val = __shfl_xor_sync(~0u, max_val, o);
            const int other = __shfl_xor_sync(~0u, expert, o);
            if (other_val > max_val) { max_val = other_val; expert = other; }
        }
        if (expert == threadIdx.x) score = -INFINITY;
        if (threadIdx.x == 0) chosen[k] = expert;
    }
}
//@ absent topk-in-registers because there is one winner
__global__ void best(const float* logits, int* chosen, int n) {
    float max_val = -INFINITY;
    for (int i = 0; i < n; ++i)
        if (logits[i] > max_val) { max_val = logits[i]; chosen[0] = i; }
}
//@ present expert-token-sorting
__global__ void align(const int* expert_of, int* sorted_token_ids, int* cumsum, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const int at = atomicAdd(&cumsum[expert_of[i]], 1);
        sorted_token_ids[at] = i;
    }
}
//@ absent expert-token-sorting because experts are only chosen
__global__ void choose(const float* gate, int* expert_ids) { expert_ids[threadIdx.x] = gate[threadIdx.x] > 0.f ? 1 : 0; }
