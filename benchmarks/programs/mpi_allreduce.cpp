// Sums a buffer over the ranks by MPI_Allreduce, in place, each time it is told to.
//
// Usage: mpirun -n RANKS mpi_allreduce FOLDER BYTES IN_A_ROW
// A byte in the pipe FOLDER/go.R starts a round in rank R, and its end ends the program. Nobody spins between rounds:
// what else is measured beside needs the cores. Rank 0 prints the seconds of each round, in which it sums so many times:
// from when the first rank begins until it has the sums itself.
#include <fcntl.h>
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "ranks.hpp"

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    if (argc != 4) {
        std::fprintf(stderr, "usage: mpi_allreduce FOLDER BYTES IN_A_ROW\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::vector<float> values(std::strtoull(argv[2], nullptr, 10) / sizeof(float));
    const auto in_a_row = std::strtoull(argv[3], nullptr, 10);
    const int go = open((std::string(argv[1]) + "/go." + std::to_string(rank)).c_str(), O_RDONLY);
    if (go < 0) {
        std::perror("mpi_allreduce");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    char byte = 0;
    while (read(go, &byte, 1) == 1) {
        programs::compute();
        MPI_Barrier(MPI_COMM_WORLD);
        const double at = programs::now();
        for (auto i = in_a_row; i > 0; --i) {
            MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT, MPI_SUM,
                          MPI_COMM_WORLD);
        }
        const double end = programs::now();
        double began = at;
        MPI_Allreduce(&at, &began, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
        if (rank == 0) {
            std::printf("%.9f\n", end - began);
            std::fflush(stdout);
        }
    }
    MPI_Finalize();
    return 0;
}
