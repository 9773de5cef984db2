/* Entry point of the compiled kernel's library, the hooks of instrumented code, and fault handling. */
#define _GNU_SOURCE
#include "msim.h"
#include <signal.h>
#include <stdlib.h>

msim_state msim;

static uint32_t *block_counts; /* [block_count][threads] of the running threadgroup */
static uint32_t threads_per_group;
static msim_group_counts sink;

/* An access that is looked at in full. */
static __attribute__((noinline)) void observe(uintptr_t address, uint32_t bytes, uint32_t site, uint32_t access) {
    if (!msim.current || !bytes || msim_in_stacks(address, bytes, site, access)) return;
    msim_region *region = msim.site_region[site];
    if (!region || address - region->base >= region->bytes) region = msim_find_region(address, bytes, site, access);
    uint64_t offset = address - region->base;
    if (region->index == NO_INDEX) { /* a constant table of the kernel */
        if (msim.launch->counted) msim_count_access(region, address, bytes, site, access);
        return;
    }
    if (offset + bytes > region->bytes || offset > region->bytes) {
        msim_event *event = msim_add_event(EVENT_OUT_OF_RANGE, site, region->index, 0, "");
        if (event) {
            event->access = access;
            event->bytes = bytes;
            event->offset = (int64_t)offset;
        }
        return;
    }
    if (msim.launch->checked) msim_check_access(region, offset, bytes, site, access);
    else if (msim.launch->counted) msim_count_access(region, address, bytes, site, access);
}

/* Most accesses are where the site's last one was, and no fault. */
static inline __attribute__((always_inline)) void glance(const void *pointer, uint32_t bytes, uint32_t site,
                                                         uint32_t access) {
    uintptr_t address = (uintptr_t)pointer;
    msim_region *region = msim.current ? msim.site_region[site] : NULL;
    uint64_t offset = region ? address - region->base : 0;
    if (region && offset < region->bytes && bytes <= region->bytes - offset) {
        if (access == ACCESS_LOAD && region->readable) return;
        if (region->shadowed && passes_quickly(region, offset, bytes, site, access)) return;
    }
    observe(address, bytes, site, access);
}

void msim_load(const void *address, uint32_t bytes, uint32_t site) { glance(address, bytes, site, ACCESS_LOAD); }
void msim_store(void *address, uint32_t bytes, uint32_t site) { glance(address, bytes, site, ACCESS_STORE); }
void msim_atomic(void *address, uint32_t bytes, uint32_t site) { observe((uintptr_t)address, bytes, site, ACCESS_ATOMIC); }

void msim_block(uint32_t block) {
    if (msim.current) block_counts[(uint64_t)block * threads_per_group + msim.current->thread]++;
}

/* Value of a launch attribute; the numbering is metalsim/text/signature.py's ATTRIBUTES. */
msim_u32 msim_attribute(msim_u32 index) {
    const msim_thread *thread = msim.current;
    uint32_t axis = index % 4;
    switch (index / 4) {
    case 0: return msim.group_position[axis] * msim.launch->threadgroup[axis] + thread->position[axis];
    case 1: return thread->position[axis];
    case 2: return msim.group_position[axis];
    case 3: return msim.group_size[axis];
    case 4: return msim.launch->threadgroup[axis];
    case 5: return msim.groups_per_grid[axis];
    case 6: return msim.launch->grid[axis];
    case 7: return 0; /* grid_origin */
    case 8: return thread->thread;
    case 9: return thread->lane;
    case 10: return thread->simdgroup;
    case 11: return msim.simdgroup_count;
    case 12: return SIMD_WIDTH;
    case 13: return thread->thread % 4;
    case 14: return thread->thread / 4;
    case 15: return (msim.thread_count + 3) / 4;
    case 16: return (threads_per_group + SIMD_WIDTH - 1) / SIMD_WIDTH;
    default: return (threads_per_group + 3) / 4;
    }
}

/* clang's array-bounds check: the type's name tells thread arrays from threadgroup arrays. */
typedef struct {
    uint16_t kind, info;
    char name[1];
} type_descriptor;

typedef struct {
    const char *file;
    uint32_t line, column;
    const type_descriptor *array, *index;
} out_of_bounds;

void __ubsan_handle_out_of_bounds(out_of_bounds *data, uintptr_t index) {
    msim_event *event = msim_add_event(EVENT_ARRAY_INDEX, msim.last_site, NO_INDEX, data->line, data->file);
    if (event) {
        bool is_signed = data->index->info & 1, narrow = (data->index->info >> 1) <= 5;
        event->offset = narrow && is_signed ? (int32_t)index : (int64_t)index;
        strncpy(event->text, data->array->name, sizeof event->text - 1);
    }
    /* Outside a thread's own array lies its stack: going on would corrupt the simulation. */
    if (!strstr(data->array->name, "__local") && !strstr(data->array->name, "__global")) msim_stop();
}

static const int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
enum { SIGNAL_COUNT = 5, SIGNAL_STACK_BYTES = 65536 };
enum { STACK_PROBE_BYTES = 16384 }; /* large frames touch every page in turn, so the guard page is met */
static struct sigaction previous[SIGNAL_COUNT], previous_time;
static stack_t previous_stack;
static void *signal_stack;

