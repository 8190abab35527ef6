/* Shared memory: bounds, bank conflicts as wavefronts, uninitialised reads, races. */
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

static LaneMask lanes_of_part(int part, int parts) {
    return parts == 1 ? ALL_LANES : ((UINT32_C(1) << LANES / parts) - 1) << part * (LANES / parts);
}

/* 4 bytes a lane: the whole warp at once. 8 and 16 bytes: one half-warp after the other, so that
   even a broadcast takes two wavefronts (measured on an H200). What a lane stores of 16 bytes comes
   from the registers by quarters of the warp (ncu's count of mm_wmma_shared's stores). */
static void count_wavefronts(Counter *counter, LaneMask lanes, const uint64_t *addresses,
                             int bytes, bool storing) {
    int parts = bytes <= 4 ? 1 : storing && bytes == 16 ? 4 : 2, words = bytes > 4 ? bytes / 4 : 1;
    for (int part = 0; part < parts; part++) {
        LaneMask some = lanes & lanes_of_part(part, parts);
        if (!some) continue;
        int distinct = 0;
        counter->shared_wavefronts += busiest_bank(some, addresses, words, 2, &distinct);
        counter->shared_wavefronts_ideal += (distinct + BANKS - 1) / BANKS;
    }
    if (bytes != 4) return;
    /* ptxas merges neighbouring scalar accesses: what a lane's part of a wider one would cost. */
    int ignored = 0;
    counter->shared_wavefronts_64 += busiest_bank(lanes, addresses, 1, 3, &ignored);
    parts = storing ? 4 : 2;
    for (int part = 0; part < parts; part++) {
        LaneMask some = lanes & lanes_of_part(part, parts);
        if (some) counter->shared_wavefronts_128 += busiest_bank(some, addresses, 1, 4, &ignored);
    }
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
    /* A count of one for each lane is added up in the warp: an address then takes one turn. */
    int ignored = 0;
    counter->shared_wavefronts_64 += busiest_bank(lanes, addresses, 1, 2, &ignored);
}

static int distinct_pairs(LaneMask lanes, const uint64_t *first, int first_shift,
                          const uint64_t *second, int second_shift) {
    uint64_t found[LANES];
    int count = 0;
    FOR_EACH_LANE(lane, lanes) {
        uint64_t pair = first[lane] >> first_shift << 24 ^ second[lane] >> second_shift;
        bool known = false;
        for (int i = count - 1; i >= 0 && !known; i--) known = found[i] == pair;
        if (!known) found[count++] = pair;
    }
    return count;
}

/* What goes from the L2 straight to shared memory is cut at the sectors of both: each piece is
   fetched by itself, the L1 counts those of one line that end in one sector once. What comes of 64
   bytes is written at once where it stays in one row of the banks. */
void count_copy(Counter *counter, LaneMask lanes, const PendingCopy *copy) {
    const uint64_t *from = copy->global_address, *to = copy->shared_address;
    counter->copy_fetched += distinct_pairs(lanes, from, 5, to, 5);
    counter->copy_sectors += distinct_pairs(lanes, from, 7, to, 5);
    counter->copy_wavefronts += distinct_pairs(lanes, from, 6, to, 7);
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
            for (int part = 0, parts = access == ACCESS_STORE ? 4 : 2; part < parts; part++)
                counter->shared_wavefronts_128 += !!(lanes & lanes_of_part(part, parts));
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
    if (allowed && access != ACCESS_ATOMIC) count_wavefronts(counter, allowed, addresses, bytes, access == ACCESS_STORE);
    return allowed;
}

/* Another warp that read these bytes of a word and has not been waited for, or -1: exact, with
   partial barriers. */
static int other_reader(const Block *block, uint64_t word, uint32_t part, int warp) {
    const WarpRead *reads = block->shared_reads + word * (uint64_t)block->warp_count;
    for (int other = 0; other < block->warp_count; other++)
        if (other != warp && reads[other].bytes & part &&
            reads[other].time >= block->known[warp][other])
            return other;
    return -1;
}

static void note_warp_read(Block *block, const Warp *warp, uint64_t word, uint32_t part) {
    WarpRead *read = block->shared_reads + word * (uint64_t)block->warp_count +
                     warp->first_thread / LANES;
    uint32_t now = block->machine->clock;
    read->bytes = read->time == now ? read->bytes | part : part; /* nobody is accused for the later */
    read->time = now;
}

