/* All ranks add up their numbers. Rank 0 prints how many there are and when it knew the sum, in nanoseconds since 1970. */
#include "finalize.h"
#include <time.h>

int main(int argc, char **argv) {
	int rank, size, sum;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (sum != size * (size - 1) / 2) MPI_Abort(MPI_COMM_WORLD, 3);
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (rank == 0) printf("%d ranks up at %lld\n", size, now.tv_sec * 1000000000LL + now.tv_nsec);
	finalize();
	return 0;
}
