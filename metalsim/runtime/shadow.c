/* Data races and uninitialized reads, by a record of the last accesses to every element.
 *
 * Every access carries the time of the last memory-ordering barrier. Two accesses of one threadgroup
 * are ordered when a threadgroup_barrier for that memory, or a simdgroup_barrier of their common
 * SIMD-group, lies between them; accesses of two threadgroups never are.
 */
#define _GNU_SOURCE
#include "msim.h"
#include <sys/mman.h>

/* Ordinal from 1 of the threadgroup that made an access. */
static uint32_t group_of(const msim_record *record) {
    uint32_t low = 0, high = msim.group_stamp;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (msim.group_starts[middle] <= record->time) low = middle;
        else high = middle;
    }
    return low + 1;
}

static inline bool unordered(const msim_record *record, bool threadgroup) {
    if (record->time < msim.group_start) return record->time && !threadgroup;
    const msim_thread *thread = msim.current;
    if (record->time < msim.barrier_time[threadgroup] || record->thread == thread->thread) return false;
    bool same_simdgroup = record->thread / SIMD_WIDTH == thread->simdgroup;
    return !(same_simdgroup && record->time < msim.simd_barrier_time[threadgroup][thread->simdgroup]);
}

static void report_race(msim_region *region, const msim_record *other, uint64_t offset, uint32_t site,
                        uint32_t access, uint32_t other_access) {
    uint32_t kind = region->threadgroup ? EVENT_THREADGROUP_RACE : EVENT_DEVICE_RACE;
    msim_event *event = msim_add_event(kind, site, region->index, 0, "");
    if (!event) return;
    event->access = access;
    event->other_access = other->atomic ? ACCESS_ATOMIC : other_access;
    event->offset = (int64_t)offset;
    event->other_site = other->site == UNKNOWN_SITE ? NO_INDEX : other->site;
    event->other_thread = other->thread;
    event->other_group = msim.launch->groups[group_of(other) - 1];
}

static void report_uninitialized(msim_region *region, uint64_t offset, uint32_t site) {
    msim_event *event = msim_add_event(EVENT_UNINITIALIZED_READ, site, region->index, 0, "");
    if (event) event->offset = (int64_t)offset;
}

/* Keep one reader from each of two SIMD-groups where there are two: then any writer meets a stranger. */
static inline void remember_read(msim_cell *cell, msim_record now, bool threadgroup) {
    msim_record *first = &cell->reads[0], *second = &cell->reads[1];
    if (!unordered(first, threadgroup)) { /* as are the thread's own */
        *first = now;
    } else if (!unordered(second, threadgroup)) {
        *second = now;
    } else if (first->thread / SIMD_WIDTH == second->thread / SIMD_WIDTH &&
               (threadgroup || group_of(first) == group_of(second))) {
        *second = now; /* threadgroup memory: only accesses of one threadgroup are unordered */
    }
}

/* Whether a record of threadgroup memory cannot conflict, where only threadgroup barriers order accesses. */
static inline bool is_past(const msim_record *record, uint32_t thread) {
    return record->time < msim.barrier_time[1] || record->thread == thread;
}

/* An access of threadgroup memory that is no fault, as nearly all are, in few instructions; false for any other. */
static inline __attribute__((always_inline)) bool passes_quickly(msim_region *region, uint64_t offset, uint32_t bytes,
                                                                 uint32_t site, uint32_t access) {
    uint32_t thread = msim.current->thread;
    if ((offset | bytes) & (region->granule - 1) || site >= UNKNOWN_SITE ||
        msim.simd_barrier_time[1][thread / SIMD_WIDTH] > msim.barrier_time[1])
        return false;
    msim_record now = {msim.time, thread, false, site};
    msim_cell *cell = &region->cells[offset >> region->granule_shift];
    for (uint32_t at = 0; at < bytes; at += region->granule, cell++) {
        msim_record *first = &cell->reads[0], *second = &cell->reads[1];
        if (!is_past(&cell->write, thread)) return false;
        if (access == ACCESS_STORE) {
            if (!is_past(first, thread) || !is_past(second, thread)) return false;
            cell->write = now;
            continue;
        }
        if (cell->write.time < msim.group_start) return false;
        if (is_past(first, thread)) *first = now; /* as remember_read */
        else if (is_past(second, thread) || first->thread / SIMD_WIDTH == second->thread / SIMD_WIDTH) *second = now;
    }
    return true;
}

static inline void check_cell(msim_region *region, msim_cell *cell, uint64_t offset, uint32_t site, uint32_t access,
                              bool threadgroup) {
    bool atomic = access == ACCESS_ATOMIC;
    msim_record now = {msim.time, msim.current->thread, atomic, site < UNKNOWN_SITE ? site : UNKNOWN_SITE};
    bool written = cell->write.time >= (threadgroup ? msim.group_start : 1);
    if (access == ACCESS_LOAD && !written && region->role != ROLE_INITIALIZED_OUTPUT)
        report_uninitialized(region, offset, site);
    if (!(atomic && cell->write.atomic) && unordered(&cell->write, threadgroup))
        report_race(region, &cell->write, offset, site, access, ACCESS_STORE);
    if (access == ACCESS_LOAD) {
        remember_read(cell, now, threadgroup);
        return;
    }
    for (int i = 0; i < 2; i++)
        if (!(atomic && cell->reads[i].atomic) && unordered(&cell->reads[i], threadgroup))
            report_race(region, &cell->reads[i], offset, site, access, ACCESS_LOAD);
    cell->write = now;
}

/* An access smaller than the shadow's cells: give every new, smaller cell a copy of its old one. */
static bool refine(msim_region *region, uint32_t granule) {
    msim_cell *old = region->cells;
    uint64_t old_bytes = region->cell_bytes, cells = region->bytes / granule;
    uint64_t bytes = (cells + 1) * sizeof(msim_cell);
    void *fresh = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON | MAP_NORESERVE, -1, 0);
    if (fresh == MAP_FAILED) return false;
    region->cells = fresh;
    region->cell_bytes = bytes;
    for (uint64_t i = 0; i < cells; i++) region->cells[i] = old[i * granule / region->granule];
    munmap(old, old_bytes);
    region->granule = granule;
    region->granule_shift = (uint32_t)__builtin_ctz(granule);
    return true;
}

void msim_check_access(msim_region *region, uint64_t offset, uint32_t bytes, uint32_t site, uint32_t access) {
    if (region->role == ROLE_INPUT || region->role == ROLE_CONSTANT) {
        msim_event *event = access == ACCESS_LOAD ? NULL
                                                  : msim_add_event(EVENT_READONLY_WRITE, site, region->index, 0, "");
        if (event) {
            event->access = access;
            event->offset = (int64_t)offset;
        }
        return;
    }
    if (!region->cells) return;
    if ((offset | bytes) & (region->granule - 1)) {
        uint64_t both = offset | bytes | region->granule;
        if (!refine(region, (uint32_t)(both & -both))) return;
    }
    msim_cell *cell = &region->cells[offset >> region->granule_shift];
    for (uint64_t at = offset; at < offset + bytes; at += region->granule, cell++) {
        if (region->threadgroup) check_cell(region, cell, at, site, access, true);
        else check_cell(region, cell, at, site, access, false);
    }
}
