//go:build cgo

package torch

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestBuildRefuses(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.so")
	t.Setenv("CXX", "no-such-compiler")
	var log bytes.Buffer
	err := Build(context.Background(), out, &log)
	if err == nil || !strings.Contains(err.Error(), "no C++ compiler 'no-such-compiler'") ||
		!strings.Contains(log.String(), "apt-get install g++") {
		t.Errorf("without a compiler: %v; log %q", err, log.String())
	}
	t.Setenv("CXX", "true")
	t.Setenv("TORCH_DIR", t.TempDir())
	if err := Build(context.Background(), out, &log); err == nil ||
		!strings.Contains(err.Error(), "no libtorch in TORCH_DIR=") {
		t.Errorf("without libtorch: %v", err)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a failed build left a file")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := Build(ctx, out, &log); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled build: %v", err)
	}
}

// A build that is stopped stops its compilers, and leaves no temporary file behind.
func TestAStoppedBuildCleansUp(t *testing.T) {
	dir := t.TempDir()
	libtorch, temporary := filepath.Join(dir, "torch"), filepath.Join(dir, "tmp")
	script := "#!/bin/sh\ntouch " + filepath.Join(dir, "compiling") + "\nexec sleep 60\n"
	for path, text := range map[string]string{
		"torch/include/ATen/core/Tensor.h": "", "torch/lib/libtorch_cpu.so": "", "tmp/keep": "", "compiler": script,
		"torch/include/torch/csrc/api/include/torch/version.h": versionHeader("1.13.1"),
	} {
		path = filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("CXX", filepath.Join(dir, "compiler"))
	t.Setenv("TORCH_DIR", libtorch)
	t.Setenv("TMPDIR", temporary)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	var log bytes.Buffer
	go func() { ended <- Build(ctx, filepath.Join(dir, "out.so"), &log) }()
	for {
		if _, err := os.Stat(filepath.Join(dir, "compiling")); err == nil {
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("it ended by itself: %v\n%s", err, log.String())
		case <-time.After(time.Millisecond):
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
	left, err := filepath.Glob(filepath.Join(temporary, "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("it left %v (%v)", left, err)
	}
}

// versionHeader returns libtorch's version.h for a version.
func versionHeader(version string) string {
	var text strings.Builder
	for i, n := range strings.Split(version, ".") {
		text.WriteString("#define TORCH_VERSION_" + [...]string{"MAJOR", "MINOR", "PATCH"}[i] + " " + n + "\n")
	}
	return text.String()
}

// The language standard follows libtorch's version. The string ABI comes from its CMake file, or otherwise from its
// library's symbols. CUDA's libraries and headers are used if they exist.
func TestBuildFlags(t *testing.T) {
	const config = "share/cmake/Torch/TorchConfig.cmake"
	cuda := map[string]string{"lib/libtorch_cuda.so": "", "../nvidia/cuda_runtime/include/cuda_runtime_api.h": ""}
	for _, c := range []struct {
		name, version string
		files         map[string]string
		symbols       string // of libc10.so, as nm prints them
		has, hasNot   []string
	}{
		{"oldest", "1.13.1", nil, "", []string{"-std=c++17", "torch 1.13.1"},
			[]string{"CXX11_ABI", "torch_cuda", "-std=c++20"}},
		{"last of C++17", "2.11.0", nil, "", []string{"-std=c++17"}, []string{"-std=c++20"}},
		{"first of C++20", "2.12.0", nil, "", []string{"-std=c++20"}, []string{"-std=c++17"}},
		{"major", "3.0.0", nil, "", []string{"-std=c++20"}, nil},
		{"old strings by CMake", "2.5.1", map[string]string{config: `set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=0")`}, "",
			[]string{"-D_GLIBCXX_USE_CXX11_ABI=0"}, nil},
		{"new strings by CMake", "2.11.0", map[string]string{config: `set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=1")`},
			"T _ZN3c10",
			[]string{"-D_GLIBCXX_USE_CXX11_ABI=1"}, nil},
		{"CMake says nothing, old names", "2.5.1", map[string]string{config: `set(TORCH_CXX_FLAGS "")`},
			"T _ZN3c105ErrorC1ESs",
			[]string{"-D_GLIBCXX_USE_CXX11_ABI=0"}, nil},
		{"no CMake file, new names", "2.7.0", nil, "T _ZN3c105ErrorC1ENSt7__cxx1112basic_string",
			[]string{"-D_GLIBCXX_USE_CXX11_ABI=1"}, nil},
		{"CUDA", "2.11.0", cuda, "", []string{"--no-as-needed -ltorch_cuda -lc10_cuda -ltorch", "cuda_runtime/include",
			", CUDA"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "with spaces", "torch")
			files := map[string]string{
				"include/ATen/core/Tensor.h": "", "lib/libtorch_cpu.so": "", "lib/libc10.so": "",
				"include/torch/csrc/api/include/torch/version.h": versionHeader(c.version),
				"../bin/nm": "#!/bin/sh\necho '" + c.symbols + "'\n",
			}
			for path, text := range c.files {
				files[path] = text
			}
			for path, text := range files {
				path = filepath.Join(root, path)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", filepath.Join(filepath.Dir(root), "bin")+":"+os.Getenv("PATH"))
			t.Setenv("TORCH_DIR", root)
			t.Setenv("CUDA_HOME", "")
			t.Setenv("KERNELS", "")
			t.Setenv("CXX", "true")
			said, err := exec.Command("sh", "../../native/build.sh", "--dry-run", filepath.Join(root, "out.so")).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			for _, want := range append(c.has, "kernels: true ", "-fopenmp", "-rpath,"+root+"/lib") {
				if !strings.Contains(string(said), want) {
					t.Errorf("there is no %q in\n%s", want, said)
				}
			}
			for _, not := range c.hasNot {
				if strings.Contains(string(said), not) {
					t.Errorf("there is %q in\n%s", not, said)
				}
			}
			if _, err := os.Stat(filepath.Join(root, "out.so")); err == nil {
				t.Error("a dry run leaves a file")
			}
		})
	}
}

// Gloo is built in on two conditions: libtorch is linked against Gloo, and Gloo's headers and library exist. If the
// code does not compile with these headers, the library is built without Gloo, and the build says so.
func TestBuildWithGloo(t *testing.T) {
	const headers, library = "include/gloo/allreduce.h", "lib/libgloo.so"
	for name, c := range map[string]struct {
		files map[string]string
		fails string // name of the source file that does not compile
		has   bool
	}{
		"all of it":        {map[string]string{headers: "", library: ""}, "", true},
		"no headers":       {map[string]string{library: ""}, "", false},
		"no library":       {map[string]string{headers: ""}, "", false},
		"another libtorch": {map[string]string{headers: "", library: "", "lib/libtorch_cpu.so": "libc10.so"}, "", false},
		"newer headers":    {map[string]string{headers: "", library: ""}, "gloo.cpp", false},
	} {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "with spaces", "torch")
			compiler := `#!/bin/sh
[ -z "` + c.fails + `" ] || case " $* " in *"/` + c.fails + ` "*) echo "error: no such Store" >&2; exit 1;; esac
for last; do :; done
case "$*" in *-shared*) shift 3; last=$1;; esac
echo "$*" >"$last"
echo "$*" >>"$CALLS"
`
			files := map[string]string{"include/ATen/core/Tensor.h": "", "lib/libtorch_cpu.so": "\x00libgloo.so.0\x00",
				"include/torch/csrc/api/include/torch/version.h": versionHeader("2.5.1"), "../cxx": compiler}
			for path, text := range c.files {
				files[path] = text
			}
			for path, text := range files {
				path = filepath.Join(root, path)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
					t.Fatal(err)
				}
			}
			calls := filepath.Join(root, "calls")
			t.Setenv("CALLS", calls)
			t.Setenv("TORCH_DIR", root)
			t.Setenv("CXX", filepath.Join(root, "../cxx"))
			out := filepath.Join(root, "out.so")
			said, err := exec.Command("sh", "../../native/build.sh", out).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			if _, err := os.Stat(out); err != nil {
				t.Error(err)
			}
			if without := strings.Contains(string(said), "going without them"); without != (c.fails != "") {
				t.Errorf("it says\n%s", said)
			}
			all, err := os.ReadFile(calls)
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range []string{"gloo.cpp -o", "-lgloo", ", Gloo\""} {
				if strings.Contains(string(all), line) != c.has {
					t.Errorf("%q is there: %v; want %v, in\n%s", line, !c.has, c.has, all)
				}
			}
		})
	}
}

