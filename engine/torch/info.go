package torch

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Info is what a loaded engine consists of, for doctor, profiles and traces.
type Info struct {
	Torch       string `json:"torch"`        // version, "1.13.0"
	Native      string `json:"native"`       // path of the shim
	Library     string `json:"library"`      // path of libtorch_cpu as mapped
	MKLDNN      string `json:"mkldnn"`       // oneDNN's version line, "none" without
	OpenMP      string `json:"openmp"`       // OpenMP's version line
	BLAS        string `json:"blas"`         // name: "OpenBLAS", "BLIS", "MKL", "reference" or "unknown"
	BLASLibrary string `json:"blas_library"` // path of the BLAS as mapped
	BLASConfig  string `json:"blas_config"`  // what the BLAS says of itself, if it does
	BLASCore    string `json:"blas_core"`    // the kernels it runs, "SkylakeX"; "" if it does not tell
	CoreType    string `json:"core_type"`    // OPENBLAS_CORETYPE as it was at load, "" if unset
	CoreChosen  bool   `json:"core_chosen"`  // CoreType was set by this package, not by the user
	Threads     int    `json:"threads"`      // of the calling thread's operators
}

// blasFiles tells a BLAS by its file name, the most telling first: Debian's libblas.so.3
// of OpenBLAS is a thin door to libopenblas.
var blasFiles = []struct{ prefix, name string }{
	{"libmkl_", "MKL"},
	{"libopenblas", "OpenBLAS"},
	{"libblis", "BLIS"},
	{"libblas.so", "reference"},
}

// describeMaps fills in the libraries that are mapped into this process.
func (i *Info) describeMaps(paths []string) {
	for _, p := range paths {
		if strings.HasPrefix(filepath.Base(p), "libtorch_cpu.so") {
			i.Library = p
		}
	}
	i.BLAS = "unknown"
	for _, f := range blasFiles {
		at := slices.IndexFunc(paths, func(p string) bool { return strings.HasPrefix(filepath.Base(p), f.prefix) })
		if at < 0 {
			continue
		}
		i.BLAS, i.BLASLibrary = f.name, paths[at]
		// BLIS and OpenBLAS also come as a libblas.so.3 of their own, in their folder.
		if f.name == "reference" {
			switch dir := filepath.Base(filepath.Dir(paths[at])); {
			case strings.HasPrefix(dir, "blis"):
				i.BLAS = "BLIS"
			case strings.HasPrefix(dir, "openblas"):
				i.BLAS = "OpenBLAS"
			}
		}
		return
	}
}

// mapped lists the shared libraries in this process, each once.
func mapped() []string {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil // not Linux, or no /proc: the paths stay unknown
	}
	defer f.Close()
	var out []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		_, path, ok := strings.Cut(lines.Text(), "/")
		if ok && strings.Contains(path, ".so") && !slices.Contains(out, "/"+path) {
			out = append(out, "/"+path)
		}
	}
	return out
}
