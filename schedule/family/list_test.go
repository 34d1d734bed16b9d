package family

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/millrace-ml/millrace/schedule"
)

// TestRulesAreTheOrders writes each order from its definition, worker by worker, and compares it with the result of its
// rule.
func TestRulesAreTheOrders(t *testing.T) {
	for _, S := range []int{1, 2, 3, 4, 8} {
		for _, M := range []int{1, 2, 3, S, 2 * S, 4*S + 1} {
			for name, depth := range map[string]func(i int) int{
				"afab": func(int) int { return M }, "1f1b": func(i int) int { return S - i },
				"1f1b-as": func(i int) int { return S - i },
				"pb":      func(i int) int { return 2*(S-i) - 1 }, "fbp-as": func(i int) int { return 2*(S-i) - 1 },
				"so": func(i int) int { return 2 * (S - i) },
				"mp": func(int) int { return 1 }, "zb-h1": func(i int) int { return S - i },
				"zb-h2": func(i int) int { return 2*(S-i) - 1 },
			} {
				p, err := Generate(name, schedule.Settings{Placement: schedule.Replicated(S, 1), MicroBatches: M})
				if err != nil {
					t.Fatal(err)
				}
				var want schedule.Part
				for i := range S {
					if name == "zb-h1" || name == "zb-h2" {
						want = append(want, definedZeroBubble(i, M, depth(i), depth(0)-depth(i)))
					} else {
						want = append(want, definedOneF1B(i, M, depth(i)))
					}
				}
				if d := cmp.Diff(want, p.Body); d != "" {
					t.Fatalf("%s S=%d M=%d: %s", name, S, M, d)
				}
			}
			for v := 2; v <= 4; v++ {
				for _, name := range []string{"bfs", "interleaved"} {
					if S == 1 || name == "interleaved" && M%S != 0 {
						continue
					}
					p, err := Generate(name, schedule.Settings{Placement: schedule.Wrap(S, v), MicroBatches: M})
					if err != nil {
						t.Fatal(err)
					}
					if got, want := fmt.Sprint(p.Body), fmt.Sprint(definedChunks(name, S, v, M)); got != want {
						t.Fatalf("%s S=%d v=%d M=%d:\n%s\nwant\n%s", name, S, v, M, got, want)
					}
				}
			}
		}
	}
}

func definedOneF1B(stage, M, K int) schedule.List {
	var out schedule.List
	at := schedule.Instruction{Stage: int32(stage)}
	next := func(k schedule.Kind, m int) { at.Kind, at.Micro = k, int32(m); out = append(out, at) }
	f := 0
	for ; f < min(K, M); f++ {
		next(schedule.F, f)
	}
	for b := range M {
		next(schedule.B, b)
		if f < M {
			next(schedule.F, f)
			f++
		}
	}
	return out
}

func definedZeroBubble(stage, M, K, late int) schedule.List {
	var out schedule.List
	at := schedule.Instruction{Stage: int32(stage)}
	next := func(k schedule.Kind, m int) { at.Kind, at.Micro = k, int32(m); out = append(out, at) }
	f, w := 0, 0
	for ; f < min(K, M); f++ {
		next(schedule.F, f)
	}
	for b := range M {
		next(schedule.I, b)
		if b-w >= late {
			next(schedule.W, w)
			w++
		}
		if f < M {
			next(schedule.F, f)
			f++
		}
	}
	for ; w < M; w++ {
		next(schedule.W, w)
	}
	return out
}

// definedChunks returns the looped breadth-first order for name bfs, or else Megatron-LM's interleaving. There are p
// workers, v chunks on each, and M micro-batches. In the interleaving, worker i runs 2*(p-i-1) + (v-1)*p forwards
// before its first pair.
func definedChunks(name string, p, v, M int) schedule.Part {
	out := make(schedule.Part, p)
	for i := range p {
		var forwards, backwards schedule.List
		add := func(to *schedule.List, k schedule.Kind, chunk, m int) {
			*to = append(*to, schedule.Instruction{Stage: int32(chunk*p + i), Kind: k, Micro: int32(m)})
		}
		if name == "bfs" {
			for c := range v {
				for m := range M {
					add(&forwards, schedule.F, c, m)
					add(&backwards, schedule.B, v-1-c, m)
				}
			}
			out[i] = append(forwards, backwards...)
			continue
		}
		for group := 0; group < M; group += p {
			for c := range v {
				for m := group; m < group+p; m++ {
					add(&forwards, schedule.F, c, m)
					add(&backwards, schedule.B, v-1-c, m)
				}
			}
		}
		warm := min(len(forwards), 2*(p-i-1)+(v-1)*p)
		out[i] = append(out[i], forwards[:warm]...)
		for k := range backwards {
			if warm+k < len(forwards) {
				out[i] = append(out[i], forwards[warm+k])
			}
			out[i] = append(out[i], backwards[k])
		}
	}
	return out
}
