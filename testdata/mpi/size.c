/* Says how many ranks its world has, and stays in it for the given number of seconds. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int size;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    printf("size %d\n", size);
    fflush(stdout);
    usleep((useconds_t)(1e6 * atof(argv[1])));
    MPI_Finalize();
    return 0;
}
