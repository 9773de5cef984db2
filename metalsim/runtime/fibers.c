/* Threads as fibers: a stack each, with a guard page below, in one mapping. */
#define _GNU_SOURCE
#include "msim.h"
#include <sys/mman.h>
#include <unistd.h>

extern void msim_entry(void);

enum { STACK_COLORS = 61 };

static void *mapping;
static size_t mapping_bytes;

static void fiber_main(void) {
    for (;;) {
        msim_entry();
        msim.current->state = LANE_ENDED;
        msim_block_current();
    }
}

/* Lay out the frame that msim_switch pops, so that the first switch returns into fiber_main. */
static void *first_frame(uintptr_t top) {
#if defined(__x86_64__)
    uintptr_t *frame = (uintptr_t *)(top - 24);
    *frame = 0;                        /* fiber_main's return address: it never returns */
    *--frame = (uintptr_t)fiber_main;  /* leaves rsp at 16 n + 8 on entry, as a call does */
    frame -= 6;
    memset(frame, 0, 6 * sizeof *frame);
    return frame;
#else
    uintptr_t *frame = (uintptr_t *)(top - 160);
    memset(frame, 0, 160);
    frame[11] = (uintptr_t)fiber_main;
    return frame;
#endif
}

bool msim_make_stacks(uint32_t count, uint64_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t stack = (bytes + page - 1) / page * page;
    mapping_bytes = count * (stack + page);
    mapping = mmap(NULL, mapping_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANON | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) {
        mapping = NULL;
        return false;
    }
    msim.stacks_low = (uintptr_t)mapping;
    msim.stacks_high = msim.stacks_low + mapping_bytes;
    for (uint32_t i = 0; i < count; i++) {
        uintptr_t low = msim.stacks_low + i * (stack + page) + page;
        if (mprotect((void *)low, stack, PROT_READ | PROT_WRITE) != 0) return false;
        msim.threads[i].stack_low = low;
        msim.threads[i].stack_high = low + stack;
        /* Tops at the same page offset would all fall into the same few cache sets. */
        msim.threads[i].stack_pointer = first_frame(low + stack - i % STACK_COLORS * 64);
    }
    return true;
}

void msim_drop_stacks(void) {
    if (mapping) munmap(mapping, mapping_bytes);
    mapping = NULL;
    msim.stacks_low = msim.stacks_high = 0;
}

void msim_resume(msim_thread *thread) {
    msim.current = thread;
    thread->state = LANE_READY;
    msim_switch(&msim.scheduler_stack_pointer, thread->stack_pointer);
    msim.current = NULL;
}

/* Let the next lane run when it can: half as many switches as by way of the scheduler, to a predictable place. */
void msim_block_current(void) {
    msim_thread *thread = msim.current, *next = thread + 1;
    if (next < msim.lanes_end && next->state == LANE_READY) {
        msim.current = next;
        msim_switch(&thread->stack_pointer, next->stack_pointer);
        return;
    }
    msim_switch(&thread->stack_pointer, msim.scheduler_stack_pointer);
}

_Noreturn void msim_stop(void) {
    msim.launch->stopped = 1;
    siglongjmp(msim.escape, 1);
}
