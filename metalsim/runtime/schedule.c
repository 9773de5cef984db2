/* Runs the threads of a threadgroup: SIMD-group after SIMD-group, each until it meets a barrier.
 *
 * A SIMD-group's lanes run until all of them wait or have ended; then the waiting lanes at the lowest
 * call site take part in its collective, and so on. That is how lanes of a divergent branch meet
 * again, and it makes results independent of the machine.
 */
#include "msim.h"

/* Lanes that arrived one after another at the same collective, from the first on. */
static struct {
    uintptr_t pc;
    uint32_t count, op, type;
} arrived;

/* The last lane of a SIMD-group that meets as a whole performs the collective at once; false when it is not so. */
static bool fire_together(uintptr_t pc) {
    msim_thread *last = msim.current, *first = last - last->lane;
    const msim_request *request = last->request;
    if (last->lane == 0) {
        arrived.pc = pc, arrived.count = 1, arrived.op = request->op, arrived.type = request->type;
    } else if (arrived.count == last->lane && arrived.pc == pc && arrived.op == request->op &&
               arrived.type == request->type) {
        arrived.count++;
    }
    uint32_t count = last->lane + 1;
    if (count < 2 || arrived.count != count || last + 1 != msim.lanes_end || msim.launch->counted) return false;
    arrived.count = 0;
    msim.current = NULL;
    perform(first, count, count == SIMD_WIDTH ? ~0u : (1u << count) - 1);
    for (msim_thread *lane = first; lane <= last; lane++) lane->state = LANE_READY;
    msim.current = first;
    msim_switch(&last->stack_pointer, first->stack_pointer);
    return true;
}

static void wait_here(msim_lane_state state, uintptr_t pc) {
    msim.current->pc = pc;
    msim.current->state = state;
    if (state == LANE_COLLECTIVE && fire_together(pc)) return;
    if (msim.overdue && state == LANE_BARRIER) msim_give_up(NO_INDEX);
    msim_block_current();
}

void msim_collective(msim_request *request) {
    msim.current->request = request;
    wait_here(LANE_COLLECTIVE, (uintptr_t)__builtin_return_address(0));
}

/* Three operands of a product of float matrices, and then its result: each lane's elements in their place. */
msim_pair msim_multiply(float a0, float a1, float b0, float b1, float c0, float c1, msim_u32 line, const char *place) {
    float operands[8] = {0, 0, a0, a1, b0, b1, c0, c1};
    msim_request request = {operands, NULL, MSIM_MATRIX_MULTIPLY, MSIM_F32, 2, SIMD_WIDTH, 0, line, place};
    uint32_t lane = msim.current->lane, at = 8 * fragment_row(lane) + fragment_column(lane);
    staged.a[at] = a0, staged.a[at + 1] = a1;
    staged.b[at] = b0, staged.b[at + 1] = b1;
    staged.c[at] = c0, staged.c[at + 1] = c1;
    staged.lanes |= 1u << lane;
    msim.current->request = &request;
    wait_here(LANE_COLLECTIVE, (uintptr_t)__builtin_return_address(0));
    return (msim_pair){staged.c[at], staged.c[at + 1]};
}

msim_u32 msim_exchange(msim_u32 bits, msim_u32 mask, msim_u32 line, const char *place) {
    msim_request request = {&bits, NULL, MSIM_SHUFFLE_XOR, MSIM_U32, 1, SIMD_WIDTH, mask, line, place};
    msim.current->request = &request;
    wait_here(LANE_COLLECTIVE, (uintptr_t)__builtin_return_address(0));
    return bits;
}

/* All exchanges of a plan, of which every lane has left its words with msim_stage_words. */
void msim_exchanges(const void *plan, msim_u32 line, const char *place) {
    msim_request request = {(void *)plan, NULL, MSIM_EXCHANGES, MSIM_U32, 1, SIMD_WIDTH, 0, line, place};
    msim.current->request = &request;
    wait_here(LANE_COLLECTIVE, (uintptr_t)__builtin_return_address(0));
}

/* All products of a plan, of which every lane has left its elements with msim_stage. */
void msim_products(const void *plan, msim_u32 line, const char *place) {
    msim_request request = {(void *)plan, NULL, MSIM_MATRIX_PRODUCTS, MSIM_F32, 2, SIMD_WIDTH, 0, line, place};
    msim.current->request = &request;
    wait_here(LANE_COLLECTIVE, (uintptr_t)__builtin_return_address(0));
}

msim_u64 msim_vote(msim_request *request) {
    uint64_t result = 0;
    request->fill = &result;
    msim.current->request = request;
    wait_here(LANE_COLLECTIVE, (uintptr_t)__builtin_return_address(0));
    return result;
}

void msim_barrier(msim_u32 flags, msim_u32 line, const char *place) {
    msim.current->flags = flags;
    msim.current->line = line;
    msim.current->place = place;
    wait_here(LANE_BARRIER, (uintptr_t)__builtin_return_address(0));
}

