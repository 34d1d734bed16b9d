package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
)

// shell is a shell at a terminal.
type shell struct {
	*testing.T
	at   *os.File
	mu   sync.Mutex
	said bytes.Buffer
}

// openTerminal opens a terminal and returns both sides; a program is started at the side `other`.
func openTerminal(t *testing.T, columns uint16) (at, other *os.File) {
	at, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("there are no terminals here: ", err)
	}
	n, err := unix.IoctlGetInt(int(at.Fd()), unix.TIOCGPTN)
	err = errors.Join(err, unix.IoctlSetPointerInt(int(at.Fd()), unix.TIOCSPTLCK, 0),
		unix.IoctlSetWinsize(int(at.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: columns}))
	if err != nil {
		t.Fatal(err)
	}
	if other, err = os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Skip("there are no terminals here: ", err)
	}
	return at, other
}

// atTerminal starts a program at a new terminal, with an environment confined to the folder `dir`.
func atTerminal(t *testing.T, dir string, args []string, env ...string) *shell {
	at, other := openTerminal(t, 120)
	defer other.Close()
	c := exec.CommandContext(t.Context(), args[0], args[1:]...)
	c.Dir, c.Stdin, c.Stdout, c.Stderr = dir, other, other, other
	c.Env = append([]string{"HOME=" + dir, "ZDOTDIR=" + dir, "XDG_CONFIG_HOME=" + dir, "XDG_DATA_HOME=" + dir,
		"XDG_CACHE_HOME=" + dir, "PATH=" + dir + ":" + os.Getenv("PATH"), "TERM=xterm", "LC_ALL=C.UTF-8"}, env...)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	s := &shell{T: t, at: at}
	read := make(chan struct{})
	go func() {
		defer close(read)
		some := make([]byte, 4096)
		for {
			n, err := at.Read(some)
			if err != nil {
				return
			}
			s.mu.Lock()
			s.said.Write(some[:n])
			s.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = c.Process.Kill() // its children get a hangup from the terminal
		_ = c.Wait()
		at.Close()
		<-read
	})
	return s
}

// types writes keys to the terminal, and returns the arguments with which the shell then starts the program.
func (t *shell) types(keys, answer string) []string {
	t.Helper()
	if _, err := t.at.WriteString(keys); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		text, err := os.ReadFile(answer)
		if err == nil {
			if err := os.Remove(answer); err != nil {
				t.Fatal(err)
			}
			return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		}
		if !errors.Is(err, fs.ErrNotExist) || time.Since(began) > 3*time.Minute {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.Fatalf("%q starts nothing: %v; the terminal has\n%s", keys, err, t.said.String())
		}
	}
}

// Shells that have read the completion script complete a line that is typed at a terminal, and run the line. zsh has
// not loaded its completions here, and bash has not loaded its completion library.
func TestShellsComplete(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const library = "/usr/share/bash-completion/bash_completion"
	for name, c := range map[string]struct{ name, settings, load string }{
		"bash":         {"bash", ".bashrc", "source <(millrace completion bash)"},
		"bash-library": {"bash", ".bashrc", ". " + library + "; source <(millrace completion bash)"},
		"zsh":          {"zsh", ".zshrc", "source <(millrace completion zsh)"},
		"fish":         {"fish", "fish/config.fish", "millrace completion fish | source"},
	} {
		t.Run(name, func(t *testing.T) {
			program, err := exec.LookPath(c.name)
			if err != nil {
				t.Skip(c.name + " is not installed")
			}
			if _, err := os.Stat(library); err != nil && name == "bash-library" {
				t.Skip("bash-completion is not installed")
			}
			t.Parallel()
			dir := t.TempDir()
			answer := filepath.Join(dir, "answer")
			for name, text := range map[string]string{
				c.settings: c.load + "\n",
				// This script completes as the program does, and writes its arguments to a file when started.
				"millrace": fmt.Sprintf("#!/bin/sh\ncase $1 in __complete*|completion) %s=1 exec %q \"$@\";; esac\n"+
					"printf '%%s\\n' \"$@\" >%[3]q.new && mv %[3]q.new %[3]q\n", clitest.AsProgram, self, answer),
				"own.yaml": "", "two words.csv": "", "plan.json": "{}", "planned.txt": "",
				"runs/gpt/metrics.jsonl":                           "",
				"runs/gpt/checkpoints/step-00000020/manifest.json": "{}",
			} {
				path := filepath.Join(dir, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
					t.Fatal(err)
				}
			}
			term := atTerminal(t, dir, []string{program, "-i"})
			term.types("millrace ready\r", answer)
			for _, line := range []struct{ typed, want string }{
				{"tr", "train"},
				{"train --mod", "train|--model"},
				{"train --model conv", "train|--model|convnet"},
				{"train --model=conv", "train|--model=convnet"},
				{"plan --cluster dapple-a", "plan|--cluster|dapple-a"},
				{"schedule zb-aut", "schedule|zb-auto"},
				{"train --recompute every:4", "train|--recompute|every:4"},
				{"export --to meg", "export|--to|megatron"},
				{"import --from piped", "import|--from|pipedream"},
				{"train --data two", "train|--data|two words.csv"},
				{"train --model ~/ow", "train|--model|" + dir + "/own.yaml"},
				{"train --model mlp --freeze dense0.w", "train|--model|mlp|--freeze|dense0.weight"},
				{"checkpoint show runs/gpt/", "checkpoint|show|runs/gpt/checkpoints/step-00000020"},
			} {
				got := term.types("millrace "+line.typed+"\t\r", answer)
				if want := strings.Split(line.want, "|"); !slices.Equal(got, want) {
					t.Errorf("%s and a tab starts %q, want %q", line.typed, got, want)
				}
			}
			// A plan is a .json file; only fish also offers other files.
			if c.name != "fish" {
				if got := term.types("millrace simulate --plan pla\t\r", answer); !slices.Equal(got,
					[]string{"simulate", "--plan", "plan.json"}) {
					t.Errorf("a plan's file is completed to %q", got)
				}
			}
		})
	}
}
