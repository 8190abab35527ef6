/* Shared memory: bounds, bank conflicts as wavefronts, uninitialised reads, races across warps. */
#include "simt.h"

#define BANKS 32

/* Distinct chunks on the busiest bank group, for the lanes given: a wavefront serves each group
   one chunk, and lanes of one chunk share it. Adds the number of distinct chunks to `distinct`. */
static int busiest_bank(LaneMask lanes, const uint64_t *addresses, int words, int chunk_shift,
                        int *distinct) {
    int groups = BANKS * 4 >> chunk_shift, busiest = 0;
    uint64_t first[BANKS], extra[LANES * 8];
    uint8_t load[BANKS] = {0};
    int extras = 0;
    FOR_EACH_LANE(lane, lanes) {
        for (int word = 0; word < words; word++) {
            uint64_t chunk = (addresses[lane] >> chunk_shift) + (uint64_t)word;
            int group = (int)(chunk & (uint64_t)(groups - 1));
            if (!load[group]) {
                first[group] = chunk;
            } else {
                bool known = first[group] == chunk;
                for (int i = 0; i < extras && !known; i++) known = extra[i] == chunk;
                if (known) continue;
                extra[extras++] = chunk;
            }
            (*distinct)++;
            if (++load[group] > busiest) busiest = load[group];
        }
    }
    return busiest;
}

/* 4 bytes a lane: the whole warp at once. 8 and 16 bytes: one half-warp after the other, so that
   even a broadcast takes two wavefronts (measured on an H200). */
static void count_wavefronts(Counter *counter, LaneMask lanes, const uint64_t *addresses,
                             int bytes) {
    int phases = bytes > 4 ? 2 : 1, words = bytes > 4 ? bytes / 4 : 1;
    for (int phase = 0; phase < phases; phase++) {
        LaneMask part = phases == 1 ? lanes : lanes & (phase ? 0xffff0000u : 0xffffu);
        if (!part) continue;
        int distinct = 0;
        counter->shared_wavefronts += busiest_bank(part, addresses, words, 2, &distinct);
        counter->shared_wavefronts_ideal += (distinct + BANKS - 1) / BANKS;
    }
    if (bytes != 4) return;
    /* ptxas merges neighbouring scalar loads: what a lane's part of a wider load would cost. */
    int ignored = 0;
    counter->shared_wavefronts_64 += busiest_bank(lanes, addresses, 1, 3, &ignored);
    if (lanes & 0xffffu)
        counter->shared_wavefronts_128 +=
            busiest_bank(lanes & 0xffffu, addresses, 1, 4, &ignored);
    if (lanes & 0xffff0000u)
        counter->shared_wavefronts_128 +=
            busiest_bank(lanes & 0xffff0000u, addresses, 1, 4, &ignored);
}

/* Atomics: lanes on one bank take turns even on one address, a wavefront each. `atomic_turns` is
   the most lanes on one address: the turns of a compare-and-swap loop. */
static void count_atomic(Counter *counter, LaneMask lanes, const uint64_t *addresses) {
    int banks[BANKS] = {0}, busiest = 0, most = 0;
    FOR_EACH_LANE(lane, lanes) {
        int same = 0, bank = (int)(addresses[lane] >> 2) & (BANKS - 1);
        if (++banks[bank] > busiest) busiest = banks[bank];
        FOR_EACH_LANE(other, lanes) same += addresses[other] == addresses[lane];
        if (same > most) most = same;
    }
    counter->atomic_lanes += __builtin_popcount(lanes);
    counter->atomic_turns += most;
    counter->shared_wavefronts += busiest;
    counter->shared_wavefronts_ideal++;
}

LaneMask shared_access(Block *block, const Warp *warp, const Instruction *row, int pc,
                       LaneMask lanes, const uint64_t *addresses, int bytes, Access access) {
    Machine *machine = block->machine;
    Counter *counter = &machine->counters[pc];
    uint64_t size = (uint64_t)machine->shared_bytes;
    LaneMask allowed = lanes;
    counter->shared_requests++;
    if (access == ACCESS_ATOMIC) count_atomic(counter, lanes, addresses);
    /* Neighbours or one address for all: free of conflicts. */
    if (bytes <= 4 && access != ACCESS_ATOMIC) {
        uint64_t first = addresses[__builtin_ctz(lanes)], all = 0, largest = 0, differ = 0, gaps = 0;
        for (int lane = 0; lane < LANES; lane++) {
            uint64_t address = lanes >> lane & 1 ? addresses[lane] : first;
            all |= address;
            largest = address > largest ? address : largest;
            differ |= address ^ first;
            gaps |= addresses[lane] ^ (addresses[0] + 4 * (uint64_t)lane);
        }
        bool regular = !differ || (lanes == ALL_LANES && !gaps);
        if (regular && !(all & (uint64_t)(bytes - 1)) && largest + (uint64_t)bytes <= size) {
            counter->shared_wavefronts++;
            counter->shared_wavefronts_ideal++;
            if (bytes < 4) return allowed; /* only whole words are ever merged */
            /* 32 words from an odd one on touch 17 pairs, two of them on one pair of banks. */
            counter->shared_wavefronts_64 += differ && first & 4 ? 2 : 1;
            counter->shared_wavefronts_128 += !!(lanes & 0xffffu) + !!(lanes & 0xffff0000u);
            return allowed;
        }
    }
    int detail = access == ACCESS_LOAD ? DETAIL_READ : DETAIL_WRITE;
    FOR_EACH_LANE(lane, lanes) {
        uint64_t address = addresses[lane];
        int kind = address + (uint64_t)bytes > size || address > size ? KIND_OUT_OF_BOUNDS
                   : address & (uint64_t)(bytes - 1)                  ? KIND_MISALIGNED
                                                                      : -1;
        if (kind < 0) continue;
        allowed &= ~(UINT32_C(1) << lane);
        report(block, kind, pc, warp, lane, address, SPACE_SHARED, detail, -1, -1);
    }
    if (allowed && access != ACCESS_ATOMIC) count_wavefronts(counter, allowed, addresses, bytes);
    return allowed;
}

