// Package runs trains a list of small models and says whether their final tensors are still the same.
//
// In: the list (list.go) and this working tree, which it builds and trains with by the command line
// `millrace train`, so that it measures whatever carries workers. With Against, a commit too, which it builds in
// a folder of its own with a native library of its own; each run is then trained by both, here. With Check, a
// file of hashes that Output named. With Carrier, what messages between workers go over here (train reads it
// from MILLRACE_CARRIER): hashes must be the same over each. With Processes, each run is trained in as many
// processes as it has workers, and with Namespaces in two network namespaces, which takes root: hashes must be
// the same again. It runs in the working tree of millrace.
//
// Out: a line for each run with the SHA-256 of its weights and buffers, and that of what its optimizer
// keeps, over names, element types, shapes and bytes, sorted by name, whichever file of the checkpoint they
// are in; or whether they are those of the other commit or of the file, and if not, how far they are apart.
// Runs that must leave what another run of the list leaves (run.Like) are held to it every time.
//
// All is as it must be where nothing differs from a commit but what expected.go names and gives a reason for,
// and no run fails.
//
// Refused: options that contradict each other; a file of hashes from another processor, BLAS or libtorch, where
// other bits are right, or from another list of runs. Files of hashes are never committed: git ignores the
// ending that Output must have.
//
// Every run pins its stages, order, micro-batches, seed and rate, and its costs come from a described device,
// not from a clock: bits depend on code alone.
package runs
