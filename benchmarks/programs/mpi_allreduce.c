/* Sums a buffer over the ranks by MPI_Allreduce, in place, each time it is told to.
 *
 * Usage: mpirun -n RANKS mpi_allreduce FOLDER BYTES
 * A byte in the pipe FOLDER/go.R starts a round in rank R, and its end ends the program. Nobody spins between
 * rounds: what else is measured beside needs the cores. Rank 0 prints the seconds of each round. */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    char path[4096];
    if (argc != 3 || snprintf(path, sizeof path, "%s/go.%d", argv[1], rank) >= (int)sizeof path) {
        fprintf(stderr, "usage: mpi_allreduce FOLDER BYTES\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    const int count = (int)(strtoull(argv[2], NULL, 10) / sizeof(float));
    float* const values = calloc((size_t)count, sizeof(float));
    const int go = open(path, O_RDONLY);
    if (values == NULL || go < 0) {
        perror("mpi_allreduce");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    char byte = 0;
    while (read(go, &byte, 1) == 1) {
        MPI_Barrier(MPI_COMM_WORLD);
        const double at = MPI_Wtime();
        MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        const double seconds = MPI_Wtime() - at;
        if (rank == 0) {
            printf("%.9f\n", seconds);
            fflush(stdout);
        }
    }
    free(values);
    MPI_Finalize();
    return 0;
}
