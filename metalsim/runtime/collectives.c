/* What a SIMD-group's lanes compute together. Reductions combine pairs at distance 16, 8, 4, 2, 1, in
 * the value's own type; lanes that take no part count as the identity. */
#include "msim.h"
#include <math.h>

uint16_t msim_bfloat_bits(float x);
float msim_float_of_bfloat(uint16_t x);

static const uint8_t TYPE_BYTES[] = {4, 2, 2, 1, 1, 2, 2, 4, 4, 8, 8};

/* A scalar of any element type, widened. */
typedef union {
    float f;
    int64_t i;
    uint64_t u;
} scalar;

static bool is_float(uint32_t type) { return type <= MSIM_BF16; }

static scalar read_scalar(const void *from, uint32_t type) {
    scalar s = {.u = 0};
    switch (type) {
    case MSIM_F32: memcpy(&s.f, from, 4); break;
    case MSIM_F16: { _Float16 h; memcpy(&h, from, 2); s.f = (float)h; break; }
    case MSIM_BF16: { uint16_t b; memcpy(&b, from, 2); s.f = msim_float_of_bfloat(b); break; }
    case MSIM_I8: s.i = *(const int8_t *)from; break;
    case MSIM_U8: s.u = *(const uint8_t *)from; break;
    case MSIM_I16: s.i = *(const int16_t *)from; break;
    case MSIM_U16: s.u = *(const uint16_t *)from; break;
    case MSIM_I32: s.i = *(const int32_t *)from; break;
    case MSIM_U32: s.u = *(const uint32_t *)from; break;
    default: memcpy(&s.u, from, 8); break;
    }
    return s;
}

static void write_scalar(void *to, uint32_t type, scalar s) {
    switch (type) {
    case MSIM_F32: memcpy(to, &s.f, 4); break;
    case MSIM_F16: { _Float16 h = (_Float16)s.f; memcpy(to, &h, 2); break; }
    case MSIM_BF16: { uint16_t b = msim_bfloat_bits(s.f); memcpy(to, &b, 2); break; }
    default: memcpy(to, &s.u, TYPE_BYTES[type]); break;
    }
}

static scalar round_to(scalar s, uint32_t type) {
    uint64_t bits;
    write_scalar(&bits, type, s);
    return read_scalar(&bits, type);
}

static bool is_signed(uint32_t type) {
    return type == MSIM_I8 || type == MSIM_I16 || type == MSIM_I32 || type == MSIM_I64;
}

static scalar combine(uint32_t op, uint32_t type, scalar a, scalar b) {
    scalar r = a;
    bool real = is_float(type);
    switch (op) {
    case MSIM_SUM: if (real) r.f = a.f + b.f; else r.u = a.u + b.u; break;
    case MSIM_PRODUCT: if (real) r.f = a.f * b.f; else r.u = a.u * b.u; break;
    case MSIM_MIN:
        if (real) r.f = fminf(a.f, b.f);
        else r = (is_signed(type) ? a.i < b.i : a.u < b.u) ? a : b;
        break;
    case MSIM_MAX:
        if (real) r.f = fmaxf(a.f, b.f);
        else r = (is_signed(type) ? a.i > b.i : a.u > b.u) ? a : b;
        break;
    case MSIM_AND: r.u = a.u & b.u; break;
    case MSIM_OR: r.u = a.u | b.u; break;
    default: r.u = a.u ^ b.u; break;
    }
    return round_to(r, type);
}

/* combine(), with a look at whether the lane makes a NaN there. */
static scalar combine_traced(const msim_thread *lane, uint32_t op, uint32_t type, scalar a, scalar b) {
    scalar r = combine(op, type, a, b);
    if (!msim.launch->traced || !is_float(type) || r.f == r.f || a.f != a.f || b.f != b.f) return r;
    float operands[] = {a.f, b.f};
    r.f = msim_collective_birth(lane, op == MSIM_PRODUCT ? "*" : "+", operands, 2);
    return r;
}

