// Command left measures the precision of the remaining time that verbs show. It runs verbs that record their progress,
// replays the recordings, and prints the factor by which the remaining time was wrong. The recordings can become tests
// of package progress.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/progress"
)

func main() {
	dir := flag.String("in", "", "the folder to work and record in (it stays)")
	bin := flag.String("bin", "bin", "the folder of millrace and millrace-lab")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "usage: left --in FOLDER [--bin FOLDER] < COMMANDS\n"+
			"       left RECORDING...\n\n"+
			"COMMANDS are lines of a name, and of millrace or millrace-lab with flags.\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := all(ctx, *dir, *bin, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "left:", err)
		os.Exit(1)
	}
}

// all runs each command, or takes existing recordings, and prints a row for each recording.
func all(ctx context.Context, dir, bin string, recordings []string) error {
	if dir == "" && len(recordings) == 0 {
		return errors.New("--in names the folder to work in; give one")
	}
	fmt.Printf("| command | took | said from | for | off by at most | off by more than 1.5 for |\n" +
		"|---|---:|---:|---:|---:|---:|\n")
	for _, path := range recordings {
		if err := row(filepath.Base(path), path); err != nil {
			return err
		}
	}
	if len(recordings) > 0 {
		return nil
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] == "#" {
			continue
		}
		recorded, err := run(ctx, filepath.Join(bin, words[1]), words[2:], dir, words[0])
		if err != nil {
			fmt.Printf("| %s | | %v | | | |\n", words[0], err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for _, path := range recorded {
			if err := row(filepath.Base(path), path); err != nil {
				return err
			}
		}
	}
	return nil
}

// run runs a command, and keeps its recordings in files whose names begin with `name`.
func run(ctx context.Context, program string, args []string, dir, name string) (files []string, err error) {
	into, remove, err := document.Scratch("millrace-left-")
	if err != nil {
		return nil, err
	}
	defer remove()
	c := exec.CommandContext(ctx, program, args...)
	c.Dir = dir
	c.Env = append(os.Environ(), progress.RecordTo+"="+into, "XDG_CACHE_HOME="+filepath.Join(dir, "cache"))
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c.Stdout, c.Stderr = log, log
	failed := c.Run()
	ended := time.Now()
	found, err := filepath.Glob(filepath.Join(into, "*.jsonl"))
	var texts [][]byte
	for _, path := range found {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	slices.SortFunc(texts, func(a, b []byte) int { return beginning(a).Compare(beginning(b)) })
	for i, text := range texts {
		// The recording of the command itself lasts until the command ends, including what follows its last piece of
		// work. Other recordings are of child processes, which end earlier.
		if i == len(texts)-1 || underWay(text) {
			text = fmt.Appendf(text, "{\"at\":%.4f,\"end\":true}\n", ended.Sub(beginning(text)).Seconds())
		}
		to := filepath.Join(dir, fmt.Sprintf("%s-%d.jsonl", name, len(files)))
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return nil, err
		}
		files = append(files, to)
	}
	return files, errors.Join(failed, err)
}

// underWay reports whether a recording ends during a piece of work.
func underWay(text []byte) bool {
	events, err := progress.ReadRecording(strings.NewReader(string(text)))
	return err == nil && len(events) > 0 && events[len(events)-1].Begin != nil
}

// beginning returns when a recording began.
func beginning(text []byte) time.Time {
	events, err := progress.ReadRecording(strings.NewReader(string(text)))
	if err != nil || len(events) == 0 || events[0].Began == nil {
		return time.Now()
	}
	return *events[0].Began
}

// row prints how precise the remaining time of a recorded command was.
func row(name, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	events, err := progress.ReadRecording(f)
	if err != nil || len(events) < 3 {
		return err
	}
	total := events[len(events)-1].At
	off, from, asked, outside := 1.0, math.Inf(1), 0, 0
	progress.Replay(events, total, func(at, left float64) {
		from = min(from, at/total)
		if asked++; total-at < total/10 {
			return
		}
		ratio := max(left/(total-at), (total-at)/left)
		if off = max(off, ratio); ratio > 1.5 {
			outside++
		}
	})
	said := fmt.Sprintf("%.0f %%", 100*from)
	if asked == 0 {
		said, off = "never", math.NaN()
	}
	fmt.Printf("| %s | %.1f s | %s | %.1f %% | %.2f | %.1f %% |\n", name, total, said, float64(asked)/2, off,
		float64(outside)/2)
	return nil
}
