// Package native holds the C++ sources of the libtorch shim. A millrace binary contains them, and compiles them for the
// libtorch that it finds (millrace doctor --build).
//
// Input: none. Output: the files of this folder as they were when the binary was built. There are no errors. Go itself
// compiles no C code of this package, so millrace builds without a C compiler.
package native

import "embed"

// Sources holds build.sh and everything that it compiles. Go calls shim/ through the functions in shim/millrace.h.
// kernels/ (CPU kernels) and gloo/ (sums over processes) are optional: build.sh reports when it leaves them out. The
// sources are in subfolders because Go would hand C++ files beside a Go file to cgo.
//
//go:embed build.sh shim/*.h shim/*.cpp kernels/*.h kernels/*.cpp gloo/*.cpp
var Sources embed.FS
