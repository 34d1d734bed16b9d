package torch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFindTakesTheVariableAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.so")
	t.Setenv("MILLRACE_NATIVE", file)
	if path, tried := Find(); path != "" || len(tried) != 1 || tried[0] != file {
		t.Errorf("a variable that names no file: found %q, tried %q", path, tried)
	}
	if _, err := Open(); !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrNoCgo) {
		t.Errorf("Open without a library: %v", err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if path, _ := Find(); path != file {
		t.Errorf("found %q, want %q", path, file)
	}
}

func TestFindLooksInTheCache(t *testing.T) {
	t.Setenv("MILLRACE_NATIVE", "")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	want, err := CachePath()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(want), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(want, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if path, tried := Find(); path != want {
		t.Errorf("found %q, want %q; tried %q", path, want, tried)
	}
}

func TestSourceTree(t *testing.T) {
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if root := sourceTree(wd); root != filepath.Dir(filepath.Dir(wd)) {
		t.Errorf("the tree around %s is %q", wd, root)
	}
	if root := sourceTree(t.TempDir()); root != "" {
		t.Errorf("a temporary folder is in the tree %q", root)
	}
}

func TestInfoTellsTheBLAS(t *testing.T) {
	const lib = "/usr/lib/x86_64-linux-gnu/"
	for _, c := range []struct {
		file, mkl, openblas, want string
	}{
		{lib + "openblas-pthread/libblas.so.3", "", "config", "OpenBLAS"},
		{lib + "blis-pthread/libblas.so.3", "", "a LAPACK's OpenBLAS", "BLIS"},
		{lib + "blas/libblas.so.3.11.0", "", "", "reference"},
		{lib + "atlas/libblas.so.3", "", "", "ATLAS"},
		{lib + "libmkl_rt.so", "2020", "", "MKL"},
		{"/opt/libtorch/lib/libtorch_cpu.so", "2020", "", "MKL"},
		{"/opt/libtorch/lib/libtorch_cpu.so", "", "config", "OpenBLAS"},
		{"", "", "", "unknown"},
	} {
		i := newInfo(map[string]string{"blas_file": c.file, "mkl_config": c.mkl, "openblas_config": c.openblas}, "", "")
		if i.BLAS != c.want {
			t.Errorf("%q, MKL %q, OpenBLAS %q: %s, want %s", c.file, c.mkl, c.openblas, i.BLAS, c.want)
		}
	}
}

func TestAdvice(t *testing.T) {
	const avx512 = "processor : 0\nvendor_id : AuthenticAMD\n" +
		"flags\t\t: fpu avx2 avx512f avx512dq avx512cd avx512bw avx512vl\n\n"
	const avx2 = "flags : fpu avx2\n"
	t.Setenv("BLIS_ARCH_TYPE", "")
	for _, c := range []struct {
		info    Info
		cpuinfo string
		want    string // text in the only line of advice; "" if there is no advice
	}{
		{Info{BLAS: "OpenBLAS", BLASCore: "Cooperlake"}, avx512, ""},
		{Info{BLAS: "OpenBLAS", BLASCore: "Haswell"}, avx2, ""},
		{Info{BLAS: "OpenBLAS", BLASCore: "Haswell"}, "", ""},
		{Info{BLAS: "OpenBLAS", BLASCore: "Haswell", CoreType: "Haswell"}, avx512, "unset it"},
		{Info{BLAS: "OpenBLAS", BLASCore: "Zen"}, avx512, "for LSTM layers (most others have millrace's own kernels); " +
			"set OPENBLAS_CORETYPE=SkylakeX"},
		{Info{BLAS: "BLIS"}, avx512, "libopenblas0-pthread"},
		{Info{BLAS: "reference"}, avx512, "libopenblas0-pthread"},
		{Info{BLAS: "MKL", MKLDNN: "none"}, avx512, "no oneDNN"},
	} {
		got := c.info.advice(c.cpuinfo)
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)) {
			t.Errorf("%+v: %q, want %q", c.info, got, c.want)
		}
	}
}
