package torch

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// avx2Cores lists the OpenBLAS kernel families that do not use a processor's AVX-512.
var avx2Cores = []string{"Haswell", "Zen", "Excavator", "Steamroller", "Bulldozer", "Piledriver", "Sandybridge",
	"Nehalem", "Prescott", "Core2"}

// Advice returns lines that say how this libtorch could be faster on this machine. It is empty if nothing is known.
func (i Info) Advice() []string {
	cpuinfo, _ := os.ReadFile("/proc/cpuinfo") // without the file nothing is known of the processor
	return i.advice(string(cpuinfo))
}

func (i Info) advice(cpuinfo string) []string {
	var out []string
	if i.BLAS == "reference" {
		out = append(out, "matrix products run on the reference BLAS, which has no fast kernels; "+
			"apt-get install libopenblas0-pthread")
	}
	if i.BLAS == "BLIS" && (i.BLASCore == "" || i.BLASCore == "generic") && os.Getenv("BLIS_ARCH_TYPE") == "" {
		out = append(out, "Debian's BLIS runs generic kernels, six times slower, on a processor newer than itself; "+
			"apt-get install libopenblas0-pthread")
	}
	if i.BLAS == "OpenBLAS" && hasAVX512(cpuinfo) && slices.Contains(avx2Cores, i.BLASCore) {
		line := fmt.Sprintf("OpenBLAS runs its %s kernels on a processor with AVX-512, at about half the speed", i.BLASCore)
		if i.Kernels != "none" { // native/kernels/gemm.cpp computes the other products
			line += ", for LSTM layers (most others have millrace's own kernels)"
		}
		line += "; "
		if i.CoreType != "" {
			line += fmt.Sprintf("OPENBLAS_CORETYPE=%s says so: unset it", i.CoreType)
		} else {
			line += "set OPENBLAS_CORETYPE=SkylakeX"
		}
		out = append(out, line)
	}
	if i.Kernels == "none" {
		out = append(out, "the native library has no CPU kernels: sums are slower, and their last bits "+
			"depend on the number of threads; unset KERNELS and MILLRACE_KERNELS, then: millrace doctor --build")
	}
	if strings.EqualFold(i.MKLDNN, "none") {
		out = append(out, "this libtorch has no oneDNN: convolutions go through matrix products")
	}
	return out
}

// hasAVX512 says whether the text of /proc/cpuinfo lists every AVX-512 subset that OpenBLAS's SkylakeX kernels use.
func hasAVX512(cpuinfo string) bool {
	for line := range strings.Lines(cpuinfo) {
		key, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(key) != "flags" {
			continue
		}
		flags := strings.Fields(value)
		for _, f := range []string{"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"} {
			if !slices.Contains(flags, f) {
				return false
			}
		}
		return true
	}
	return false
}
