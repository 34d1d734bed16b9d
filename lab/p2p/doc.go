// Package p2p measures what a message between two processes of one machine takes, by several ways in turn.
//
// The ways are TCP with nothing above it, millrace's own messages (a wire.Port over wire/tcp), Gloo through
// libtorch's c10d, Open MPI and MPICH. Each is a player: two processes that stand still until the first of them
// reads a request on its standard input. Go's ways are played by [Play]; the others are small C and C++
// programs, compiled when they are measured, with what is installed here.
//
// In: the ways to compare and sizes of messages.
// Out: Results, a file: for each way and size the time one way, alone and beside raw TCP in alternating pairs
// with a 95 % interval; when a long message arrives while both processes compute, against the same without
// computing; what a sum over both processes takes, ours against Gloo's.
// Refused: players that answer anything else than one line of JSON. What is not installed is left out and named.
package p2p
