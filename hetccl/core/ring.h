/* A ring of message slots: what a wire is made of.
 *
 * A slot is a line (the header, with room for a few bytes of payload) and a payload area of fixed size. For shm the ring lies
 * in the shared segment and the peer writes it; for tcp it is private memory that a pump fills from the socket. One sender,
 * one receiver; messages are numbered from 1 and message m uses slot (m - 1) % slots. */
#ifndef HET_RING_H
#define HET_RING_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { HET_LINE = 64, HET_SMALL = 16, HET_PROTOCOL = 1 };

enum het_kind { HET_DATA = 1, HET_CREDIT = 2, HET_SPILLED = 3 /* data, counted as used when it was spilled */ };

struct het_line {
    _Atomic uint64_t ready; /* the message's number, once it is whole: never equal to what an earlier lap left */
    uint32_t bytes;         /* of payload; in `small` when they fit */
    uint16_t kind;
    uint16_t protocol;
    uint64_t channel;  /* group << 16 | lane */
    uint64_t sequence; /* of the collective in its group */
    uint64_t what;     /* the collective: op, dtype, reduction, root, schedule, packed by the caller */
    uint64_t count;    /* its elements; of a credit: the messages consumed */
    unsigned char small[HET_SMALL];
};

struct het_ring {
    _Atomic uint64_t *consumed; /* messages that the receiver is done with; on a line of its own */
    struct het_line *lines;
    unsigned char *payload;
    uint32_t slots, slot_bytes;
};

static inline size_t het_ring_bytes(uint32_t slots, uint32_t slot_bytes) {
    return HET_LINE + (size_t)slots * (HET_LINE + (size_t)slot_bytes);
}

/* Lay a ring over zeroed memory of het_ring_bytes, aligned to 64. */
static inline struct het_ring het_ring_over(void *memory, uint32_t slots, uint32_t slot_bytes) {
    unsigned char *at = memory;
    struct het_ring ring = {
        .consumed = (_Atomic uint64_t *)memory,
        .lines = (struct het_line *)(void *)(at + HET_LINE),
        .payload = at + HET_LINE + (size_t)slots * HET_LINE,
        .slots = slots,
        .slot_bytes = slot_bytes,
    };
    return ring;
}

static inline struct het_line *het_ring_line(const struct het_ring *ring, uint64_t message) {
    return &ring->lines[(message - 1) % ring->slots];
}

static inline unsigned char *het_ring_payload(const struct het_ring *ring, uint64_t message) {
    struct het_line *line = het_ring_line(ring, message);
    return line->bytes <= HET_SMALL ? line->small : ring->payload + (size_t)((message - 1) % ring->slots) * ring->slot_bytes;
}

#endif
