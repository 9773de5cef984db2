/* Data races and uninitialized reads, by a record of the last accesses to every element.
 *
 * Every access carries the time of the last memory-ordering barrier. Two accesses of one threadgroup
 * are ordered when a threadgroup_barrier for that memory, or a simdgroup_barrier of their common
 * SIMD-group, lies between them; accesses of two threadgroups never are.
 */
#define _GNU_SOURCE
#include "msim.h"
#include <sys/mman.h>

static bool unordered(const msim_record *record, bool threadgroup) {
    if (record->group != msim.group_stamp) return record->group && !threadgroup;
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
    event->other_site = other->site;
    event->other_thread = other->thread;
    event->other_group = msim.launch->groups[other->group - 1];
}

static void report_uninitialized(msim_region *region, uint64_t offset, uint32_t site) {
    msim_event *event = msim_add_event(EVENT_UNINITIALIZED_READ, site, region->index, 0, "");
    if (event) event->offset = (int64_t)offset;
}

static bool by_same_thread(const msim_record *one, const msim_record *other) {
    return one->group == other->group && one->thread == other->thread;
}

/* Keep one reader from each of two SIMD-groups where there are two: then any writer meets a stranger. */
static void remember_read(msim_cell *cell, const msim_record *now, bool threadgroup) {
    msim_record *first = &cell->reads[0], *second = &cell->reads[1];
    if (!unordered(first, threadgroup) || by_same_thread(first, now)) {
        *first = *now;
    } else if (!unordered(second, threadgroup) || by_same_thread(second, now)) {
        *second = *now;
    } else if (first->group == second->group && first->thread / SIMD_WIDTH == second->thread / SIMD_WIDTH) {
        *second = *now;
    }
}

static void check_cell(msim_region *region, msim_cell *cell, uint64_t offset, uint32_t site, uint32_t access) {
    bool atomic = access == ACCESS_ATOMIC, threadgroup = region->threadgroup;
    msim_record now = {msim.time, msim.group_stamp, (uint16_t)msim.current->thread, atomic, site};
    bool written = threadgroup ? cell->write.group == msim.group_stamp : cell->write.group != 0;
    if (access == ACCESS_LOAD && !written && region->role != ROLE_INITIALIZED_OUTPUT)
        report_uninitialized(region, offset, site);
    if (!(atomic && cell->write.atomic) && unordered(&cell->write, threadgroup))
        report_race(region, &cell->write, offset, site, access, ACCESS_STORE);
    if (access == ACCESS_LOAD) {
        remember_read(cell, &now, threadgroup);
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
    for (uint64_t at = offset; at < offset + bytes; at += region->granule)
        check_cell(region, &region->cells[at >> region->granule_shift], at, site, access);
}