static bool takes_part(uint32_t mask, uint32_t lane) { return lane < SIMD_WIDTH && (mask >> lane & 1); }

static void *component(const msim_request *request, uint32_t index) {
    return (char *)request->value + index * TYPE_BYTES[request->type];
}

/* Reduce component `index` over each run of `width` lanes; every active lane gets its run's result. */
static void reduce(msim_thread *lanes, uint32_t mask, uint32_t op, uint32_t index) {
    scalar values[SIMD_WIDTH];
    uint32_t present = mask, lead = (uint32_t)__builtin_ctz(mask);
    uint32_t type = lanes[lead].request->type, width = lanes[lead].request->width;
    for (uint32_t i = 0; i < SIMD_WIDTH; i++)
        if (takes_part(mask, i)) values[i] = read_scalar(component(lanes[i].request, index), type);
    for (uint32_t step = width / 2; step; step /= 2) {
        for (uint32_t i = 0; i < SIMD_WIDTH; i++) {
            if (i % (2 * step) >= step || !takes_part(present, i + step)) continue;
            values[i] = takes_part(present, i) ? combine_traced(&lanes[lead], op, type, values[i], values[i + step])
                                               : values[i + step];
            present |= 1u << i;
        }
    }
    for (uint32_t i = 0; i < SIMD_WIDTH; i++)
        if (takes_part(mask, i)) write_scalar(component(lanes[i].request, index), type, values[i / width * width]);
}

static void prefix(msim_thread *lanes, uint32_t mask, uint32_t index) {
    const msim_request *lead = lanes[__builtin_ctz(mask)].request;
    uint32_t type = lead->type, op = lead->op;
    bool product = op >= MSIM_PREFIX_INCLUSIVE_PRODUCT;
    bool exclusive = op == MSIM_PREFIX_EXCLUSIVE_SUM || op == MSIM_PREFIX_EXCLUSIVE_PRODUCT;
    scalar running = {.u = 0};
    for (uint32_t i = 0; i < SIMD_WIDTH; i++) {
        if (i % lead->width == 0) {
            if (is_float(type)) running.f = product;
            else running.u = product;
        }
        if (!takes_part(mask, i)) continue;
        scalar before = running;
        running = combine_traced(&lanes[i], product ? MSIM_PRODUCT : MSIM_SUM, type, running,
                                 read_scalar(component(lanes[i].request, index), type));
        write_scalar(component(lanes[i].request, index), type, exclusive ? before : running);
    }
}

enum { KEEP_OWN = -1, TAKE_FILL_LOW = -2, TAKE_FILL_HIGH = -3 };

/* The lane that `lane` reads from within its run, or what it takes instead of another lane's value. */
static int64_t source_lane(const msim_request *request, uint32_t lane, uint32_t first) {
    int64_t width = request->width, own = lane % width, base = lane - own, n = request->lane;
    switch (request->op) {
    case MSIM_SHUFFLE: case MSIM_BROADCAST: return base + n;
    case MSIM_SHUFFLE_XOR: return base + (own ^ n);
    case MSIM_SHUFFLE_UP: return own < n ? KEEP_OWN : lane - n;
    case MSIM_SHUFFLE_DOWN: return own + n >= width ? KEEP_OWN : lane + n;
    case MSIM_FILL_UP: return own < n ? TAKE_FILL_LOW : lane - n;
    case MSIM_FILL_DOWN: return own + n >= width ? TAKE_FILL_HIGH : lane + n;
    case MSIM_ROTATE_UP: return base + (own + width - n % width) % width;
    case MSIM_ROTATE_DOWN: return base + (own + n) % width;
    default: return first;
    }
}

