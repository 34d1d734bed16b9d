// Package timing measures what a model costs through a Timer, and keeps the measurements.
//
// Input: a model, a Timer (from package measure, on the code that trains) and a Record of earlier measurements, which
// may be empty. Output: the Record with what was missing, and a profile made from it. Errors: records of another model
// or version, damaged files, sizes below 1 and negative numbers of passes.
//
// A Record is for one model on one kind of machine, and for the numbers of concurrent workers and of their threads. The
// costs of layers are taken to depend only on these and the micro-batch: not on the batch, on how many workers wait for
// a core, or on the data. Updates also depend on the optimizer, and are kept for each one. The costs of the wire do not
// depend on the model; a Links holds them for a machine.
//
// A sitting is one period of measuring. It consists of rounds, and in each round every size has its turn. On a machine
// that others use, speed changes every second and every hour. So sizes are compared within rounds, and sittings by the
// sizes that they have in common. A sitting with only new sizes therefore also visits a known one.
//
// The caller must store the Record each time Extend calls Keep. Only one sitting may run at a time on a machine. A
// machine with other speeds needs a new Machine name.
package timing