// A libtorch given by a relative path is also found after the build changes folders.
func TestBuildAgainstARelativeFolder(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"torch/include/ATen/core/Tensor.h": "", "torch/lib/libtorch_cpu.so": "",
		"torch/include/torch/csrc/api/include/torch/version.h": versionHeader("2.5.1"),
	} {
		path = filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	script, err := filepath.Abs("../../native/build.sh")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TORCH_DIR", "torch")
	t.Setenv("CXX", "true")
	dry := exec.Command("sh", script, "--dry-run", "out.so")
	dry.Dir = root
	said, err := dry.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	for _, want := range []string{"-L" + root + "/torch/lib", "-rpath," + root + "/torch/lib",
		"-isystem " + root + "/torch/include "} {
		if !strings.Contains(string(said), want) {
			t.Errorf("there is no %q in\n%s", want, said)
		}
	}
}

// Folders that the compiler searches anyway are not passed to it, because it would then search them before its own
// folders.
func TestBuildNamesNoFolderOfTheSystem(t *testing.T) {
	root := t.TempDir()
	if _, err := os.Stat("/usr/include/torch/csrc/api/include/torch/version.h"); err != nil {
		t.Skip("there is no libtorch in /usr/include")
	}
	if err := errors.Join(os.Symlink("/usr/include", filepath.Join(root, "include")), os.Mkdir(filepath.Join(root, "lib"),
		0o755), os.WriteFile(filepath.Join(root, "lib", "libtorch_cpu.so"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TORCH_DIR", root)
	t.Setenv("CXX", "true")
	said, err := exec.Command("sh", "../../native/build.sh", "--dry-run", "out.so").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if folder := "-isystem " + root + "/include "; strings.Contains(string(said), folder) {
		t.Errorf("there is %q in\n%s", folder, said)
	}
}

// globalDeps finds libtorch_global_deps.so beside the libtorch that the shim was linked against, if that libtorch has
// CUDA.
func TestGlobalDeps(t *testing.T) {
	dir := t.TempDir()
	shim := filepath.Join(dir, "shim.so")
	if said, err := exec.Command("gcc", "-shared", "-o", shim, "-Wl,-rpath,/nowhere:"+dir, "-x", "c",
		"/dev/null").CombinedOutput(); err != nil {
		t.Skipf("no C compiler: %v %s", err, said)
	}
	deps := filepath.Join(dir, "libtorch_global_deps.so")
	if err := os.WriteFile(deps, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := globalDeps(shim); got != "" {
		t.Errorf("beside a libtorch without CUDA: %q", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "libtorch_cuda.so"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := globalDeps(shim); got != deps {
		t.Errorf("found %q, want %q", got, deps)
	}
	if got := globalDeps(deps); got != "" {
		t.Errorf("of a file that is no library: %q", got)
	}
}
