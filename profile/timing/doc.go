// Package timing measures what a model costs through a Timer, and keeps the measurements.
//
// In: a model, a Timer (from package measure, on the code that trains) and a Record of earlier measurements, which
// may be empty. Out: the Record with what was missing, and a profile made from it. Refused: records of another model
// or version, damaged files, sizes and passes below 1.
//
// A Record holds for one model on one kind of machine, with a number of workers that compute at once and threads of
// each. The costs of layers depend only on these and the micro-batch: not on the batch, on how many workers wait for
// a core, or on the data. Updates also depend on the optimizer, and are kept for each. The costs of the wire do not
// depend on the model; a Links holds them for a machine.
//
// What is measured at once is a sitting. It consists of rounds, in each of which every size has its turn. On a
// machine that others use, speed changes every second and every hour. So sizes are compared within rounds, and
// sittings by the sizes that they have in common. A sitting with only new sizes therefore also visits a known one.
//
// Duties of the caller: store the Record each time Extend calls Keep, run only one sitting at a time on a machine,
// and use a new Machine name for a machine with other speeds.
package timing