static void report_inactive(msim_thread *lanes, uint32_t count, uint32_t lane, int64_t source) {
    const msim_request *request = lanes[lane].request;
    msim_event *event = msim_add_event(EVENT_INACTIVE_LANE, NO_INDEX, NO_INDEX, request->line, request->place);
    if (!event) return;
    event->thread = lanes[lane].thread;
    event->offset = source;
    event->bytes = request->op >= MSIM_MATRIX_MULTIPLY && request->op != MSIM_EXCHANGES;
    event->access = source < 0 || source >= SIMD_WIDTH ? 0      /* no such lane */
                    : source >= count ? 1                       /* beyond a short SIMD-group */
                    : lanes[source].state == LANE_ENDED ? 2 : 3; /* ended, or elsewhere */
}

enum { MAX_VALUE_BYTES = 32 };

/* All lanes hand a word to a lane that is there, as reductions by shuffles do; false for anything else. */
static bool shuffle_words(msim_thread *lanes, uint32_t mask) {
    if (mask != ~0u) return false; /* lane 0 may have ended, or never come to a collective */
    const msim_request *lead = lanes[0].request;
    uint32_t op = lead->op, words[SIMD_WIDTH], sources[SIMD_WIDTH];
    bool plain = op == MSIM_SHUFFLE || op == MSIM_SHUFFLE_XOR || op == MSIM_BROADCAST;
    if (!plain || lead->width != SIMD_WIDTH || lead->count * TYPE_BYTES[lead->type] != sizeof *words)
        return false;
    for (uint32_t i = 0; i < SIMD_WIDTH; i++) {
        const msim_request *request = lanes[i].request;
        memcpy(&words[i], request->value, sizeof *words);
        sources[i] = op == MSIM_SHUFFLE_XOR ? i ^ request->lane : request->lane;
        if (sources[i] >= SIMD_WIDTH) return false;
    }
    for (uint32_t i = 0; i < SIMD_WIDTH; i++) memcpy(lanes[i].request->value, &words[sources[i]], sizeof *words);
    return true;
}

static void shuffle(msim_thread *lanes, uint32_t count, uint32_t mask) {
    if (shuffle_words(lanes, mask)) return;
    char before[SIMD_WIDTH][MAX_VALUE_BYTES];
    uint32_t first = (uint32_t)__builtin_ctz(mask);
    uint32_t bytes = lanes[first].request->count * TYPE_BYTES[lanes[first].request->type];
    for (uint32_t i = 0; i < count; i++)
        if (takes_part(mask, i)) memcpy(before[i], lanes[i].request->value, bytes);
    for (uint32_t i = 0; i < count; i++) {
        if (!takes_part(mask, i)) continue;
        msim_request *request = lanes[i].request;
        uint32_t quad_first = first;
        if (request->width == 4) quad_first = i / 4 * 4 + (uint32_t)__builtin_ctz(mask >> (i / 4 * 4));
        int64_t source = source_lane(request, i, quad_first), width = request->width;
        if (source == KEEP_OWN) continue;
        /* fill up: the last `delta` values of the fill run, fill down: its first ones */
        if (source == TAKE_FILL_LOW) source = i + width - request->lane;
        else if (source == TAKE_FILL_HIGH) source = i + request->lane - width;
        else if (source >= 0 && takes_part(mask, (uint32_t)(source > 31 ? 32 : source))) {
            memcpy(request->value, before[source], bytes);
            continue;
        }
        bool fill = request->op == MSIM_FILL_UP || request->op == MSIM_FILL_DOWN;
        bool from_fill = fill && source_lane(request, i, quad_first) < KEEP_OWN;
        if (from_fill && source >= 0 && takes_part(mask, (uint32_t)(source > 31 ? 32 : source))) {
            memcpy(request->value, lanes[source].request->fill, bytes);
        } else {
            report_inactive(lanes, count, i, source);
            memset(request->value, 0xff, bytes);
        }
    }
}

