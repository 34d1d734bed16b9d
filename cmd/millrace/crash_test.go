package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/internal/document"
)

// faultyCommands returns verbs that exist only in tests and misbehave.
func faultyCommands() []*cobra.Command {
	return []*cobra.Command{
		{Use: "panics", RunE: func(*cobra.Command, []string) error { panic("a line\nand another") }},
		{Use: "panics-beside", RunE: func(c *cobra.Command, _ []string) error {
			crash.Go(func() { panic("beside") })
			<-c.Context().Done()
			return nil
		}},
		{Use: "panics-in-run", RunE: func(*cobra.Command, []string) error {
			cli.ReportsTo(".")
			return cli.BadInput(fmt.Errorf("worker 1: %w", crash.Guard(func() error { return []error{}[runtime.NumCPU()] })))
		}},
		{Use: "deaf", RunE: func(*cobra.Command, []string) error {
			return document.Write("half.json", func(w io.Writer) error {
				fmt.Fprintln(os.Stderr, "writing")
				select {}
			})
		}},
		{Use: "saves-for-ever", RunE: func(c *cobra.Command, _ []string) error {
			return errors.Join(cli.FinishesItsStep(c), document.Write("half.json", func(w io.Writer) error {
				fmt.Fprintln(os.Stderr, "writing")
				select {}
			}))
		}},
	}
}

// A panic on any goroutine ends the program with exit code 1, and with one line that names a file to send. The file has
// the stack, versions and the command line without its secrets.
func TestAPanicIsOneLineAndAFileToSend(t *testing.T) {
	for verb, want := range map[string]string{
		"panics":        "panic: a line and another",
		"panics-beside": "panic: beside",
		"panics-in-run": "worker 1: panic: runtime error: index out of range",
	} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			tmp := t.TempDir()
			p := &clitest.Program{Dir: t.TempDir(), Cache: t.TempDir()}
			c := p.Command(t, []string{verb})
			c.Env = append(c.Env, "TMPDIR="+tmp)
			out, _ := c.CombinedOutput()
			line := regexp.MustCompile(
				`^millrace: internal error in millrace (\S+): (.*); please send (\S+)\n$`).FindStringSubmatch(string(out))
			if c.ProcessState.ExitCode() != cli.ExitFailed || line == nil || line[1] != verb ||
				!strings.HasPrefix(line[2], want) {
				t.Fatalf("exit %d, said\n%s", c.ProcessState.ExitCode(), out)
			}
			folder := tmp
			if verb == "panics-in-run" {
				folder = p.Dir
			}
			text, err := os.ReadFile(filepath.Join(folder, filepath.Base(line[3])))
			if err != nil {
				t.Fatal(err)
			}
			for _, needed := range []string{"command: " + verb + "\n", "crash_test.go", runtime.Version(),
				"all goroutines:", want} {
				if !strings.Contains(string(text), needed) {
					t.Errorf("%s does not say %q:\n%.2000s", line[3], needed, text)
				}
			}
		})
	}
}

func TestSecretsAreLeftOut(t *testing.T) {
	args := strings.Fields("train --metrics 0.0.0.0:1 --token abc --password=def --token-file f --name token " +
		"--tokenizer gpt2")
	if got := strings.Join(cli.WithoutSecrets(args), " "); got != "train --metrics 0.0.0.0:1 --token *** --password=*** "+
		"--token-file f --name token --tokenizer gpt2" {
		t.Error(got)
	}
}

// When a process is killed, the process that measures for it ends as well.
func TestAKilledProcessMeasuresNoMore(t *testing.T) {
	t.Parallel()
	p := clitest.Trainer(t)
	// The model is so large that measuring it takes longer than the test waits.
	c := p.Command(t, strings.Fields("train --model mlp --set hidden=2048,2048 --data digits --batch 4096 "+
		"--micro-batches 1 --workers 2 --steps 1 --out run"))
	c.Env = append(c.Env, "TMPDIR="+t.TempDir()) // for the job file of the measuring process
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	}()
	child := 0
	for began := time.Now(); child == 0; time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("nothing measures")
		}
		for pid := range childrenOf(c.Process.Pid) {
			child = pid
		}
	}
	measuring, err := os.FindProcess(child) // a handle, because the process id may be reused
	if err != nil {
		t.Fatal(err)
	}
	_, _, begun := state(child)
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if runs, _, since := state(child); !runs || since != begun {
			break
		}
		if time.Since(began) > 20*time.Second {
			_ = measuring.Kill()
			t.Fatal("it goes on measuring")
		}
	}
}
