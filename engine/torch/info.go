package torch

import (
	"path/filepath"
	"strconv"
	"strings"
)

// Info describes the libraries of a loaded engine, for doctor, profiles and traces.
type Info struct {
	Torch       string `json:"torch"`        // version, "1.13.0"
	Native      string `json:"native"`       // path of the shim
	Against     string `json:"against"`      // what the shim was compiled against, as build.sh recorded it; "" if unknown
	Kernels     string `json:"kernels"`      // vector instructions of the CPU kernels; "none" without kernels
	Library     string `json:"library"`      // path of libtorch_cpu
	MKLDNN      string `json:"mkldnn"`       // oneDNN's version line, "none" without oneDNN
	OpenMP      string `json:"openmp"`       // OpenMP's version line
	BLAS        string `json:"blas"`         // name: "OpenBLAS", "BLIS", "MKL", "reference", "ATLAS" or "unknown"
	BLASLibrary string `json:"blas_library"` // path of the library that holds the BLAS's sgemm
	BLASConfig  string `json:"blas_config"`  // the BLAS's description of itself, if it has one
	BLASCore    string `json:"blas_core"`    // the kernels in use, "SkylakeX"; "" if unknown
	CoreType    string `json:"core_type"`    // the user's OPENBLAS_CORETYPE, "" if unset
	Threads     int    `json:"threads"`      // threads that an operator uses if the calling thread calls it
}

// newInfo reads the shim's facts. The argument `native` is the path of the shim, and `coreType` is the value of
// OPENBLAS_CORETYPE.
func newInfo(f map[string]string, native, coreType string) Info {
	i := Info{
		Torch:       f["torch"],
		Native:      native,
		Against:     f["built_against"],
		Kernels:     f["kernels"],
		Library:     resolved(f["library"]),
		MKLDNN:      f["mkldnn"],
		OpenMP:      f["openmp"],
		BLASLibrary: resolved(f["blas_file"]),
		CoreType:    coreType,
	}
	i.Threads, _ = strconv.Atoi(f["threads"]) // 0 if the shim could not tell
	i.BLAS = blasName(i.BLASLibrary, f)
	switch i.BLAS {
	case "OpenBLAS":
		i.BLASConfig, i.BLASCore = f["openblas_config"], f["openblas_core"]
	case "BLIS":
		i.BLASConfig, i.BLASCore = f["blis_config"], f["blis_core"]
	case "MKL":
		i.BLASConfig = f["mkl_config"]
	}
	return i
}

// blasName identifies a BLAS by the path of the library that holds sgemm: Debian keeps each libblas.so.3 in a folder
// named after its package. If libtorch itself contains sgemm, its build settings decide.
func blasName(path string, f map[string]string) string {
	where := filepath.Join(filepath.Base(filepath.Dir(path)), filepath.Base(path))
	for _, known := range []struct{ mark, name string }{
		{"openblas", "OpenBLAS"}, {"blis", "BLIS"}, {"mkl", "MKL"}, {"atlas", "ATLAS"}, {"libblas.so", "reference"},
	} {
		if strings.Contains(where, known.mark) {
			return known.name
		}
	}
	switch {
	case f["mkl_config"] != "":
		return "MKL"
	case f["openblas_config"] != "":
		return "OpenBLAS"
	}
	return "unknown"
}

// resolved follows links, since Debian's library names are links to alternatives.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil && path != "" {
		return real
	}
	return path
}