static void vote(msim_thread *lanes, uint32_t mask) {
    uint32_t width = lanes[__builtin_ctz(mask)].request->width;
    for (uint32_t i = 0; i < SIMD_WIDTH; i++) {
        if (!takes_part(mask, i)) continue;
        msim_request *request = lanes[i].request;
        uint32_t base = i / width * width;
        uint32_t run = width == SIMD_WIDTH ? ~0u : ((1u << width) - 1) << base, yes = 0;
        for (uint32_t k = 0; k < SIMD_WIDTH; k++)
            if (takes_part(mask & run, k) && lanes[k].request->lane) yes |= 1u << k;
        uint64_t result = yes >> base;
        if (request->op == MSIM_ALL) result = yes == (mask & run);
        else if (request->op == MSIM_ANY) result = yes != 0;
        else if (request->op == MSIM_IS_FIRST) result = i == (uint32_t)__builtin_ctz(mask & run);
        else if (request->op == MSIM_ACTIVE_MASK) result = (mask & run) >> base;
        memcpy((void *)request->fill, &result, sizeof result);
    }
}

static void simd_barrier(msim_thread *lanes, uint32_t count, uint32_t mask) {
    msim_thread *first = &lanes[__builtin_ctz(mask)], *elsewhere = NULL;
    uint32_t flags = ~0u;
    for (uint32_t i = 0; i < count; i++) {
        if (takes_part(mask, i)) flags &= lanes[i].request->lane;
        else if (lanes[i].state != LANE_ENDED) elsewhere = &lanes[i];
    }
    if (elsewhere && msim.launch->checked) {
        msim_event *event = msim_add_event(EVENT_SIMD_BARRIER_MISMATCH, NO_INDEX, NO_INDEX, first->request->line,
                                           first->request->place);
        if (event) {
            event->thread = first->thread;
            event->other_thread = elsewhere->thread;
        }
    }
    msim.counts->simd_barriers++;
    msim.segment++;
    msim.time++;
    if (flags & MSIM_MEM_DEVICE) msim.simd_barrier_time[0][first->simdgroup] = msim.time;
    if (flags & MSIM_MEM_THREADGROUP) msim.simd_barrier_time[1][first->simdgroup] = msim.time;
}

static uint32_t fragment_row(uint32_t lane) { return (lane >> 2 & 4) | (lane >> 1 & 3); }
static uint32_t fragment_column(uint32_t lane) { return (lane >> 1 & 4) | (lane << 1 & 2); }

/* A matrix lives in all lanes: without some of them it has no value. */
static void check_all_lanes(msim_thread *lanes, uint32_t count, uint32_t mask) {
    if (mask == ~0u) return;
    report_inactive(lanes, count, (uint32_t)__builtin_ctz(mask), __builtin_ctz(~mask));
}

enum { SLOT_BYTES = 8, SLOT_D = 0, SLOT_A, SLOT_B, SLOT_C };

/* One operand by row and column; elements of lanes that take no part are NaN. */
static void gather_matrix(msim_thread *lanes, uint32_t mask, uint32_t slot, uint32_t type, float matrix[8][8]) {
    if (type == MSIM_F32 && mask == ~0u) {
        for (uint32_t i = 0; i < SIMD_WIDTH; i++)
            memcpy(&matrix[fragment_row(i)][fragment_column(i)],
                   (const char *)lanes[i].request->value + slot * SLOT_BYTES, 2 * sizeof(float));
        return;
    }
    for (uint32_t i = 0; i < SIMD_WIDTH; i++) {
        float *to = &matrix[fragment_row(i)][fragment_column(i)];
        const char *from = takes_part(mask, i) ? (const char *)lanes[i].request->value + slot * SLOT_BYTES : NULL;
        to[0] = from ? read_scalar(from, type).f : NAN;
        to[1] = from ? read_scalar(from + TYPE_BYTES[type], type).f : NAN;
    }
}