/* Run the lanes that can; the ones that then wait for the collective at the lowest call site, 0 for none. */
static uint32_t advance_lanes(msim_thread *lanes, uint32_t count, uint32_t *live) {
    uintptr_t lowest = UINTPTR_MAX;
    uint32_t mask = 0;
    *live = 0;
    for (uint32_t i = 0; i < count; i++) {
        msim_thread *lane = &lanes[i];
        if (lane->state == LANE_READY) msim_resume(lane); /* and with it the ready ones behind it */
        if (lane->state != LANE_ENDED) *live |= 1u << i;
        if (lane->state != LANE_COLLECTIVE || lane->pc > lowest) continue;
        if (lane->pc < lowest) mask = 0;
        lowest = lane->pc;
        mask |= 1u << i;
    }
    return mask;
}

static void run_simdgroup(uint32_t simdgroup) {
    msim_thread *lanes = &msim.threads[simdgroup * SIMD_WIDTH];
    uint32_t rest = msim.thread_count - simdgroup * SIMD_WIDTH;
    uint32_t count = rest < SIMD_WIDTH ? rest : SIMD_WIDTH;
    msim.segment++;
    msim.lanes_end = lanes + count;
    for (;;) {
        uint32_t live, mask = advance_lanes(lanes, count, &live);
        if (!mask) break;
        if (msim.launch->counted && mask == live) msim_flush_counters();
        uint32_t fired = msim_fire(lanes, count, mask);
        for (uint32_t i = 0; i < count; i++)
            if (fired >> i & 1) lanes[i].state = LANE_READY;
    }
    if (msim.launch->counted) msim_flush_counters();
}

/* All live threads wait at a barrier: report those that don't wait at the same one, or have ended. */
static void check_barrier(void) {
    const msim_thread *first = NULL, *other = NULL, *ended = NULL;
    for (uint32_t i = 0; i < msim.thread_count; i++) {
        const msim_thread *thread = &msim.threads[i];
        if (thread->state == LANE_ENDED) ended = ended ? ended : thread;
        else if (!first) first = thread;
        else if (thread->pc != first->pc && !other) other = thread;
    }
    const msim_thread *odd = other ? other : ended;
    /* Threads that met at different barriers end at different ones: that is no fault of its own. */
    if (!odd || (!other && msim.mismatched_group == msim.group_stamp)) return;
    if (other) msim.mismatched_group = msim.group_stamp;
    uint32_t kind = other ? EVENT_BARRIER_MISMATCH : EVENT_ENDED_BEFORE_BARRIER;
    msim_event *event = msim_add_event(kind, NO_INDEX, NO_INDEX, first->line, first->place);
    if (!event) return;
    event->thread = first->thread;
    event->other_thread = odd->thread;
    event->offset = other ? other->line : 0;
}

static void release_barrier(void) {
    uint32_t flags = ~0u;
    if (msim.launch->checked) check_barrier();
    for (uint32_t i = 0; i < msim.thread_count; i++) {
        if (msim.threads[i].state != LANE_BARRIER) continue;
        flags &= msim.threads[i].flags;
        msim.threads[i].state = LANE_READY;
    }
    msim.counts->barriers++;
    msim.time++;
    if (flags & MSIM_MEM_DEVICE) msim.barrier_time[0] = msim.time;
    if (flags & MSIM_MEM_THREADGROUP) msim.barrier_time[1] = msim.time;
}

static void place_threads(uint64_t group) {
    const msim_launch *launch = msim.launch;
    uint64_t rest = group;
    for (int axis = 0; axis < 3; axis++) {
        msim.group_position[axis] = (uint32_t)(rest % msim.groups_per_grid[axis]);
        rest /= msim.groups_per_grid[axis];
        uint32_t start = msim.group_position[axis] * launch->threadgroup[axis];
        uint32_t left = launch->grid[axis] - start;
        msim.group_size[axis] = left < launch->threadgroup[axis] ? left : launch->threadgroup[axis];
    }
    msim.group = group;
    msim.thread_count = msim.group_size[0] * msim.group_size[1] * msim.group_size[2];
    msim.simdgroup_count = (msim.thread_count + SIMD_WIDTH - 1) / SIMD_WIDTH;
    for (uint32_t i = 0; i < msim.thread_count; i++) {
        msim_thread *thread = &msim.threads[i];
        thread->state = LANE_READY;
        thread->thread = i;
        thread->simdgroup = i / SIMD_WIDTH;
        thread->lane = i % SIMD_WIDTH;
        thread->position[0] = i % msim.group_size[0];
        thread->position[1] = i / msim.group_size[0] % msim.group_size[1];
        thread->position[2] = i / msim.group_size[0] / msim.group_size[1];
    }
}

void msim_run_threadgroup(uint64_t ordinal) {
    place_threads(msim.launch->groups[ordinal]);
    msim.group_stamp = (uint32_t)ordinal + 1;
    msim.group_start = msim.group_starts[ordinal] = ++msim.time;
    msim.barrier_time[0] = msim.barrier_time[1] = msim.time;
    msim.counts->threads = msim.thread_count;
    for (;;) {
        bool waiting = false;
        for (uint32_t s = 0; s < msim.simdgroup_count; s++) run_simdgroup(s);
        for (uint32_t i = 0; i < msim.thread_count; i++) waiting |= msim.threads[i].state == LANE_BARRIER;
        if (!waiting) break;
        release_barrier();
    }
    if (msim.counts->threadgroup_bytes > msim.launch->threadgroup_bytes)
        msim.launch->threadgroup_bytes = msim.counts->threadgroup_bytes;
}
