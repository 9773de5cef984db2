/* Faults found in a launch, one entry per kind, place and region, with how often it was seen. */
#include "msim.h"

static void copy_text(char *to, size_t capacity, const char *from) {
    size_t n = from ? strlen(from) : 0;
    if (n >= capacity) n = capacity - 1;
    if (n) memcpy(to, from, n);
    to[n] = 0;
}

enum { KIND_SHARE = 8 }; /* a flood of one kind fills at most this fraction of the table */

/* The entry to fill in when this fault is new; NULL when it was seen before or the table is full. */
msim_event *msim_add_event(uint32_t kind, uint32_t site, uint32_t region, uint32_t line, const char *place) {
    msim_launch *launch = msim.launch;
    uint32_t of_kind = 0;
    for (uint32_t i = 0; i < launch->event_count; i++) {
        msim_event *event = &launch->events[i];
        if (event->kind == kind && event->site == site && event->region == region && event->line == line) {
            event->count++;
            return NULL;
        }
        of_kind += event->kind == kind;
    }
    if (of_kind >= launch->event_capacity / KIND_SHARE || launch->event_count == launch->event_capacity) return NULL;
    msim_event *event = &launch->events[launch->event_count++];
    memset(event, 0, sizeof *event);
    event->kind = kind;
    event->site = site;
    event->other_site = NO_INDEX;
    event->region = region;
    event->line = line;
    event->count = 1;
    event->group = event->other_group = msim.group;
    event->thread = msim.current ? msim.current->thread : 0;
    event->other_thread = NO_INDEX;
    copy_text(event->place, sizeof event->place, place);
    const msim_region *named = region < msim.buffer_count ? &msim.buffers[region] : NULL;
    if (region >= ARRAY_INDEX_BASE && region - ARRAY_INDEX_BASE < msim.array_count)
        named = &msim.arrays[region - ARRAY_INDEX_BASE];
    if (named) {
        copy_text(event->text, sizeof event->text, named->name);
        event->region_bytes = named->bytes;
        event->region_element_bytes = named->element_bytes;
    }
    return event;
}

/* Values that show in results: NaN in every float format about half of the time, else random bits. */
void msim_fill_poison(void *data, uint64_t bytes, uint64_t salt) {
    if (msim.launch->unwritten_byte < 0x100) {
        memset(data, (int)msim.launch->unwritten_byte, bytes);
        return;
    }
    uint64_t x = msim.launch->seed * 0x9e3779b97f4a7c15u + salt * 0xbf58476d1ce4e5b9u + 1;
    uint8_t *out = data;
    for (uint64_t i = 0; i < bytes; i += 8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        /* Random bits would look like the mark of a NaN that was born. */
        uint64_t word = (x & 1) || msim.launch->traced ? 0x7fff7fff7fff7fffu : x;
        memcpy(out + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}
