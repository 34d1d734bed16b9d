// Package p2p measures the time of a message between two processes of one machine, sent in several ways in turn.
//
// The ways are plain TCP, millrace's own messages (a wire.Port over wire/tcp), Gloo through libtorch's c10d, Open MPI
// and MPICH. Each way is a player: two processes that wait until the first of them reads a request on its standard
// input. [Play] plays the ways in Go. The others are small C and C++ programs, which are compiled for the measurement
// with what is installed.
//
// In: the ways to compare and the sizes of messages. Out: Results, a file with three kinds of times. The first is the
// time of a message in one direction, for each way and size. It is given alone and relative to raw TCP, in alternating
// pairs with a 95 % interval. The second is the arrival time of a long message while both processes compute, relative
// to its arrival time without computing. The third is the time of a sum over both processes, in every way except plain
// TCP. Refused: players that answer anything but one line of JSON. A way that is not installed is named and left out.
package p2p