/* Another warp that read or wrote a word and has not been waited for, or -1. Where barriers join
   only part of a block, what each warp knows of each other decides, else `epoch_start`. */
static int other_reader(const Block *block, uint64_t word, int warp) {
    const uint32_t *times = block->shared_reads + word * (uint64_t)block->warp_count;
    for (int other = 0; other < block->warp_count; other++)
        if (other != warp && times[other] && times[other] >= block->known[warp][other]) return other;
    return -1;
}

static uint32_t seen_until(const Block *block, int warp, int other) {
    return block->shared_reads && other >= 0 ? block->known[warp][other] : block->epoch_start;
}

void shared_shadow(Block *block, const Warp *warp, const Instruction *row, int pc, LaneMask lanes,
                   const uint64_t *addresses, int bytes, Access access,
                   const uint8_t (*values)[32]) {
    int warp_number = (int)(warp->first_thread / LANES);
    uint32_t epoch = block->epoch_start, now = block->machine->clock;
    bool strong = row->flags & FLAG_STRONG, atomic = access == ACCESS_ATOMIC;
    bool exchanged = access == ACCESS_LOAD && row->flags & FLAG_EXCHANGED;
    FOR_EACH_LANE(lane, lanes) {
        for (int done = 0; done < bytes;) {
            uint64_t here = addresses[lane] + (uint64_t)done;
            int start = (int)(here & 3), count = 4 - start < bytes - done ? 4 - start : bytes - done;
            uint8_t part = (uint8_t)(((1 << count) - 1) << start);
            SharedShadow *cell = &block->shared_shadow[here >> 2];
            if (access != ACCESS_STORE && (cell->initialised & part) != part)
                report(block, KIND_UNINITIALIZED_READ, pc, warp, lane, here, SPACE_SHARED,
                       DETAIL_READ, -1, -1);
            bool after_write =
                cell->writer_warp != warp_number && cell->written_bytes & part &&
                cell->writer_time >= seen_until(block, warp_number, cell->writer_warp) &&
                !((atomic || exchanged) && cell->atomic);
            int reader = cell->reader_warp;
            bool after_read;
            if (block->shared_reads) {
                if (access != ACCESS_LOAD) reader = other_reader(block, here >> 2, warp_number);
                after_read = reader >= 0 && cell->read_bytes & part;
            } else {
                after_read = cell->reader_time >= epoch && reader != warp_number &&
                             cell->read_bytes & part;
            }
            int detail = DETAIL_NONE;
            if (after_write)
                detail = access == ACCESS_LOAD ? DETAIL_READ_AFTER_WRITE : DETAIL_WRITE_AFTER_WRITE;
            else if (after_read && access != ACCESS_LOAD)
                detail = DETAIL_WRITE_AFTER_READ;
            if (detail != DETAIL_NONE && !strong) {
                bool same = access == ACCESS_STORE &&
                            !memcmp(block->shared + here, values[lane] + done, (size_t)count);
                report(block, same ? KIND_RACE_BENIGN : KIND_RACE, pc, warp, lane, here,
                       SPACE_SHARED, detail, block->index,
                       after_write ? cell->writer_warp : reader);
            }
            if (access == ACCESS_LOAD && !strong && !exchanged) {
                if (block->shared_reads)
                    block->shared_reads[(here >> 2) * (uint64_t)block->warp_count +
                                        (uint64_t)warp_number] = now;
                bool again = cell->reader_time >= epoch && cell->reader_time;
                cell->read_bytes = again ? cell->read_bytes | part : part;
                cell->reader_warp =
                    again && cell->reader_warp != warp_number ? MANY_WARPS : (int16_t)warp_number;
                cell->reader_time = now;
            }
            if (access != ACCESS_LOAD) {
                bool again = cell->writer_warp == warp_number &&
                             (block->shared_reads || cell->writer_time >= epoch);
                cell->written_bytes = again ? cell->written_bytes | part : part;
                cell->writer_warp = (int16_t)warp_number;
                cell->writer_time = now;
                cell->atomic = atomic || strong;
                cell->initialised |= part;
            }
            done += count;
        }
    }
}
