package clitest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/millrace-ml/millrace/engine/torch"
)

// AsProgram is an environment variable that makes a test binary run the program. fileLimit is an environment variable
// with a number of bytes: if a file reaches this size, writing it fails as on a full disk.
const (
	AsProgram = "MILLRACE_TEST_AS_PROGRAM"
	fileLimit = "MILLRACE_TEST_FILE_LIMIT"
)

// Main runs a package's tests, or the program if AsProgram is set. A test may call the program without a new process.
// If a verb then starts another process, that process is this binary without AsProgram, which would run all tests
// again. Main refuses to run as such a process.
func Main(m *testing.M, program func(args []string) int) {
	if os.Getenv(AsProgram) == "" {
		if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
			fmt.Fprintf(os.Stderr, "%s %s: a test calls a verb that starts another process; start it with Program.Command\n",
				os.Args[0], os.Args[1])
			os.Exit(2)
		}
		os.Exit(m.Run())
	}
	if most, err := strconv.ParseUint(os.Getenv(fileLimit), 10, 64); err == nil {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: most, Max: most}); err != nil {
			panic(err)
		}
	}
	os.Exit(program(os.Args[1:]))
}

// NeedTorch skips a test where libtorch is not installed.
func NeedTorch(t *testing.T) {
	t.Helper()
	if _, err := torch.Open(); err != nil {
		t.Skip("libtorch is not installed: ", err)
	}
}

// Tell runs the stories of a folder, each in a folder of its own. It runs several at once if `atOnce` is true.
func Tell(t *testing.T, stories, native string, atOnce bool) {
	cache := t.TempDir()
	datadriven.Walk(t, stories, func(t *testing.T, path string) {
		if atOnce {
			t.Parallel()
		}
		p := &Program{Dir: t.TempDir(), Native: native, Cache: cache}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "file":
				name := filepath.Join(p.Dir, d.CmdArgs[0].Key)
				if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(d.Input+"\n"),
					0o644)); err != nil {
					t.Fatal(err)
				}
				return ""
			case "cut": // keeps the first half of a file
				name := filepath.Join(p.Dir, d.CmdArgs[0].Key)
				text, err := os.ReadFile(name)
				if err == nil {
					err = os.WriteFile(name, text[:len(text)/2], 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
				return ""
			case "images": // a folder like MNIST's, with 20 and 5 black images
				if err := writeImages(filepath.Join(p.Dir, d.CmdArgs[0].Key)); err != nil {
					t.Fatal(err)
				}
				return ""
			case "ls":
				if len(d.CmdArgs) == 0 {
					return p.List(t, ".")
				}
				below := ""
				for _, dir := range d.CmdArgs {
					below += p.List(t, dir.Key)
				}
				return below
			case "run":
				p.FileLimit = ""
				d.MaybeScanArgs(t, "file-limit", &p.FileLimit)
				out := ""
				for line := range strings.SplitSeq(d.Input, "\n") {
					out += p.Run(t, strings.Fields(line), d.HasArg("quiet"))
				}
				return out
			}
			t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
			return ""
		})
	})
}

// Program runs the program in a folder.
type Program struct {
	Dir, Native, Cache string
	FileLimit          string // size in bytes at which writing a file fails as on a full disk; empty: none
}

// Command returns the program with these arguments.
func (p *Program) Command(t *testing.T, args []string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), self, args...)
	c.Dir = p.Dir
	c.Env = append(os.Environ(), AsProgram+"=1", "MILLRACE_NATIVE="+p.Native, "XDG_CACHE_HOME="+p.Cache,
		fileLimit+"="+p.FileLimit)
	return c
}

// Run returns what a command prints, and its exit code unless that is 0. If `quiet` is true, it returns only the
// warnings and errors, because other lines depend on the clock. It replaces the names of folders and leaves out blank
// lines.
func (p *Program) Run(t *testing.T, args []string, quiet bool) string {
	c := p.Command(t, args)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	code := ""
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = fmt.Sprintf("exit %d\n", exit.ExitCode())
	} else if err != nil {
		t.Fatal(err)
	}
	// A binary built without cgo suggests another remedy for the missing library.
	text := strings.NewReplacer(p.Dir, "DIR", p.Native, "NATIVE", torch.ErrNoCgo.Error(),
		torch.ErrNotFound.Error()).Replace(out.String())
	if quiet {
		kept := ""
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "millrace: ") || strings.HasPrefix(line, "millrace-lab: ") {
				kept += line
			}
		}
		text = kept
	}
	// A blank line would end the expected output.
	for strings.Contains(text, "\n\n") {
		text = strings.ReplaceAll(text, "\n\n", "\n")
	}
	return text + code
}

// List returns the files below a folder. It cuts names after "tfevents.", because a time follows there.
func (p *Program) List(t *testing.T, dir string) string {
	var names []string
	err := filepath.WalkDir(filepath.Join(p.Dir, dir), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(p.Dir, path)
		if at := strings.Index(name, "tfevents."); at >= 0 {
			name = name[:at+len("tfevents.")] + "..."
		}
		names = append(names, name+"\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return strings.Join(names, "")
}

// writeImages makes a folder of valid IDX files.
func writeImages(dir string) error {
	err := os.MkdirAll(dir, 0o755)
	for prefix, n := range map[string]byte{"train": 20, "t10k": 5} {
		images := append([]byte{0, 0, 8, 3, 0, 0, 0, n, 0, 0, 0, 28, 0, 0, 0, 28}, make([]byte, int(n)*28*28)...)
		labels := append([]byte{0, 0, 8, 1, 0, 0, 0, n}, make([]byte, n)...)
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, prefix+"-images-idx3-ubyte"), images, 0o644),
			os.WriteFile(filepath.Join(dir, prefix+"-labels-idx1-ubyte"), labels, 0o644))
	}
	return err
}

// Trainer returns the program with libtorch, in a folder of its own. It skips a test without libtorch.
func Trainer(t *testing.T) *Program {
	NeedTorch(t)
	native, _ := torch.Find()
	return &Program{Dir: t.TempDir(), Native: native, Cache: t.TempDir()}
}