/* Whom this access races with, or DETAIL_NONE. `pending`: an asynchronous copy into the granule has
   begun and nobody waited for it. */
static int find_conflict(const Block *block, const Warp *warp, const SharedShadow *cell, int lane,
                         int part, Access access, bool volatile_access, bool pending, int *other,
                         int *other_pc) {
    uint32_t epoch = block->epoch_start;
    int thread = (int)warp->first_thread + lane, number = thread / LANES;
    if (cell->writer_time >= epoch || pending) {
        bool same_warp = cell->writer / LANES == number;
        int wrote = same_warp ? byte_writer(cell->byte_writers, cell->latest_bytes, part, lane)
                              : cell->writer % LANES;
        bool touched = same_warp ? wrote >= 0 : (cell->written_bytes & part) != 0;
        bool ordered = same_warp ? lanes_ordered(warp, wrote, lane, cell->writer_time)
                                 : warps_ordered(block, warp, cell->writer / LANES,
                                                 cell->writer_time);
        bool meant = cell->atomic && (access == ACCESS_ATOMIC || (volatile_access && !same_warp));
        *other = touched ? cell->writer / LANES * LANES + wrote : cell->writer;
        *other_pc = cell->writer_pc;
        if (pending && touched) return DETAIL_COPY_PENDING;
        if (touched && !ordered && !meant)
            return access == ACCESS_LOAD ? DETAIL_READ_AFTER_WRITE : DETAIL_WRITE_AFTER_WRITE;
    }
    if (access == ACCESS_LOAD || cell->reader_time < epoch || !(cell->read_bytes & part))
        return DETAIL_NONE;
    *other = cell->reader, *other_pc = cell->reader_pc;
    if (block->shared_reads && !cell->volatile_reader) {
        int reader = other_reader(block, (uint64_t)(cell - block->shared_shadow), (uint32_t)part,
                                  number);
        if (reader >= 0) {
            if (cell->reader / LANES != reader) *other = SEVERAL_LANES | reader;
            return DETAIL_WRITE_AFTER_READ;
        }
        if (cell->reader == SEVERAL_WARPS) return DETAIL_NONE;
    }
    bool same_warp = cell->reader == (SEVERAL_LANES | number) || cell->reader / LANES == number;
    if (same_warp && read_alone(cell->byte_readers, cell->read_bytes, part, lane))
        return DETAIL_NONE;
    if (cell->reader == thread || (cell->volatile_reader && !same_warp)) return DETAIL_NONE;
    bool ordered;
    if (cell->reader == SEVERAL_WARPS) {
        ordered = warps_ordered(block, warp, -1, cell->reader_time);
    } else if (cell->reader & SEVERAL_LANES) {
        int warp_number = cell->reader & ~SEVERAL_LANES;
        ordered = warp_number == number ? lanes_ordered(warp, -1, lane, cell->reader_time)
                                        : warps_ordered(block, warp, warp_number, cell->reader_time);
    } else {
        ordered = cell->reader / LANES == number
                      ? lanes_ordered(warp, cell->reader % LANES, lane, cell->reader_time)
                      : warps_ordered(block, warp, cell->reader / LANES, cell->reader_time);
    }
    return ordered ? DETAIL_NONE : DETAIL_WRITE_AFTER_READ;
}

static inline void note_reader(const Block *block, const Warp *warp, SharedShadow *cell, int lane,
                               int part, int pc, bool is_volatile) {
    uint16_t thread = (uint16_t)(warp->first_thread + (uint32_t)lane);
    uint16_t number = thread / LANES, several = SEVERAL_LANES | number;
    bool same_warp = cell->reader == several || cell->reader / LANES == number;
    bool recent = cell->reader_time >= block->epoch_start && cell->reader_time;
    int before = recent ? cell->read_bytes : 0;
    /* Another warp that read other bytes of the word makes room: a word has one entry. */
    if (recent && cell->reader != thread && (same_warp || before & part)) {
        cell->read_bytes |= part;
        if (!same_warp) {
            if (is_volatile && !cell->volatile_reader) return; /* only its own warp minds it */
            if (is_volatile || cell->volatile_reader || reader_ordered(block, warp, cell->reader,
                                                                       cell->reader_time))
                cell->reader = thread, cell->read_bytes = part;
            else cell->reader = SEVERAL_WARPS;
            renew_byte_readers(cell->byte_readers, part, lane);
        } else if (cell->reader_time >= warp->synchronised) {
            note_byte_readers(cell->byte_readers, before, part, lane);
            cell->reader = several, cell->reader_pc = short_pc(pc);
            return; /* the earlier time stays: nobody is accused for the later */
        } else {
            cell->reader = thread;
            renew_byte_readers(cell->byte_readers, part, lane);
        }
    } else {
        bool again = recent && cell->reader == thread;
        cell->read_bytes = again ? cell->read_bytes | part : part;
        if (again && !is_since_meeting(warp, cell->reader_time))
            renew_byte_readers(cell->byte_readers, part, lane);
        else note_byte_readers(cell->byte_readers, again ? before : 0, part, lane);
        cell->reader = thread;
    }
    cell->volatile_reader = is_volatile;
    cell->reader_time = block->machine->clock;
    cell->reader_pc = short_pc(pc);
}