static void on_fault(int number, siginfo_t *info, void *context) {
    (void)context;
    if (!msim.running || !msim.current) { /* not ours: the handler that was there before takes it */
        for (int i = 0; i < SIGNAL_COUNT; i++) sigaction(SIGNALS[i], &previous[i], NULL);
        return;
    }
    uint32_t site = number == SIGFPE ? msim.last_site : NO_INDEX;
    msim_event *event = msim_add_event(EVENT_FAULT, site, NO_INDEX, 0, "");
    uintptr_t address = (uintptr_t)info->si_addr;
    bool overflow = address < msim.current->stack_low && msim.current->stack_low - address <= STACK_PROBE_BYTES;
    if (event) {
        bool trap = number == SIGILL || number == SIGTRAP;
        event->access = number == SIGFPE ? 1 : trap ? 3 : overflow ? 2 : 0;
        event->offset = (int64_t)address;
    }
    msim_stop();
}

/* The launch takes too long: say which thread was where, and end it. */
_Noreturn void msim_give_up(uint32_t site) {
    const msim_thread *thread = msim.current;
    bool waits = thread && thread->state == LANE_BARRIER;
    for (uint32_t i = 0; !thread && i < msim.thread_count; i++)
        if (msim.threads[i].state == LANE_BARRIER) thread = &msim.threads[i], waits = true;
    msim_event *event = msim_add_event(EVENT_HANG, site, NO_INDEX, waits ? thread->line : 0, waits ? thread->place : "");
    if (event) {
        event->thread = thread ? thread->thread : 0;
        event->offset = msim.group_stamp;
        event->other_group = msim.launch->group_count;
    }
    msim_stop();
}

/* First the next access is made to look its region up, since that knows its line; if none comes, the end. */
static void on_time(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    if (!msim.running) return;
    if (msim.overdue || !msim.current) msim_give_up(NO_INDEX);
    msim.overdue = true;
    memset(msim.site_region, 0, (msim.launch->site_count + 1) * sizeof *msim.site_region);
}

static bool catch_faults(void) {
    signal_stack = malloc(SIGNAL_STACK_BYTES);
    if (!signal_stack) return false;
    stack_t stack = {.ss_sp = signal_stack, .ss_size = SIGNAL_STACK_BYTES};
    sigaltstack(&stack, &previous_stack);
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    for (int i = 0; i < SIGNAL_COUNT; i++) sigaction(SIGNALS[i], &action, &previous[i]);
    action.sa_sigaction = on_time;
    sigaction(SIGVTALRM, &action, &previous_time);
    return true;
}

static void release_faults(void) {
    sigaction(SIGVTALRM, &previous_time, NULL);
    for (int i = 0; i < SIGNAL_COUNT; i++) sigaction(SIGNALS[i], &previous[i], NULL);
    if (previous_stack.ss_flags & SS_DISABLE) previous_stack.ss_size = SIGNAL_STACK_BYTES;
    sigaltstack(&previous_stack, NULL);
    free(signal_stack);
}

static void run_threadgroups(msim_launch *launch) {
    for (uint64_t i = 0; i < launch->group_count; i++) {
        if (launch->block_counts)
            block_counts = launch->block_counts + i * launch->block_count * threads_per_group;
        memset(&sink, 0, sizeof sink);
        msim.counts = launch->counts ? &launch->counts[i] : &sink;
        msim_run_threadgroup(i);
    }
}

/* Bytes of the structures shared with Python, to notice when the two descriptions drift apart. */
EXPORTED void msim_struct_bytes(uint32_t bytes[5]) {
    bytes[0] = sizeof(msim_buffer_spec);
    bytes[1] = sizeof(msim_event);
    bytes[2] = sizeof(msim_launch);
    bytes[3] = sizeof(msim_site_counts);
    bytes[4] = sizeof(msim_group_counts);
}

/* Run the launch; 0 when memory for it could not be had, else 1. Not reentrant: statics hold threadgroup memory. */
EXPORTED int msim_run(msim_launch *launch) {
    uint64_t total = 1;
    memset(&msim, 0, sizeof msim);
    msim.launch = launch;
    msim_forget_births();
    msim.last_site = NO_INDEX;
    msim.time = 1;
    for (int axis = 0; axis < 3; axis++) {
        uint32_t extent = launch->threadgroup[axis];
        msim.groups_per_grid[axis] = (launch->grid[axis] + extent - 1) / extent;
        total *= extent;
    }
    threads_per_group = (uint32_t)total;
    bool ready = total <= MAX_THREADS && launch->buffer_count <= MAX_BUFFERS && msim_map_buffers() &&
                 msim_make_stacks(threads_per_group, launch->stack_bytes) &&
                 (!launch->counted || msim_start_counters()) && catch_faults();
    if (ready) {
        msim.running = true;
        if (!sigsetjmp(msim.escape, 1)) {
            run_threadgroups(launch);
            uint64_t groups = (uint64_t)msim.groups_per_grid[0] * msim.groups_per_grid[1] * msim.groups_per_grid[2];
            if (launch->checked && launch->group_count == groups) msim_report_unwritten();
        }
        msim.running = false;
        msim.current = NULL;
        release_faults();
        msim_copy_outputs();
    }
    msim_drop_counters();
    msim_drop_stacks();
    msim_unmap_buffers();
    return ready;
}
