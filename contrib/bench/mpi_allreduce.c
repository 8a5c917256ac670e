/* A rank of MPI_Allreduce. See measure.h for the rules.
 *
 *     mpicc -O3 -o mpi_allreduce mpi_allreduce.c -lm && mpirun -np 2 ./mpi_allreduce SECONDS BYTES...
 */
#include "measure.h"

#include <mpi.h>

static float *memory(size_t bytes) {
	float *data = malloc(bytes);
	if (!data)
		MPI_Abort(MPI_COMM_WORLD, 1);
	return data;
}

static void discard_memory(float *data) { free(data); }

static void allreduce(float *data, int n) {
	MPI_Allreduce(MPI_IN_PLACE, data, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void slowest(double *v, int n) { MPI_Allreduce(MPI_IN_PLACE, v, n, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD); }

static void meet(void) { MPI_Barrier(MPI_COMM_WORLD); }

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	measure_all(argc, argv);
	MPI_Finalize();
	return 0;
}
