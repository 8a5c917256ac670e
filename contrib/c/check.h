/* What the programs that check libgorun have in common. Each is one rank of a world. */
#include "gorun.h"

#include <stdio.h>
#include <stdlib.h>

static int rank = -1, size;

#define CHECK(condition)                                                                                              \
	do {                                                                                                          \
		if (!(condition)) {                                                                                   \
			fprintf(stderr, "rank %d of %d: line %d: not %s; last error: %s\n", rank, size, __LINE__,     \
				#condition, gorun_error());                                                           \
			exit(1);                                                                                      \
		}                                                                                                     \
	} while (0)

/* total is the sum over all ranks of their numbers, from 1 on. */
static inline double total(void) { return size * (size + 1) / 2.0; }
