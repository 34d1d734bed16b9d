package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// target is a valid input to mutate, with the commands that read it.
type target struct {
	name   string // name of the fixture, and of its copy in the attack's folder
	beside string // the folder of fixtures that contains it, and that is copied with it; empty: none
	packed bool   // the decompressed content is mutated
	weight int    // its weight in the random choice of a target; small if its commands are slow
	reads  []string
}

// table is the beginning of the command line for a training on table.csv. Its mlp is smaller than that of the other
// trainings.
const table = "train --model mlp --set inputs=3 --set hidden=4 --set classes=3 --batch 4 --steps 1 --eval-rows 2 " +
	"--workers 1 --profile @table.json --out out "

// once is the beginning of the command line for a training of one step. The mlp is the same as in the other trainings.
const once = "train --model mlp --data digits --profile @mlp.json --eval-rows 8 --steps 1 --out out "

const goOn = "train --model mlp --data digits @P --schedule 1f1b --steps 5 --out out --resume " + lastSaved

const lastSaved = "run/checkpoints/step-00000004"

var targets = []target{
	{name: "program.txt", weight: 12, reads: []string{
		"schedule --program program.txt", "export --to torch-csv --program program.txt", "schedule program.txt --text",
		once + "--batch 12 --stages 2 --program program.txt"}},
	{name: "program.json", weight: 8, reads: []string{
		"schedule --program program.json", "schedule program.json --clip --text"}},
	{name: "schedule.csv", weight: 6, reads: []string{
		"import --from torch-csv schedule.csv", "schedule --program schedule.csv"}},
	{name: "plan.json", weight: 10, reads: []string{
		"simulate --model mlp --profile @mlp.json --batch 8 --plan plan.json", "export --to deepspeed --plan plan.json",
		"export --to torch-csv --plan plan.json", "export --to split-points --profile @mlp.json --plan plan.json",
		once + "--batch 8 --plan plan.json"}},
	{name: "gpt-plan.json", weight: 5, reads: []string{
		"simulate --model gpt --cluster @cluster.yaml --batch 8 --plan gpt-plan.json",
		"export --to megatron --model gpt --plan gpt-plan.json"}},
	{name: "mlp.json", weight: 10, reads: []string{
		"plan --model mlp --profile mlp.json --batch 8 --stages 2 --schedule 1f1b",
		"simulate --model mlp --profile mlp.json --batch 8 --plan @plan.json",
		"schedule compare --profile mlp.json --cluster @cluster.yaml --micro-batch 4 --only 1f1b,zb-h1"}},
	{name: "gpt.json", weight: 5, reads: []string{
		"plan --model gpt --profile gpt.json --cluster @cluster.yaml --batch 8 --schedule 1f1b --micro-batches 4",
		"plan --model gpt --profile gpt.json --cluster @cluster.yaml --batch 8 --planner pipedream",
		"plan --model gpt --profile gpt.json --cluster @cluster.yaml --batch 8 --planner dapple"}},
	{name: "cluster.yaml", weight: 8, reads: []string{
		"plan --model mlp --cluster cluster.yaml --batch 8",
		"profile --model mlp --analytic --cluster cluster.yaml --batch 8",
		"plan --model mlp --profile @mlp.json --batch 8 --stages 2 --schedule 1f1b --wire cluster.yaml"}},
	{name: "board.yaml", weight: 5, reads: []string{
		"plan --model mlp --cluster board.yaml --batch 8",
		"plan --model mlp --cluster board.yaml --batch 8 --planner bapipe"}},
	{name: "model.yaml", weight: 10, reads: []string{
		"plan --model model.yaml --cluster @cluster.yaml --batch 8",
		"profile --model model.yaml --analytic --cluster @cluster.yaml --batch 8"}},
	{name: "job.yaml", weight: 10, reads: []string{
		"plan --job job.yaml --cluster @cluster.yaml", "train job.yaml --profile @mlp.json --steps 1 --out out"}},
	{name: "nested.yaml", weight: 10, reads: []string{
		"plan --job nested.yaml --cluster @cluster.yaml", "train nested.yaml --profile @mlp.json --steps 1 --out out"}},
	{name: "graph.txt", weight: 8, reads: []string{
		"import --from pipedream --batch 32 graph.txt", "import --from pipedream --batch 1 graph.txt -o p.json"}},
	{name: "dapple.txt", weight: 4, reads: []string{"import --from dapple --batch 32 dapple.txt"}},
	{name: "piper.json", weight: 8, reads: []string{"import --from piper --batch 1 piper.json"}},
	{name: "run/timeline.json.gz", beside: "run", packed: true, weight: 8, reads: []string{
		"report run", "report run --json"}},
	{name: "run/timeline.json.gz", beside: "run", weight: 3, reads: []string{"report run"}},
	{name: "run/predicted.json.gz", beside: "run", packed: true, weight: 4, reads: []string{"report run"}},
	{name: "run/plan.json", beside: "run", weight: 3, reads: []string{"report run"}},
	{name: "run/profile.json", beside: "run", weight: 3, reads: []string{"report run"}},
	{name: "table.csv", weight: 5, reads: []string{table + "--data table.csv"}},
	{name: lastSaved + "/manifest.json", beside: "run", weight: 4, reads: []string{goOn}},
	{name: lastSaved + "/stage-000.safetensors", beside: "run", weight: 4, reads: []string{goOn}},
}

