// Package runs trains a list of small models and checks whether their final tensors are unchanged.
//
// In: the list (list.go) and this working tree. The package builds the tree and trains through the command line
// `millrace train`, so it covers all code that a training uses. With Against, it also builds a commit, in a folder of
// its own with its own native library, and both builds train each run on this machine. With Check, it compares with a
// file of hashes that Output wrote. With Carrier, messages between workers of this tree use that carrier (train reads
// it from MILLRACE_CARRIER); hashes must be the same over each carrier. With Processes, each run is trained in one
// process for each worker. With Namespaces, these processes are divided between two network namespaces, which needs
// root. In both cases, hashes must again be the same. The package runs in the working tree of millrace.
//
// Out: a line for each run with two SHA-256 hashes: of its weights and buffers, and of its optimizer state. A hash
// covers names, element types, shapes and bytes, sorted by name, independent of the checkpoint's files. When comparing,
// the line says instead whether the tensors are equal, and if not, how much they differ. If a run must equal another
// run of the list (run.Like), and both are trained, they are compared too.
//
// The result is good if no run of this tree fails, and if each run equals the run in its Like. Compared with a file of
// hashes, each run must also have the file's hashes. Compared with a commit, only the runs in expected.go may differ
// from the commit's, or fail in the commit's build. expected.go gives the reasons.
//
// Refused: contradicting options; a file of hashes from another processor, BLAS or libtorch, whose bits may differ; and
// a file from another list of runs. Files of hashes are never committed: git ignores their ending, which Output
// requires.
//
// Every run fixes its stages, order, micro-batches, seed and learning rate. Its costs come from a described device, not
// from a clock. So the bits on one machine depend only on the code.
package runs
