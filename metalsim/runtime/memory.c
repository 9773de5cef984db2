/* Buffers with red zones, threadgroup arrays, and which of them an address belongs to. */
#define _GNU_SOURCE
#include "msim.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/mman.h>

extern void msim_entry(void);

/* Every buffer lies in a slot of its own, so that a far out-of-range address still tells its buffer. */
static uintptr_t slots;
static uint64_t slot_bytes;
static uint64_t slot_lead_bytes;
static msim_region kernel_image = {.role = ROLE_CONSTANT, .index = NO_INDEX};

static bool reserve_slots(uint64_t largest_bytes, uint32_t count) {
    const uint64_t leads[] = {64u << 20, 4u << 20, 2 * RED_ZONE_BYTES};
    for (int i = 0; i < 3; i++) {
        slot_lead_bytes = leads[i];
        slot_bytes = (largest_bytes + 2 * slot_lead_bytes + 0xffff) & ~(uint64_t)0xffff;
        void *all = mmap(NULL, slot_bytes * count, PROT_NONE, MAP_PRIVATE | MAP_ANON | MAP_NORESERVE, -1, 0);
        if (all != MAP_FAILED) {
            slots = (uintptr_t)all;
            return true;
        }
    }
    return false;
}

static bool map_shadow(msim_region *region, uint32_t granule) {
    if (region->cells) munmap(region->cells, region->cell_bytes);
    region->granule = granule & -granule;
    region->granule_shift = (uint32_t)__builtin_ctz(granule);
    granule = region->granule;
    region->cell_bytes = (region->bytes / granule + 1) * sizeof(msim_cell);
    void *cells = mmap(NULL, region->cell_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON | MAP_NORESERVE, -1, 0);
    region->cells = cells == MAP_FAILED ? NULL : cells;
    return region->cells != NULL;
}

bool msim_map_buffers(void) {
    msim_launch *launch = msim.launch;
    uint64_t largest = 0;
    for (uint32_t i = 0; i < launch->buffer_count; i++)
        if (launch->buffers[i].bytes > largest) largest = launch->buffers[i].bytes;
    msim.buffer_count = launch->buffer_count;
    msim.array_count = 0;
    memset(msim.buffers, 0, sizeof msim.buffers);
    memset(msim.arrays, 0, sizeof msim.arrays);
    if (launch->buffer_count && !reserve_slots(largest, launch->buffer_count)) return false;
    for (uint32_t i = 0; i < launch->buffer_count; i++) {
        const msim_buffer_spec *spec = &launch->buffers[i];
        msim_region *region = &msim.buffers[i];
        uintptr_t start = slots + i * slot_bytes + slot_lead_bytes;
        uint64_t mapped = (spec->bytes + 2 * RED_ZONE_BYTES + 0xffff) & ~(uint64_t)0xffff;
        if (mprotect((void *)(start - RED_ZONE_BYTES), mapped, PROT_READ | PROT_WRITE) != 0) return false;
        memset((void *)(start - RED_ZONE_BYTES), 0xff, mapped); /* NaN in every float format */
        if (spec->bytes) memcpy((void *)start, spec->data, spec->bytes);
        region->base = start;
        region->bytes = spec->bytes;
        region->element_bytes = spec->element_bytes;
        region->role = spec->role;
        region->index = i;
        bool output = spec->role == ROLE_OUTPUT || spec->role == ROLE_INITIALIZED_OUTPUT;
        region->readable = launch->checked && !output;
        if (launch->checked && output && !map_shadow(region, spec->element_bytes)) return false;
    }
    msim.site_region = calloc(launch->site_count + 1, sizeof *msim.site_region);
    msim.group_starts = calloc(launch->group_count + 1, sizeof *msim.group_starts);
    return msim.site_region && msim.group_starts;
}

void msim_unmap_buffers(void) {
    for (uint32_t i = 0; i < msim.buffer_count; i++)
        if (msim.buffers[i].cells) munmap(msim.buffers[i].cells, msim.buffers[i].cell_bytes);
    for (uint32_t i = 0; i < msim.array_count; i++)
        if (msim.arrays[i].cells) munmap(msim.arrays[i].cells, msim.arrays[i].cell_bytes);
    if (slots) munmap((void *)slots, slot_bytes * msim.buffer_count);
    free(msim.site_region);
    free(msim.group_starts);
    msim.site_region = NULL;
    msim.group_starts = NULL;
    msim.buffer_count = msim.array_count = 0;
    slots = 0;
}

void msim_copy_outputs(void) {
    for (uint32_t i = 0; i < msim.buffer_count; i++) {
        const msim_buffer_spec *spec = &msim.launch->buffers[i];
        bool output = spec->role == ROLE_OUTPUT || spec->role == ROLE_INITIALIZED_OUTPUT;
        if (output && spec->bytes) memcpy(spec->data, (void *)msim.buffers[i].base, spec->bytes);
    }
}

void msim_report_unwritten(void) {
    for (uint32_t i = 0; i < msim.buffer_count; i++) {
        msim_region *region = &msim.buffers[i];
        if (region->role != ROLE_OUTPUT || !region->cells) continue;
        uint64_t missing = 0, first = 0;
        for (uint64_t cell = 0; cell < region->bytes / region->granule; cell++)
            if (!region->cells[cell].write.time && !missing++) first = cell * region->granule;
        msim_event *event = missing ? msim_add_event(EVENT_UNWRITTEN_OUTPUT, NO_INDEX, i, 0, "") : NULL;
        if (!event) continue;
        event->offset = (int64_t)first;
        event->count = missing * region->granule / region->element_bytes;
    }
}