// changedCheckpoint reports whether a target belongs to a checkpoint, whose checksums must detect every change.
func (t *target) changedCheckpoint() bool { return strings.Contains(t.name, "checkpoints/") }

// attackMutated runs commands on valid inputs that were changed at random.
func attackMutated(ctx context.Context, a *attack, want int) (*tally, error) {
	t := &tally{want: want}
	from, to := 0, want
	if a.one != "" {
		n, err := strconv.Atoi(a.one)
		if err != nil {
			return nil, fmt.Errorf("attack: --case %q; it is the number of a mutation", a.one)
		}
		from, to, t.want = n, n+1, 1
	}
	var mu sync.Mutex
	codes := map[int]int{}
	err := a.each(ctx, to-from, func(i int) error {
		code, f, err := a.attackMutation(ctx, from+i)
		if err != nil {
			return fmt.Errorf("mutation %d: %w", from+i, err)
		}
		t.add(f)
		mu.Lock()
		defer mu.Unlock()
		codes[code]++
		return nil
	})
	t.say("%d of them passed, %d failed, %d were refused", codes[0], codes[1], codes[2])
	return t, err
}

// attackMutation makes the mutation with this number, which seeds all random choices.
func (a *attack) attackMutation(ctx context.Context, number int) (code int, f *finding, err error) {
	r := seeded(a.seed, uint64(number))
	of := drawTarget(r)
	home, err := os.MkdirTemp(a.scratch, "mutated-")
	if err != nil {
		return 0, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(home)) }()
	dir := filepath.Join(home, "work")
	copied := cmp.Or(of.beside, of.name)
	if err := (&file{path: copied, maker: []string{"copy", copied}}).make(dir, a.fixtures); err != nil {
		return 0, nil, err
	}
	path := filepath.Join(dir, of.name)
	text, err := os.ReadFile(path)
	if of.packed {
		text, err = unpacked(path)
	}
	if err != nil {
		return 0, nil, err
	}
	changed, how := mutate(text, r)
	same := bytes.Equal(text, changed)
	if of.packed {
		changed = packed(changed)
	}
	if err := os.WriteFile(path, changed, 0o644); err != nil {
		return 0, nil, err
	}
	c := command{dir: dir, home: home, args: a.words(strings.Fields(of.reads[r.IntN(len(of.reads))])), limits: brief}
	before, err := treeOf(home)
	if err != nil {
		return 0, nil, err
	}
	e, err := a.run(ctx, c)
	if err != nil {
		return 0, nil, err
	}
	after, err := treeOf(home)
	if err != nil {
		return 0, nil, err
	}
	wrong := e.faults(c.limits)
	switch {
	case len(wrong) > 0:
	case of.changedCheckpoint() && !same && e.code != 2:
		wrong = append(wrong, fmt.Sprintf("ended with %d on a checkpoint that was changed (%s)", e.code, how))
	case e.code == 1 && !excused(e.err):
		wrong = append(wrong, fmt.Sprintf("ended with 1 and not with 2 on bad input: %s", e.last()))
	case e.code == 2:
		wrong = after.changes(before, inCacheOrTemporary)
	default:
		wrong = after.halfWritten(before)
	}
	name := fmt.Sprintf("mutation %d of %s: %s", number, of.name, how)
	if f = a.found(name, c, e, wrong); f != nil {
		f.name = fmt.Sprintf("mutation %d", number)
		err = a.keepFolder(f, home)
		f.name = name
	}
	return e.code, f, err
}

// inCacheOrTemporary reports whether a refused or stopped command may leave the file or folder at this path. It may
// leave anything in the cache, and the folder for temporary files itself.
func inCacheOrTemporary(path string) bool { return inCache(path) || path == "tmp" }

// excused reports whether a command may end with exit code 1 after it has read a mutated input. It may if the input's
// numbers are valid, but training with them produces values that are not finite.
func excused(said []byte) bool {
	for _, reason := range []string{"NaN", "Inf", "not finite"} {
		if bytes.Contains(said, []byte(reason)) {
			return true
		}
	}
	return false
}

func drawTarget(r *rand.Rand) *target {
	all := 0
	for _, t := range targets {
		all += t.weight
	}
	at := r.IntN(all)
	for i := range targets {
		if at -= targets[i].weight; at < 0 {
			return &targets[i]
		}
	}
	return nil // unreachable: `at` is below the sum
}
