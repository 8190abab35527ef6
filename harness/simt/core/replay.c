/* Replays sector traces through a sectored LRU cache with 128-byte lines. */
#include "simt.h"

typedef struct {
    uint64_t *ways; /* most recent first: (line + 1) << 4 | valid sectors */
    int64_t sets;
    int associativity;
} Cache;

/* Who of an SM asked for a sector that its L1 lacked, and in which turn of the replay, from 1. */
typedef struct {
    uint32_t sector, instruction, warp, turn;
} Fetch;

#define LATEST_FETCHES 65536 /* what was asked for long before is no longer on its way */

static bool open_cache(Cache *cache, int64_t bytes, int associativity) {
    cache->associativity = associativity;
    cache->sets = bytes / 128 / associativity;
    if (cache->sets < 1) cache->sets = 1;
    cache->ways = calloc((size_t)(cache->sets * associativity), sizeof *cache->ways);
    return cache->ways != NULL;
}

/* True when the sector was there. Without `allocate` a missing sector stays missing. */
static bool look_up(Cache *cache, uint64_t sector, bool allocate) {
    uint64_t line = sector / LINE_SECTORS, bit = UINT64_C(1) << (sector % LINE_SECTORS);
    uint64_t hash = line * UINT64_C(0x9E3779B97F4A7C15) >> 20;
    uint64_t *set = cache->ways + cache->associativity * (int64_t)(hash % (uint64_t)cache->sets);
    int way = 0;
    while (way < cache->associativity && set[way] >> 4 != line + 1) way++;
    bool known = way < cache->associativity;
    if (!known && !allocate) return false;
    uint64_t entry = known ? set[way] : (line + 1) << 4;
    bool hit = known && entry & bit;
    if (allocate) entry |= bit;
    if (!known) way = cache->associativity - 1; /* the least recent goes */
    for (; way > 0; way--) set[way] = set[way - 1];
    set[0] = entry;
    return hit;
}

/* Adds a line unless it is there; returns how many there are. */
static int add_line(uint32_t *lines, int count, uint32_t line) {
    for (int i = count; i-- > 0;)
        if (lines[i] == line) return count;
    lines[count] = line;
    return count + 1;
}

/* One request of each warp in turn; `starts` and `ends` delimit the warps' records in `trace`.
   Loads allocate; stores, atomics and loads past the L1 go on to the L2. Returns the number of misses, -1 when
   memory is short. Misses: sector | 1 << 31 for a store or atomic, at most `capacity` kept; `missed_by`:
   the instruction of each. `lines`, of loads, two numbers an instruction: the 128-byte lines of its
   requests, and those of which the L1 lacked something. `flights`, two numbers an instruction: the
   sectors that another load of another warp has asked for since this warp was last here, and that
   load (of several, one that mostly has). */
int64_t simt_replay_l1(const uint32_t *trace, int64_t warp_count, const int64_t *starts,
                       const int64_t *ends, int64_t bytes, int associativity, int64_t *sectors,
                       int64_t *hits, int64_t *lines, uint32_t *misses, uint32_t *missed_by,
                       int64_t capacity, int64_t instructions, int64_t *flights) {
    Cache cache;
    int64_t *at = malloc((size_t)(warp_count + 1) * sizeof *at), missed = 0;
    uint32_t *here = calloc((size_t)(warp_count * instructions + 1), sizeof *here), turn = 0;
    int64_t *votes = calloc((size_t)instructions + 1, sizeof *votes);
    Fetch *fetches = calloc(LATEST_FETCHES, sizeof *fetches);
    if (!open_cache(&cache, bytes, associativity) || !at || !here || !votes || !fetches) {
        free(at), free(here), free(votes), free(fetches), free(cache.ways);
        return -1;
    }
    memcpy(at, starts, (size_t)warp_count * sizeof *at);
    for (bool running = true; running;) {
        running = false;
        turn++;
        for (int64_t warp = 0; warp < warp_count; warp++) {
            if (at[warp] >= ends[warp]) continue;
            running = true;
            const uint32_t *record = trace + at[warp];
            int count = (int)(record[3] & 255);
            bool writes = record[3] >> 8 & 3, past = record[3] >> 10 & 1;
            uint32_t asked[LANES], lacked[LANES];
            int asked_count = 0, lacked_count = 0;
            for (int i = 0; i < count; i++) {
                uint32_t sector = record[4 + i];
                sectors[record[2]]++;
                bool hit = !past && look_up(&cache, sector, !writes);
                Fetch *fetch = &fetches[sector * UINT64_C(0x9E3779B97F4A7C15) >> 48];
                bool under_way = fetch->sector == sector &&
                                 fetch->turn > here[warp * instructions + record[2]];
                if (!writes && under_way && fetch->instruction != record[2] && fetch->warp != warp) {
                    int64_t *flight = flights + 2 * (int64_t)record[2], *vote = votes + record[2];
                    flight[0]++;
                    if (*vote <= 0) flight[1] = fetch->instruction;
                    *vote += flight[1] == fetch->instruction ? 1 : -1;
                }
                if (!hit && !writes && !under_way)
                    *fetch = (Fetch){sector, record[2], (uint32_t)warp, turn};
                asked_count = add_line(asked, asked_count, sector / LINE_SECTORS);
                if (!hit) lacked_count = add_line(lacked, lacked_count, sector / LINE_SECTORS);
                if (hit && !writes) hits[record[2]]++;
                else if (missed++ < capacity) {
                    misses[missed - 1] = sector | (writes ? UINT32_C(1) << 31 : 0);
                    missed_by[missed - 1] = record[2];
                }
            }
            if (!writes) {
                lines[2 * (int64_t)record[2]] += asked_count;
                lines[2 * (int64_t)record[2] + 1] += lacked_count;
            }
            here[warp * instructions + record[2]] = turn;
            at[warp] += 4 + count;
        }
    }
    free(cache.ways), free(at), free(here), free(votes), free(fetches);
    return missed < capacity ? missed : capacity;
}