/* Mark elements of c where the product makes a NaN: the multiplication that follows keeps the mark. */
static void trace_multiply(const msim_thread *lane, float a[8][8], float b[8][8], float c[8][8]) {
    for (int row = 0; row < 8; row++) {
        for (int column = 0; column < 8; column++) {
            float sum = c[row][column];
            for (int k = 0; k < 8 && sum == sum; k++) {
                float operands[] = {a[row][k], b[k][column], sum};
                sum = fmaf(operands[0], operands[1], operands[2]);
                bool born = sum != sum && operands[0] == operands[0] && operands[1] == operands[1];
                if (born) c[row][column] = msim_collective_birth(lane, "fma", operands, 3);
                /* a NaN of an operand came first */
                if (sum != sum && !born) break;
            }
        }
    }
}

typedef float matrix_row __attribute__((vector_size(32)));

static matrix_row spread(float x) { return (matrix_row){x, x, x, x, x, x, x, x}; }

/* Eight columns at once, each as fmaf would. */
static void multiply_rows(float a[8][8], const matrix_row *b, matrix_row *c) {
    for (int row = 0; row < 8; row++) {
        matrix_row sum = c[row];
        for (int k = 0; k < 8; k++) sum = __builtin_elementwise_fma(spread(a[row][k]), b[k], sum);
        c[row] = sum;
    }
}

/* What lanes that wait in msim_multiply brought: their elements of the operands, in place. */
static struct {
    _Alignas(32) float a[64], b[64], c[64];
    uint32_t lanes;
} staged;

/* The product of a whole SIMD-group, all float: every lane takes its elements from staged.c. */
static void multiply_staged(const msim_thread *lane) {
    float(*a)[8] = (float(*)[8])staged.a, (*b)[8] = (float(*)[8])staged.b, (*c)[8] = (float(*)[8])staged.c;
    if (msim.launch->traced) trace_multiply(lane, a, b, c);
    multiply_rows(a, (const matrix_row *)b, (matrix_row *)c);
}

/* d = a * b + c: from c on, one fused multiply-add per k in ascending order, in float; rounded to d's type once. */
static void multiply_matrices(msim_thread *lanes, uint32_t mask) {
    const msim_request *lead = lanes[__builtin_ctz(mask)].request;
    uint32_t brought = staged.lanes & mask;
    staged.lanes &= ~mask;
    if (brought == ~0u) {
        multiply_staged(&lanes[__builtin_ctz(mask)]);
        return;
    }
    _Alignas(32) float a[8][8], b[8][8], c[8][8];
    gather_matrix(lanes, mask, SLOT_A, lead->lane & 255, a);
    gather_matrix(lanes, mask, SLOT_B, lead->lane >> 8 & 255, b);
    gather_matrix(lanes, mask, SLOT_C, lead->lane >> 16 & 255, c);
    if (msim.launch->traced) trace_multiply(&lanes[__builtin_ctz(mask)], a, b, c);
    multiply_rows(a, (const matrix_row *)b, (matrix_row *)c);
    for (uint32_t i = 0; i < SIMD_WIDTH; i++)
        if (brought >> i & 1)
            memcpy(&staged.c[8 * fragment_row(i) + fragment_column(i)], &c[fragment_row(i)][fragment_column(i)],
                   2 * sizeof(float));
    if (lead->type == MSIM_F32 && mask == ~0u) {
        for (uint32_t i = 0; i < SIMD_WIDTH; i++)
            memcpy(lanes[i].request->value, &c[fragment_row(i)][fragment_column(i)], 2 * sizeof(float));
        return;
    }
    for (uint32_t i = 0; i < SIMD_WIDTH; i++) {
        if (!takes_part(mask, i)) continue;
        for (uint32_t k = 0; k < 2; k++)
            write_scalar((char *)lanes[i].request->value + k * TYPE_BYTES[lead->type], lead->type,
                         (scalar){.f = c[fragment_row(i)][fragment_column(i) + k]});
    }
}