static void note_writer(const Block *block, const Warp *warp, SharedShadow *cell, int lane, int part,
                        int pc, bool atomic) {
    uint16_t thread = (uint16_t)(warp->first_thread + (uint32_t)lane);
    bool recent = cell->writer_time >= block->epoch_start;
    bool same_warp = recent && cell->writer / LANES == thread / LANES;
    bool same_time = cell->writer_time == block->machine->clock && cell->atomic == atomic;
    cell->latest_bytes = note_byte_writers(cell->byte_writers, same_warp ? cell->latest_bytes : 0,
                                           same_time, is_since_meeting(warp, cell->writer_time),
                                           part, lane);
    bool at_once = same_warp && (same_time || !is_known_in_part(block));
    cell->written_bytes = at_once ? cell->written_bytes | part : part;
    cell->writer = thread;
    cell->writer_pc = short_pc(pc);
    cell->writer_time = block->machine->clock;
    cell->atomic = atomic;
}

/* Iterates the granules of four bytes that a lane's access touches. */
#define FOR_EACH_GRANULE(address, bytes)                                                 \
    for (int done = 0, count, part; done < (bytes); done += count)                       \
        for (uint64_t here = (address) + (uint64_t)done, start = here & 3, once = 1;     \
             once && (count = 4 - (int)start < (bytes) - done ? 4 - (int)start : (bytes) - done, \
                      part = ((1 << count) - 1) << start, true);                         \
             once = 0)

/* Loads of whole words that nobody else touched in this epoch: only the readers are noted. Returns
   the lanes that need a closer look. */
static LaneMask quick_loads(Block *block, const Warp *warp, int pc, LaneMask lanes,
                            const uint64_t *addresses, int words) {
    uint32_t epoch = block->epoch_start;
    LaneMask noted = readers_to_note(lanes, addresses), left = 0;
    FOR_EACH_LANE(lane, noted) {
        uint16_t thread = (uint16_t)(warp->first_thread + (uint32_t)lane);
        for (int word = 0; word < words; word++) {
            uint64_t granule = (addresses[lane] >> 2) + (uint64_t)word;
            SharedShadow *cell = &block->shared_shadow[granule];
            if (block->shared_written[granule] != 15 || cell->writer_time >= epoch) {
                left |= noted == lanes ? UINT32_C(1) << lane : lanes;
                break;
            }
            if (cell->reader_time < epoch || cell->reader == thread) {
                cell->reader_time = block->machine->clock;
                cell->reader = thread, cell->reader_pc = short_pc(pc), cell->read_bytes = 15;
                memset(cell->byte_readers, lane, 4);
                cell->volatile_reader = false;
            } else {
                note_reader(block, warp, cell, lane, 15, pc, false);
            }
        }
    }
    return left;
}

/* Lanes of one store do not race with each other here (memory.c compares what they store), so all
   are checked before any is noted. */