/* For each sector that a load asks for, the load and the last one of its warp that asked for the same
   (or UINT32_MAX), at most `capacity` of them; `starts` and `ends` as above. Returns how many, or -1
   when memory is short. */
int64_t simt_trace_echoes(const uint32_t *trace, int64_t warp_count, const int64_t *starts,
                          const int64_t *ends, uint32_t *loads, uint32_t *before,
                          int64_t capacity) {
    int64_t longest = 1, found = 0;
    for (int64_t warp = 0; warp < warp_count; warp++)
        if (ends[warp] - starts[warp] > longest) longest = ends[warp] - starts[warp];
    uint64_t slots = 2;
    while (slots < 2 * (uint64_t)longest) slots *= 2;
    uint32_t *sectors = malloc(slots * sizeof *sectors), *last = malloc(slots * sizeof *last);
    for (int64_t warp = 0; sectors && last && warp < warp_count; warp++) {
        memset(sectors, 0xff, slots * sizeof *sectors);
        for (int64_t at = starts[warp]; at < ends[warp];) {
            int count = (int)(trace[at + 3] & 255);
            for (int i = 0; i < count && !(trace[at + 3] >> 8 & 3) && found < capacity; i++) {
                uint32_t sector = trace[at + 4 + i];
                uint64_t slot = sector * UINT64_C(0x9E3779B97F4A7C15) >> 20 & (slots - 1);
                while (sectors[slot] != UINT32_MAX && sectors[slot] != sector)
                    slot = (slot + 1) & (slots - 1);
                loads[found] = trace[at + 2];
                before[found++] = sectors[slot] == sector ? last[slot] : UINT32_MAX;
                sectors[slot] = sector, last[slot] = trace[at + 2];
            }
            at += 4 + count;
        }
    }
    bool complete = sectors && last;
    free(sectors), free(last);
    return complete ? found : -1;
}

/* How scattered the requests of a trace are, three numbers an instruction: sectors, 64-byte units,
   and the places 256 bytes wide of those requests that go to more than four. */
void simt_trace_shape(const uint32_t *trace, int64_t length, int64_t *results) {
    for (int64_t at = 0; at < length;) {
        int count = (int)(trace[at + 3] & 255), units = 0, places = 0;
        int64_t *found = results + 3 * (int64_t)trace[at + 2];
        for (int i = 0; i < count; i++) {
            uint32_t sector = trace[at + 4 + i];
            bool new_unit = true, new_place = true;
            for (int j = 0; j < i; j++) {
                uint32_t other = trace[at + 4 + j];
                if (other >> 1 == sector >> 1) new_unit = false;
                if (other >> 3 == sector >> 3) new_place = false;
            }
            units += new_unit;
            places += new_place;
        }
        found[0] += count;
        found[1] += units;
        found[2] += places > 4 ? places : 0;
        at += 4 + count;
    }
}

/* Start of every warp's records in a copy of the trace sorted by (block, warp), order kept.
   `keys` lists the (block, warp) pairs in the order wanted, as block << 32 | warp. */
int64_t simt_index_trace(const uint32_t *trace, int64_t length, const uint64_t *keys,
                         int64_t key_count, uint32_t *sorted, int64_t *starts, int64_t *ends) {
    int64_t written = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t at = 0; at < length;) {
            int64_t size = 4 + (trace[at + 3] & 255), low = 0, high = key_count;
            uint64_t key = (uint64_t)trace[at] << 32 | trace[at + 1];
            while (low < high) { /* keys ascend */
                int64_t middle = (low + high) / 2;
                if (keys[middle] < key) low = middle + 1;
                else high = middle;
            }
            if (low < key_count && keys[low] == key) {
                if (pass) memcpy(sorted + ends[low], trace + at, (size_t)size * sizeof *trace);
                ends[low] += size;
                written += pass ? size : 0;
            }
            at += size;
        }
        if (pass) break;
        int64_t position = 0; /* turn lengths into places */
        for (int64_t i = 0; i < key_count; i++) {
            int64_t size = ends[i];
            starts[i] = ends[i] = position;
            position += size;
        }
    }
    return written;
}