/* Several words that lanes exchange at once (build/meetings.py): each with the lane that a mask of its number tells. */
typedef struct {
    uint32_t count;
    uint8_t masks[];
} exchange_plan;

enum { MAX_EXCHANGES = 64 };
static _Alignas(64) uint32_t exchanged[MAX_EXCHANGES][SIMD_WIDTH];

/* Where the running lane leaves its word of the first exchange, and finds the other's. */
void *msim_stage_words(void) { return &exchanged[0][msim.current->lane]; }

static void exchange_planned(const exchange_plan *plan, msim_thread *lanes, uint32_t count, uint32_t mask) {
    for (uint32_t k = 0; k < plan->count; k++) {
        uint32_t words[SIMD_WIDTH];
        memcpy(words, exchanged[k], sizeof words);
        for (uint32_t i = 0; i < SIMD_WIDTH; i++) {
            uint32_t source = i ^ plan->masks[k];
            if (!takes_part(mask, i)) continue;
            if (!takes_part(mask, source)) report_inactive(lanes, count, i, source);
            exchanged[k][i] = takes_part(mask, source) ? words[source] : ~0u;
        }
    }
}

/* Several products that a SIMD-group performs at once (build/meetings.py): in turn d = a * b + c, all in float. */
typedef struct {
    uint32_t slots, count;
    struct { uint8_t a, b, c, d; } products[];
} product_plan;

enum { MAX_SLOTS = 240, MATRIX_ELEMENTS = 64 };
static _Alignas(64) float matrices[MAX_SLOTS][MATRIX_ELEMENTS], kept_matrices[MAX_SLOTS][MATRIX_ELEMENTS];

/* Where the running lane leaves its elements of the matrix in slot 0, and finds them. */
void *msim_stage(void) {
    uint32_t lane = msim.current->lane;
    return &matrices[0][8 * fragment_row(lane) + fragment_column(lane)];
}

/* As multiply_rows, with all eight rows of the sum in registers. */
static void multiply_whole(const float *a, const matrix_row *b, const matrix_row *c, matrix_row *d) {
    matrix_row s0 = c[0], s1 = c[1], s2 = c[2], s3 = c[3], s4 = c[4], s5 = c[5], s6 = c[6], s7 = c[7];
#pragma clang loop unroll(disable)
    for (int k = 0; k < 8; k++) {
        matrix_row row = b[k];
        s0 = __builtin_elementwise_fma(spread(a[k]), row, s0);
        s1 = __builtin_elementwise_fma(spread(a[8 + k]), row, s1);
        s2 = __builtin_elementwise_fma(spread(a[16 + k]), row, s2);
        s3 = __builtin_elementwise_fma(spread(a[24 + k]), row, s3);
        s4 = __builtin_elementwise_fma(spread(a[32 + k]), row, s4);
        s5 = __builtin_elementwise_fma(spread(a[40 + k]), row, s5);
        s6 = __builtin_elementwise_fma(spread(a[48 + k]), row, s6);
        s7 = __builtin_elementwise_fma(spread(a[56 + k]), row, s7);
    }
    d[0] = s0, d[1] = s1, d[2] = s2, d[3] = s3, d[4] = s4, d[5] = s5, d[6] = s6, d[7] = s7;
}

/* Copy the elements of the lanes that take no part from one matrix to another, or make them NaN. */
static void put_others(uint32_t mask, float *to, const float *from) {
    for (uint32_t i = 0; i < SIMD_WIDTH; i++) {
        uint32_t at = 8 * fragment_row(i) + fragment_column(i);
        if (takes_part(mask, i)) continue;
        to[at] = from ? from[at] : NAN;
        to[at + 1] = from ? from[at + 1] : NAN;
    }
}

