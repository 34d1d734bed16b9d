// player.h: what gloo.cpp and mpi.c share: requests, a clock, computing. See player.go for the protocol.
#ifndef PLAYER_H
#define PLAYER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct {
  char what[16];  // turns, arrive or sum
  long bytes, count;
  double compute_s;
} request;

// parse reads a request from a line; it returns 0 if the line is not a request.
static int parse(const char *line, request *r) {
  memset(r, 0, sizeof *r);
  return sscanf(line, "%15s %ld %ld %lf", r->what, &r->bytes, &r->count, &r->compute_s) == 4 && r->bytes > 0;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

static volatile double kept;

// compute keeps a core busy until the time now() is `until`.
static void compute(double until) {
  double x = kept;
  while (now() < until)
    for (int i = 0; i < 10000; i++) x = x * 0.999 + 1;
  kept = x;
}

static void answer(double seconds) {
  printf("{\"seconds\": %.9f}\n", seconds);
  fflush(stdout);
}

#endif
