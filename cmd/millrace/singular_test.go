package main

import (
	"regexp"
	"strings"
	"testing"
)

// Counts of one are printed in the singular: in output, in tables of refusals, and in errors.
func TestOneIsSingular(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	plural := regexp.MustCompile(`(?m)(^|[ (])1 (workers|stages|layers|devices|micro-batches|minibatches|samples|steps|bytes|` +
		`pipelines|hosts|cores|rows|processes|updates|replicas|threads|plans|settings|runs|checkpoints|classes)\b`)
	const mlp = "--model mlp --data digits --profile mlp.json --batch 4 --workers 1 "
	for _, c := range []struct {
		line string
		good bool
	}{
		{"schedule 1f1b --workers 1 --micro-batches 1", true},
		{"schedule compare --workers 1 --micro-batches 1", true},
		{"plan --model gpt --cluster avgpipe:1x1 --batch 1 --explain -o plan.json", true},
		{"plan --model gpt --cluster avgpipe:1x1 --batch 1 --planner dapple", true},
		{"plan --model gpt --cluster avgpipe:1x1 --batch 1 --planner bapipe", true},
		{"simulate --model gpt --cluster avgpipe:1x1 --plan plan.json", true},
		{"cluster show avgpipe:1x1", true},
		{"plan --model gpt --cluster avgpipe:1x1 --batch 1 --stages 3", false},
		{"plan --model gpt --cluster avgpipe:1x2 --batch 1 --micro-batches 2", false},
		{"schedule chimera --workers 1 --micro-batches 1", false},
		{"schedule dp-async --workers 1 --micro-batches 1", false},
		{"schedule asp --workers 1 --micro-batches 1", false},
		{"train --micro-batch 4 --steps 1 --eval-rows 1 --lr-warmup 1 --out run " + mlp, true},
		{"report run", true},
		{"checkpoint show run", true},
		{"data show digits", true},
	} {
		said := p.Run(t, strings.Fields(c.line), false)
		if good := !strings.Contains(said, "exit "); good != c.good {
			t.Errorf("%s: it ends well: %v; it says\n%s", c.line, good, said)
		}
		if found := plural.FindAllString(said, -1); found != nil {
			t.Errorf("%s: it says %q in\n%s", c.line, found, said)
		}
	}
}
