package importer

import (
	"math"
	"strconv"
	"strings"
)

// maxNodes is the largest number of nodes, including inputs. It is checked before the graph is built.
const maxNodes = 200_000

// readText reads the text form. It has a line for each node,
//
//	id -- description -- forward_compute_time=F, backward_compute_time=B, activation_size=A, parameter_size=P
//
// where A is a number or a list [a; b; c], and ` -- stage_id=K` may follow. It has a line for each edge: a tab and `id
// -- id`. DAPPLE's form differs in two ways: blank lines are skipped, and the line of an edge may begin with a space
// instead of a tab.
func readText(path, text string, dapple bool) (*graph, error) {
	g := newGraph(path)
	type wanted struct {
		line     int
		from, to string
	}
	var edges []wanted
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\r\n")
		switch {
		case strings.TrimSpace(line) == "":
			if !dapple && number < strings.Count(text, "\n") {
				return nil, g.errorf(number, "a blank line; PipeDream's form has none (DAPPLE's has: --from dapple)")
			}
		case line[0] == '\t' || dapple && line[0] == ' ':
			from, to, ok := strings.Cut(strings.TrimSpace(line), " -- ")
			if !ok || strings.Contains(to, " -- ") {
				return nil, g.errorf(number, "edge %q; it must be: a tab, an id, \" -- \" and an id",
					strings.TrimSpace(line))
			}
			edges = append(edges, wanted{number, strings.TrimSpace(from), strings.TrimSpace(to)})
		case line[0] == ' ':
			return nil, g.errorf(number, "begins with a space; edges of PipeDream's form begin with a tab (DAPPLE's "+
				"may begin with a space: --from dapple)")
		default:
			if err := g.addNode(number, line); err != nil {
				return nil, err
			}
		}
	}
	if len(g.nodes) == 0 {
		return nil, g.errorf(1, "there are no nodes in the file; their lines are: id -- description -- "+
			"forward_compute_time=...")
	}
	for _, e := range edges {
		from, known := g.index[e.from]
		if !known {
			return nil, g.errorf(e.line, "edge from %q, which is no node", e.from)
		}
		to, known := g.index[e.to]
		if !known {
			return nil, g.errorf(e.line, "edge to %q, which is no node", e.to)
		}
		if from == to {
			return nil, g.errorf(e.line, "the graph has a cycle: %s -> %s; a model's graph has none", e.from, e.to)
		}
		g.connect(from, to)
	}
	g.removeUnplanned()
	return g, nil
}

// addNode reads the line of a node. Descriptions may contain commas and parentheses.
func (g *graph) addNode(number int, line string) error {
	fields := strings.Split(line, " -- ")
	if len(fields) < 3 || len(fields) > 4 || len(fields) == 4 && !strings.HasPrefix(fields[3], "stage_id=") {
		return g.errorf(number, "%d fields between \" -- \"; a node has an id, a description, its costs and perhaps "+
			"a stage_id", len(fields))
	}
	id := strings.TrimSpace(fields[0])
	if id == "" {
		return g.errorf(number, "a node without an id")
	}
	if at, twice := g.index[id]; twice {
		return g.errorf(number, "node %s is there already, in line %d", id, g.nodes[at].line)
	}
	if len(g.nodes) >= maxNodes {
		return g.errorf(number, "more than %d nodes; no more are read", maxNodes)
	}
	n := node{id: id, kind: fields[1], line: number}
	given := map[string]bool{}
	for word := range strings.SplitSeq(strings.TrimSpace(fields[2]), ", ") {
		name, text, ok := strings.Cut(word, "=")
		if !ok {
			return g.errorf(number, "node %s: %q; costs are name=value with \", \" between", id, word)
		}
		if given[name] {
			return g.errorf(number, "node %s: %s is given twice", id, name)
		}
		given[name] = true
		value, fine := amount(text, name == "activation_size")
		var whole int64
		if fine && strings.HasSuffix(name, "_size") {
			whole, fine = bytes(value)
		}
		if !fine {
			return g.errorf(number, "node %s: %s is %s; it must be a number, 0 or more", id, name, text)
		}
		switch name {
		case "forward_compute_time":
			n.forwardS = value / 1000
		case "backward_compute_time":
			n.backwardS = value / 1000
		case "activation_size":
			n.output, n.saved = whole, whole
		case "parameter_size":
			n.parameters = whole
		default:
			return g.errorf(number, "node %s: unknown cost %q; there are forward_compute_time, "+
				"backward_compute_time, activation_size and parameter_size", id, name)
		}
	}
	for _, name := range []string{"forward_compute_time", "backward_compute_time", "activation_size",
		"parameter_size"} {
		if !given[name] {
			return g.errorf(number, "node %s: %s is missing", id, name)
		}
	}
	g.index[id] = len(g.nodes)
	g.nodes = append(g.nodes, n)
	return nil
}

// amount reads a number of at least 0. If `list` is true, the text may also be a list of such numbers, and amount
// returns their sum.
func amount(text string, list bool) (float64, bool) {
	text = strings.TrimSpace(text)
	if inner, ok := strings.CutPrefix(text, "["); ok && list {
		inner, ok = strings.CutSuffix(inner, "]")
		sum := 0.0
		for word := range strings.SplitSeq(inner, ";") {
			x, fine := amount(word, false)
			sum, ok = sum+x, ok && fine
		}
		return sum, ok && !math.IsInf(sum, 0)
	}
	x, err := strconv.ParseFloat(text, 64)
	return x, err == nil && x >= 0 && !math.IsInf(x, 0)
}
