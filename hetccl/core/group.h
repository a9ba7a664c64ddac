/* A group: the ranks of a communicator, as tags on the links between their processes. */
#ifndef HET_GROUP_H
#define HET_GROUP_H

#include "link.h"

#include <stdatomic.h>

enum {
    HET_WINDOW = 64, /* messages that a rank may have under way to a peer in one group before that peer used any */
    HET_REPORT = 8,  /* messages used before they are reported back */
    HET_LANE_BITS = 16
};

struct het_peer {
    struct het_link *link;      /* NULL for this rank */
    _Atomic int32_t under_way;  /* sent, not known to be used */
    int32_t used;               /* received and used, not yet reported */
};

struct het_group {
    uint64_t id;
    int32_t rank, size;
    struct het_peer *peers;
    _Atomic int aborted;
    atomic_flag running;
    void *arena; /* the state of the collective that runs */
    size_t arena_bytes;
    struct het_group *next; /* of those with the same hash */
};

/* Give `credits` messages back to whatever group has this id, for its peer `rank`; nothing where it is closed. */
void het_group_credit(uint64_t id, int32_t rank, int32_t credits);

#endif