static void multiply_planned(const product_plan *plan, uint32_t mask) {
    if (mask != ~0u) {
        memcpy(kept_matrices, matrices, plan->slots * sizeof matrices[0]);
        for (uint32_t i = 0; i < plan->slots; i++) put_others(mask, matrices[i], NULL);
    }
    for (uint32_t i = 0; i < plan->count; i++)
        multiply_whole(matrices[plan->products[i].a], (const matrix_row *)matrices[plan->products[i].b],
                       (const matrix_row *)matrices[plan->products[i].c], (matrix_row *)matrices[plan->products[i].d]);
    if (mask != ~0u) /* they may wait at other products, with operands of their own */
        for (uint32_t i = 0; i < plan->slots; i++) put_others(mask, matrices[i], kept_matrices[i]);
}

/* Perform the collective at which the lanes of `mask` wait, all at the same one. */
static void perform(msim_thread *lanes, uint32_t lane_count, uint32_t mask) {
    const msim_request *lead = lanes[__builtin_ctz(mask)].request;
    uint32_t words = lead->count * ((TYPE_BYTES[lead->type] + 3) / 4), op = lead->op;
    if (op == MSIM_MATRIX_MULTIPLY && mask == ~0u && staged.lanes == ~0u) {
        multiply_matrices(lanes, mask);
        msim.counts->matrix_simd_ops++;
        return;
    }
    if (op == MSIM_EXCHANGES) {
        const exchange_plan *plan = lead->value;
        exchange_planned(plan, lanes, lane_count, mask);
        msim.counts->shuffle_simd_ops += plan->count;
        msim.counts->shuffle_lanes += (uint64_t)plan->count * (uint32_t)__builtin_popcount(mask);
    } else if (op == MSIM_MATRIX_PRODUCTS) {
        const product_plan *plan = lead->value;
        check_all_lanes(lanes, lane_count, mask);
        multiply_planned(plan, mask);
        msim.counts->matrix_simd_ops += plan->count;
    } else if (op == MSIM_MATRIX_MULTIPLY || op == MSIM_MATRIX_SYNC) {
        check_all_lanes(lanes, lane_count, mask);
        if (op == MSIM_MATRIX_SYNC) return;
        multiply_matrices(lanes, mask);
        msim.counts->matrix_simd_ops++;
        msim.counts->matrix_half_simd_ops += (lead->lane & 255) == MSIM_F16;
        msim.counts->matrix_bfloat_simd_ops += (lead->lane & 255) == MSIM_BF16;
    } else if (op == MSIM_SIMD_BARRIER) {
        simd_barrier(lanes, lane_count, mask);
    } else if (op >= MSIM_BALLOT) {
        vote(lanes, mask);
        msim.counts->vote_simd_ops++;
    } else if (op >= MSIM_SHUFFLE) {
        shuffle(lanes, lane_count, mask);
        if (op >= MSIM_BROADCAST) {
            msim.counts->broadcast_simd_ops += words;
        } else {
            msim.counts->shuffle_simd_ops += words;
            msim.counts->shuffle_lanes += (uint64_t)words * (uint32_t)__builtin_popcount(mask);
        }
    } else if (op >= MSIM_PREFIX_INCLUSIVE_SUM) {
        for (uint32_t i = 0; i < lead->count; i++) prefix(lanes, mask, i);
        msim.counts->prefix_simd_ops += lead->count;
    } else {
        for (uint32_t i = 0; i < lead->count; i++) reduce(lanes, mask, op, i);
        msim.counts->reduction_simd_ops += lead->count;
    }
}

/* Perform the collective of the first of the lanes of `mask`; returns the lanes that took part. */
uint32_t msim_fire(msim_thread *lanes, uint32_t lane_count, uint32_t mask) {
    const msim_request *lead = lanes[__builtin_ctz(mask)].request;
    uint32_t same = 0;
    for (uint32_t i = 0; i < lane_count; i++)
        if (takes_part(mask, i) && lanes[i].request->op == lead->op && lanes[i].request->type == lead->type)
            same |= 1u << i;
    perform(lanes, lane_count, same);
    return same;
}
