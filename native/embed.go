// Package native holds the C++ sources of the libtorch shim. A millrace binary carries them, and compiles them for the
// libtorch that it finds (millrace doctor --build).
//
// In: nothing. Out: the files of this folder as they were when the binary was built. Refused: nothing.
// The package has no C code that Go compiles, so that millrace itself builds without a C compiler.
package native

import "embed"

// Sources holds build.sh and all that it compiles. shim/ is what Go calls by the functions of shim/millrace.h;
// kernels/ (CPU kernels) and gloo/ (sums over processes) are optional: build.sh says when it leaves them out. All are
// in folders of their own because Go would take C++ files beside a Go file for cgo's.
//
//go:embed build.sh shim/*.h shim/*.cpp kernels/*.h kernels/*.cpp gloo/*.cpp
var Sources embed.FS
