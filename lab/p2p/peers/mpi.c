// mpi.c: two ranks that send each other messages, for any MPI. Rank 0 reads requests; see player.go for the protocol.
// FIFO, the argument, is a path at which rank 0 makes a named pipe.
//
// Rank 1 gets its requests through the pipe: a rank that waits in MPI keeps a core busy, which other measurements
// need. While both ranks compute, the receiver asks MPI every millisecond whether the message has arrived, as a
// program must that overlaps messages with computing.
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <sys/stat.h>

#include "player.h"

enum { READY = 1, DATA = 2, AT = 3 };
static const double slice_s = 1e-3;

static void turns(int rank, char *room, const request *r) {
  for (long i = 0; i < r->count; i++) {
    if (rank == 0) MPI_Send(room, (int)r->bytes, MPI_BYTE, 1, DATA, MPI_COMM_WORLD);
    MPI_Recv(room, (int)r->bytes, MPI_BYTE, 1 - rank, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1) MPI_Send(room, (int)r->bytes, MPI_BYTE, 0, DATA, MPI_COMM_WORLD);
  }
}

static void sums(float *room, float *sum, const request *r) {
  for (long i = 0; i < r->count; i++)
    MPI_Allreduce(room, sum, (int)(r->bytes / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

// arrive sends one message from rank 0 while both ranks compute. At rank 0 it returns how long the message took.
static double arrive(int rank, char *room, const request *r) {
  MPI_Request posted;
  double began = 0, at = 0;
  if (rank == 1) MPI_Irecv(room, (int)r->bytes, MPI_BYTE, 0, DATA, MPI_COMM_WORLD, &posted);
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = now(), end = start + r->compute_s;
  if (rank == 0) {
    began = now();
    MPI_Isend(room, (int)r->bytes, MPI_BYTE, 1, DATA, MPI_COMM_WORLD, &posted);
    compute(end);
    MPI_Wait(&posted, MPI_STATUS_IGNORE);
    MPI_Recv(&at, 1, MPI_DOUBLE, 1, AT, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return at - began;
  }
  int here = 0;
  for (double t = start; t < end; t = now()) {
    compute(t + slice_s < end ? t + slice_s : end);
    if (!here) {
      MPI_Test(&posted, &here, MPI_STATUS_IGNORE);
      if (here) at = now();
    }
  }
  if (!here) {
    MPI_Wait(&posted, MPI_STATUS_IGNORE);
    at = now();
  }
  MPI_Send(&at, 1, MPI_DOUBLE, 0, AT, MPI_COMM_WORLD);
  return 0;
}

static int fails(const char *what) {
  perror(what);
  MPI_Abort(MPI_COMM_WORLD, 2);
  return 2;
}

// next reads the next request and returns 0 at the end of the input. Rank 0 passes the request on to rank 1.
static int next(int rank, int fifo, request *r) {
  char line[256];
  if (rank == 1) return read(fifo, r, sizeof *r) == sizeof *r;
  if (fgets(line, sizeof line, stdin) == NULL) return 0;
  if (!parse(line, r)) {
    errno = EINVAL;
    fails(line);
  }
  if (write(fifo, r, sizeof *r) != sizeof *r) fails("the pipe");
  return 1;
}

int main(int argc, char **argv) {
  int rank = 0, size = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 2 || size != 2) {
    fprintf(stderr, "%d ranks, which must be 2; give FIFO\n", size);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  if (rank == 0 && mkfifo(argv[1], 0600) != 0) return fails(argv[1]);
  MPI_Barrier(MPI_COMM_WORLD);
  const int fifo = open(argv[1], rank == 0 ? O_WRONLY : O_RDONLY);
  if (fifo < 0) return fails(argv[1]);
  if (rank == 0) {
    printf("{\"name\": \"player\"}\n");
    fflush(stdout);
  }
  for (request r; next(rank, fifo, &r);) {
    char *room = calloc(1, (size_t)r.bytes), *sum = calloc(1, (size_t)r.bytes);
    if (rank == 0) MPI_Recv(NULL, 0, MPI_BYTE, 1, READY, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else MPI_Send(NULL, 0, MPI_BYTE, 0, READY, MPI_COMM_WORLD);
    double began = now(), took = 0;
    if (strcmp(r.what, "turns") == 0) turns(rank, room, &r);
    else if (strcmp(r.what, "sum") == 0) sums((float *)room, (float *)sum, &r);
    else took = arrive(rank, room, &r);
    if (rank == 0) answer(strcmp(r.what, "arrive") == 0 ? took : now() - began);
    free(room);
    free(sum);
  }
  close(fifo);
#ifdef MPICH
  // With MPICH over UCX and TCP, MPI_Finalize often never returns: a rank that has closed its connections waits
  // for the other without serving them. MPICH's launcher accepts an exit without MPI_Finalize.
  MPI_Barrier(MPI_COMM_WORLD);
  _exit(0);
#endif
  MPI_Finalize();
  return 0;
}
