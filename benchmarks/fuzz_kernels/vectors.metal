#include <metal_stdlib>
using namespace metal;

struct Particle {
    packed_float3 position;
    float mass;
    float4 velocity;
};

kernel void move(device Particle* particles [[buffer(0)]], device const float4* forces [[buffer(1)]],
                 device uchar4* colors [[buffer(2)]], constant float& step [[buffer(3)]],
                 uint i [[thread_position_in_grid]]) {
    if (i >= 16) {
        return;
    }
    Particle p = particles[i];
    float3 q = p.position;
    float4 f = forces[i];
    float3x3 turn = float3x3(1.0f);
    turn[0].y = 0.25f;
    q = turn * q + f.xyz * (step / max(p.mass, 1e-3f));
    q.zx = q.xz;
    bool3 far = abs(q) > float3(10.0f);
    if (any(far)) q = select(q, float3(0), far);
    p.position = q;
    p.velocity.xy += f.wz;
    particles[i] = p;
    int4 shade = int4(round(clamp(f, 0.0f, 1.0f) * 255.0f));
    colors[i] = uchar4(shade);
    colors[i].w = as_type<uint>(f.x) >> 24;
}
