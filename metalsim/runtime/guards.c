/* Hooks for what is no access of shared memory: a thread's own arrays, constant tables, divisions, indices. */
#include "msim.h"

static void check_own(uintptr_t address, uint32_t bytes, uint32_t site, uintptr_t base, uint64_t size, uint32_t access) {
    if (!msim.current || (address - base < size && bytes <= size - (address - base))) return;
    msim_event *event = msim_add_event(EVENT_ARRAY_INDEX, site, NO_INDEX, 0, "");
    if (event) {
        event->access = access;
        event->bytes = bytes;
        event->offset = (int64_t)(address - base);
    }
    msim_stop(); /* beside the array lies the thread's stack: going on would corrupt the simulation */
}

void msim_own_load(const void *address, uint32_t bytes, uint32_t site, const void *base, uint64_t size) {
    check_own((uintptr_t)address, bytes, site, (uintptr_t)base, size, ACCESS_LOAD);
}

void msim_own_store(void *address, uint32_t bytes, uint32_t site, const void *base, uint64_t size) {
    check_own((uintptr_t)address, bytes, site, (uintptr_t)base, size, ACCESS_STORE);
}

/* The division that follows; the only other one that faults is that of the smallest integer by -1. */
void msim_divisor(int64_t divisor, uint32_t site) {
    msim.last_site = site;
    if (divisor || !msim.current) return;
    msim_event *event = msim_add_event(EVENT_FAULT, site, NO_INDEX, 0, "");
    if (event) event->access = 1;
    msim_stop();
}

void msim_index_site(uint32_t site) { msim.last_site = site; }

/* Whether bits of one of the four formats are the pattern that fills what was never written. */
static bool is_pattern(const char *element, uint32_t format) {
    uint64_t bits = 0;
    memcpy(&bits, element, format == 0 ? 4 : format == 3 ? 8 : 2);
    switch (format) {
    case 0: return (bits >> 16 & 0x7fff) == 0x7fff;
    case 1: return (bits & 0x7ff8) == 0x7ff8;
    case 2: return (bits & 0x7fff) == 0x7fff;
    default: return (bits >> 45 & 0x3ffff) == 0x3ffff;
    }
}

/* Floating-point numbers were stored: does an output now hold what was never written? */
void msim_kept(const void *address, uint32_t bytes, uint32_t format, uint32_t site) {
    if (!msim.current) return;
    uint32_t step = format == 0 ? 4 : format == 3 ? 8 : 2;
    for (uint32_t at = 0; at + step <= bytes; at += step) {
        if (!is_pattern((const char *)address + at, format)) continue;
        uintptr_t where = (uintptr_t)address + at;
        msim_region *region = msim_mapped_region(where);
        if (!region || region->threadgroup || region->role == ROLE_INPUT || region->role == ROLE_CONSTANT) return;
        msim_event *event = msim_add_event(EVENT_UNINITIALIZED_VALUE, site, region->index, 0, "");
        if (event) event->offset = (int64_t)(where - region->base);
    }
}
