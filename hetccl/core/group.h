/* A group: the ranks of a communicator, as tags on the links between their processes. */
#ifndef HET_GROUP_H
#define HET_GROUP_H

#include "link.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    HET_WINDOW = 64, /* messages that a rank may have under way to a peer in one group before that peer used any */
    HET_REPORT = 8,  /* messages used before they are reported back */
    HET_LANE_BITS = 16
};

struct het_peer {
    struct het_link *_Atomic link; /* NULL for this rank, and for those that are not connected yet */
    _Atomic int32_t under_way;  /* sent, not known to be used */
    int32_t used;               /* received and used, not yet reported */
    uint64_t heard;             /* the latest collective of which a message came from it */
};

struct het_group {
    uint64_t id;
    int32_t rank, size;
    struct het_peer *peers;
    _Atomic int aborted;
    void *arena, *scratch; /* the state of the collective that runs, and what its plan needs beside input and output */
    size_t arena_bytes, scratch_bytes;
    struct het_group *next; /* of those with the same hash */

    pthread_mutex_t lock; /* of what follows: the order of collectives (progress.c) */
    pthread_cond_t changed;
    uint64_t sequence;     /* the latest collective's */
    int running, closed;   /* one runs, in whatever thread; none is taken any more */
    int failed;            /* one did: what the peers have seen of the group differs */
    struct het_ticket *first, **last;
    struct het_group *next_active; /* of those that the progress thread serves */
};

/* Whether a group of this id was here and is not any more: what still arrives for it is of no use. */
int het_group_is_over(uint64_t id);

/* Give `credits` messages back to whatever group has this id, for its peer `rank`; nothing where it is closed. */
void het_group_credit(uint64_t id, int32_t rank, int32_t credits);

#endif