void shared_shadow(Block *block, const Warp *warp, const Instruction *row, int pc, LaneMask lanes,
                   const uint64_t *addresses, int bytes, Access access,
                   const uint8_t (*values)[32]) {
    bool strong = row->flags & (FLAG_STRONG | FLAG_GUESS), atomic = access == ACCESS_ATOMIC;
    bool looks = is_look(row, access);
    const Machine *machine = block->machine;
    uint32_t epoch = block->epoch_start;
    if (access == ACCESS_LOAD && !strong && !(bytes & 3) && !block->shared_reads) {
        lanes = quick_loads(block, warp, pc, lanes, addresses, bytes / 4);
        if (!lanes) return;
    }
    FOR_EACH_LANE(lane, lanes) {
        FOR_EACH_GRANULE(addresses[lane], bytes) {
            SharedShadow *cell = &block->shared_shadow[here >> 2];
            uint8_t *written = &block->shared_written[here >> 2];
            bool pending = *written & COPY_PENDING;
            if (access != ACCESS_STORE && bytes_read(row, done, part) & ~*written && !pending &&
                !copies_padding(block->shared_written, (uint64_t)(machine->shared_bytes + 3) / 4, row,
                                addresses[lane], bytes))
                report(block, KIND_UNINITIALIZED_READ, pc, warp, lane, here, SPACE_SHARED,
                       DETAIL_READ, -1, -1);
            if (cell->writer_time >= epoch || pending ||
                (access != ACCESS_LOAD && cell->reader_time >= epoch)) {
                int other, other_pc, detail = find_conflict(block, warp, cell, lane, part, access,
                                                            strong, pending, &other, &other_pc);
                bool other_warps = other == SEVERAL_WARPS ||
                                   (other & ~SEVERAL_LANES) / (other & SEVERAL_LANES ? 1 : LANES) !=
                                       (int)warp->first_thread / LANES;
                /* Volatile accesses of several warps to one place are meant, but no look at what
                   another warp stores plainly: it may not be done. Within a warp they are what
                   warp-synchronous code was written with. */
                bool plain = !cell->atomic && detail != DETAIL_WRITE_AFTER_READ &&
                             !(row->flags & FLAG_GUESS);
                if (detail != DETAIL_NONE &&
                    !(strong && (other_warps ? !plain : !(row->flags & FLAG_VOLATILE)))) {
                    bool same = access == ACCESS_STORE && detail != DETAIL_COPY_PENDING &&
                                !memcmp(block->shared + here, values[lane] + done, (size_t)count);
                    report_race(block, same, pc, warp, lane, here, SPACE_SHARED, detail,
                                block->index, other, other_pc);
                }
            }
            if (looks && cell->atomic && cell->writer != warp->first_thread + (uint32_t)lane)
                ((Warp *)warp)->heard[lane] = machine->clock;
            if (access == ACCESS_LOAD) {
                if (block->shared_reads && !strong)
                    note_warp_read(block, warp, here >> 2, (uint32_t)part);
                if (!strong || row->flags & FLAG_VOLATILE)
                    note_reader(block, warp, cell, lane, part, pc, strong);
            } else if (atomic) {
                note_writer(block, warp, cell, lane, part, pc, true);
                *written |= part;
            }
        }
    }
    if (access != ACCESS_STORE) return;
    FOR_EACH_LANE(lane, lanes) FOR_EACH_GRANULE(addresses[lane], bytes) {
        note_writer(block, warp, &block->shared_shadow[here >> 2], lane, part, pc, strong);
        block->shared_written[here >> 2] |= part;
    }
}

/* From now on until it is waited for, a copy may write at any moment. */
void shared_copy_begins(Block *block, const Warp *warp, int pc, LaneMask lanes,
                        const uint64_t *addresses, int bytes) {
    FOR_EACH_LANE(lane, lanes) FOR_EACH_GRANULE(addresses[lane], bytes) {
        SharedShadow *cell = &block->shared_shadow[here >> 2];
        uint8_t *written = &block->shared_written[here >> 2];
        int other, other_pc, detail = find_conflict(block, warp, cell, lane, part, ACCESS_STORE, false,
                                                    *written & COPY_PENDING, &other, &other_pc);
        if (detail != DETAIL_NONE)
            report_race(block, false, pc, warp, lane, here, SPACE_SHARED, detail, block->index,
                        other, other_pc);
    }
    FOR_EACH_LANE(lane, lanes) FOR_EACH_GRANULE(addresses[lane], bytes) {
        note_writer(block, warp, &block->shared_shadow[here >> 2], lane, part, pc, false);
        block->shared_written[here >> 2] |= COPY_PENDING;
    }
}

void shared_copy_ends(Block *block, LaneMask lanes, const uint64_t *addresses, int bytes) {
    FOR_EACH_LANE(lane, lanes) FOR_EACH_GRANULE(addresses[lane], bytes) {
        (void)part;
        block->shared_written[here >> 2] &= ~COPY_PENDING;
    }
}
