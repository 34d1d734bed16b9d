// Package native holds the sources of the libtorch shim. A millrace binary compiles them for the libtorch it finds
// (millrace doctor --build).
//
// In: nothing. Out: the files of this folder as they were when the binary was built.
// The package has no C code of Go's own and never needs a C compiler to build.
package native

import "embed"

// Sources are build.sh and what it compiles: the door to libtorch under shim/, which includes millrace.h,
// CPU kernels under kernels/ and sums by Gloo under gloo/, both of which the door can do without.
// (They cannot lie beside this file: Go takes C++ in a package for cgo.)
//
//go:embed build.sh shim/*.h shim/*.cpp kernels/*.h kernels/*.cpp gloo/*.cpp
var Sources embed.FS
