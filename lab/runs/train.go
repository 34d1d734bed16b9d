package runs

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millrace-ml/millrace/internal/crash"
)

// comparison holds this side and what its runs are compared with: another side, a file, or nothing.
type comparison struct {
	here       *side
	there      *side
	file       *hashes
	exceptions []exception
	jobs       int
}

// pair holds the outcomes of a run on both sides.
type pair struct {
	here, there outcome
}

// train trains the runs, several at a time, and prints a line for each in order. It reports whether all are as
// expected, and returns the hashes of the runs.
func (c *comparison) train(ctx context.Context, runs []run, out io.Writer) (fine bool, found map[string]hashOf) {
	done := make([]chan pair, len(runs))
	for i := range done {
		done[i] = make(chan pair, 1)
	}
	var next atomic.Int64
	var working sync.WaitGroup
	defer working.Wait()
	for range min(c.jobs, len(runs)) {
		working.Go(crash.Caught(func() {
			for i := next.Add(1) - 1; i < int64(len(runs)); i = next.Add(1) - 1 {
				done[i] <- c.both(ctx, runs[i])
			}
		}))
	}
	fine, found = true, map[string]hashOf{}
	count := map[string]int{}
	byName := map[string]outcome{}
	for i, r := range runs {
		m := <-done[i]
		if ctx.Err() != nil {
			return false, nil
		}
		byName[r.Name] = m.here
		v := c.verdict(r, m)
		ok, remark := judge(r.Name, v, c.exceptions)
		if m.here.err == nil {
			found[r.Name] = m.here.tensors.hashes()
		}
		say(out, r, v, remark, found[r.Name])
		if like, there := byName[r.Like]; there && like.err == nil && m.here.err == nil {
			if apart := apart(m.here.tensors, like.tensors); apart.Word != same {
				ok = false
				fmt.Fprintf(out, "%13s it must leave what %s leaves: %s\n", "", r.Like, apart.Why)
			}
		}
		count[v.Word]++
		fine = fine && ok
	}
	for _, word := range []string{left, same, differs, failsHere, failsThere, failsBoth} {
		if count[word] > 0 {
			fmt.Fprintf(out, "%d %s; ", count[word], word)
		}
	}
	c.summary(out, runs, fine)
	return fine, found
}

// summary completes the line with the counts of verdicts. It prints whether all runs are as they must be.
func (c *comparison) summary(out io.Writer, runs []run, fine bool) {
	named := 0
	for _, e := range c.exceptions {
		if slices.ContainsFunc(runs, func(r run) bool { return r.Name == e.Run }) {
			named++
		}
	}
	switch {
	case !fine:
		fmt.Fprintln(out, "NOT as it must be")
	case named > 0:
		fmt.Fprintf(out, "as it must be, with %d expected to differ\n", named)
	default:
		fmt.Fprintln(out, "as it must be")
	}
}

func (c *comparison) both(ctx context.Context, r run) (m pair) {
	m.here.tensors, m.here.err = c.here.play(ctx, r)
	if c.there != nil {
		m.there.tensors, m.there.err = c.there.play(ctx, r)
	}
	return m
}

func (c *comparison) verdict(r run, m pair) verdict {
	switch {
	case c.there != nil:
		return compare(m.here, m.there)
	case c.file != nil:
		return c.file.against(r.Name, m.here)
	case m.here.err != nil:
		return verdict{Word: failsHere, Apart: math.Inf(1), Why: m.here.err.Error()}
	}
	return verdict{Word: left}
}

// say prints a run's line.
func say(out io.Writer, r run, v verdict, remark string, found hashOf) {
	switch {
	case v.Word == left:
		fmt.Fprintf(out, "%s %s  %s\n", short(found.Weights), short(found.State), r.Name)
		return
	case v.Why != "":
		fmt.Fprintf(out, "%-13s %s: %s\n", v.Word, r.Name, v.Why)
	default:
		fmt.Fprintf(out, "%-13s %s\n", v.Word, r.Name)
	}
	if remark != "" {
		fmt.Fprintf(out, "%13s %s\n", "", remark)
	}
}