void *msim_buffer(uint32_t index) { return (void *)msim.buffers[index].base; }

msim_u64 msim_threadgroup_length(uint32_t index) { return msim.launch->threadgroup_lengths[index]; }

/* A kernel thread reached the declaration of a threadgroup array. */
void msim_declare(const void *array, uint64_t bytes, uint32_t element_bytes, const char *name) {
    msim_region *region = NULL;
    for (uint32_t i = 0; i < msim.array_count && !region; i++)
        if (msim.arrays[i].base == (uintptr_t)array) region = &msim.arrays[i];
    if (!region) {
        if (msim.array_count == MAX_ARRAYS) {
            msim_add_event(EVENT_TOO_MANY_ARRAYS, NO_INDEX, NO_INDEX, 0, "");
            msim_stop();
        }
        region = &msim.arrays[msim.array_count];
        region->base = (uintptr_t)array;
        region->bytes = bytes;
        region->element_bytes = element_bytes;
        region->role = ROLE_OUTPUT;
        region->threadgroup = true;
        region->index = ARRAY_INDEX_BASE + msim.array_count++;
        strncpy(region->name, name, sizeof region->name - 1);
        region->shadowed = msim.launch->checked && map_shadow(region, element_bytes);
    }
    if (region->poisoned_group != msim.group_stamp) {
        region->poisoned_group = msim.group_stamp;
        msim_fill_poison((void *)region->base, bytes, msim.group * MAX_ARRAYS + region->index);
        msim.counts->threadgroup_bytes += bytes;
    }
}

static uint64_t distance_to(const msim_region *region, uintptr_t address) {
    if (address < region->base) return region->base - address;
    uintptr_t end = region->base + region->bytes;
    return address < end ? 0 : address - end + 1;
}

/* The region that the address lies in or next to (within its red zones), NULL when there is none. */
static msim_region *region_of(uintptr_t address, uint64_t reach) {
    if (slots && address - slots < slot_bytes * msim.buffer_count) {
        msim_region *region = &msim.buffers[(address - slots) / slot_bytes];
        return distance_to(region, address) <= reach ? region : NULL;
    }
    msim_region *best = NULL;
    for (uint32_t i = 0; i < msim.array_count; i++) {
        uint64_t distance = distance_to(&msim.arrays[i], address);
        if (distance <= reach && (!best || distance < distance_to(best, address))) best = &msim.arrays[i];
    }
    return best;
}

msim_region *msim_mapped_region(uintptr_t address) { return region_of(address, 0); }

static bool in_kernel_image(uintptr_t address) {
    Dl_info ours, theirs;
    return dladdr((void *)(uintptr_t)msim_entry, &ours) && dladdr((void *)address, &theirs) &&
           ours.dli_fbase == theirs.dli_fbase;
}

/* The buffer whose element the address would be if an unsigned 32-bit index had wrapped below zero. */
static msim_region *wrapped_index_region(uintptr_t address) {
    const uint64_t wrap = (uint64_t)1 << 32, reach = 1 << 20;
    for (uint32_t i = 0; i < msim.buffer_count; i++) {
        msim_region *region = &msim.buffers[i];
        uint64_t index = (address - region->base) / region->element_bytes;
        if (address > region->base && index < wrap && index >= wrap - reach) return region;
    }
    return NULL;
}

static void report_far(msim_region *region, uintptr_t address, uint32_t bytes, uint32_t site, uint32_t access) {
    uint32_t kind = region ? EVENT_OUT_OF_RANGE : EVENT_WILD_ACCESS;
    msim_event *event = msim_add_event(kind, site, region ? region->index : NO_INDEX, 0, "");
    if (!event) return;
    event->access = access;
    event->bytes = bytes;
    event->offset = region ? (int64_t)(address - region->base) : (int64_t)address;
}

/* Region of an access; reports and ends the launch when the access would leave all mapped memory. */
msim_region *msim_find_region(uintptr_t address, uint32_t bytes, uint32_t site, uint32_t access) {
    if (msim.overdue) msim_give_up(site);
    const uint32_t *known = msim.launch->site_buffers;
    msim_region *region = known && known[site] != NO_INDEX ? &msim.buffers[known[site]] : NULL;
    if (region && distance_to(region, address) > RED_ZONE_BYTES - bytes) {
        report_far(region, address, bytes, site, access);
        msim_stop();
    }
    if (!region) region = region_of(address, RED_ZONE_BYTES - bytes);
    if (region) {
        msim.site_region[site] = region;
        return region;
    }
    if (access == ACCESS_LOAD && in_kernel_image(address)) return &kernel_image;
    region = msim.site_region[site];
    if (!region || region == &kernel_image) region = wrapped_index_region(address);
    if (!region) region = region_of(address, UINT64_MAX);
    if (region && region->threadgroup && distance_to(region, address) > (1u << 24)) region = NULL;
    report_far(region, address, bytes, site, access);
    msim_stop();
}

/* Whether the address is thread memory; another thread's stack ends the launch. */
bool msim_in_stacks(uintptr_t address, uint32_t bytes, uint32_t site, uint32_t access) {
    if (address - msim.stacks_low >= msim.stacks_high - msim.stacks_low) return false;
    msim_thread *thread = msim.current;
    if (address >= thread->stack_low && address + bytes <= thread->stack_high) return true;
    report_far(NULL, address, bytes, site, access);
    msim_stop();
}
