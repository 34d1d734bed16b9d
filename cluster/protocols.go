package cluster

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// Protocol describes how a collective library moves bytes over a level's links. NCCL has three: LL (a flag in each
// word), LL128 (a flag in each 128 bytes), and Simple (synchronises on whole chunks). NCCL's tuning model gives each
// protocol a latency per collective, a latency per hop and a share of the bandwidth. For each size of a collective,
// NCCL takes the fastest protocol (NCCL 2.21, src/graph/tuning.cc, ncclTopoTuneModel: baseLat, hwLat and busBw).
type Protocol struct {
	Name         string
	StartS       float64 // seconds per collective
	LatencyS     float64 // seconds per hop in a ring
	TreeLatencyS float64 // seconds per hop in a tree; 0 means LatencyS
	Share        float64 // part of the collective bandwidth that it reaches, 0 to 1
}

// treeHopS returns the latency of a hop in a tree, in seconds.
func (p Protocol) treeHopS() float64 {
	if p.TreeLatencyS > 0 {
		return p.TreeLatencyS
	}
	return p.LatencyS
}

type fileProtocol struct {
	Start       string  `yaml:"start"`
	Latency     string  `yaml:"latency"`
	TreeLatency string  `yaml:"tree_latency"`
	Share       float64 `yaml:"share"`
}

// protocolsOf reads the protocols of a file and returns them in the order of their names.
func protocolsOf(said map[string]fileProtocol) ([]Protocol, error) {
	var out []Protocol
	for _, name := range slices.Sorted(maps.Keys(said)) {
		own := said[name]
		p := Protocol{Name: name, Share: own.Share}
		if !(p.Share > 0 && p.Share <= 1) {
			return nil, fmt.Errorf("protocols: %s: share is %v; it is the part of the bandwidth that it reaches, over 0 "+
				"and up to 1", name, own.Share)
		}
		for _, t := range []struct {
			text, what string
			to         *float64
		}{{own.Start, "start", &p.StartS}, {own.Latency, "latency", &p.LatencyS},
			{own.TreeLatency, "tree_latency", &p.TreeLatencyS}} {
			if t.text == "" {
				continue
			}
			var err error
			if *t.to, err = quantity(t.text, t.what, timeUnits); err != nil {
				return nil, fmt.Errorf("protocols: %s: %w", name, err)
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// sized reads a level's half size and protocols.
func (l fileLevel) sized(out *Level) (err error) {
	if l.HalfSize != "" {
		if out.HalfBytes, err = positive(l.HalfSize, "half_size", byteUnits); err != nil {
			return err
		}
	}
	out.Protocols, err = protocolsOf(l.Protocols)
	return err
}

// checkProtocols refuses levels whose protocols have different names. A collective over several levels uses one
// protocol on all of them.
func (c *Cluster) checkProtocols() error {
	var first *Level
	for i := range c.Levels {
		l := &c.Levels[i]
		switch {
		case l.Protocols == nil:
		case first == nil:
			first = l
		case !slices.EqualFunc(first.Protocols, l.Protocols, func(a, b Protocol) bool { return a.Name == b.Name }):
			return fmt.Errorf("cluster: %s: levels %s and %s have protocols %v and %v; a collective over both goes by one, so "+
				"give both the same names, or leave one without", c.Name, first.Name, l.Name, namesOf(first.Protocols),
				namesOf(l.Protocols))
		}
	}
	return nil
}

func namesOf(all []Protocol) (names []string) {
	for _, p := range all {
		names = append(names, p.Name)
	}
	return names
}

// protocolsText returns protocols in the form of a cluster file.
func protocolsText(all []Protocol) string {
	var f fields
	for _, p := range all {
		var own fields
		own.quantity("start", p.StartS, timeUnits)
		own.quantity("latency", p.LatencyS, timeUnits)
		own.quantity("tree_latency", p.TreeLatencyS, timeUnits)
		own.number("share", p.Share)
		f.say(word(p.Name), "{"+own.String()+"}")
	}
	return f.String()
}

// leastOf returns the time of a collective among devices under its fastest protocol, in seconds. For each protocol it
// calls `took` with a cluster that has this protocol's latencies and bandwidths. The second argument of `took` is a
// function that returns the latency of a hop in a level's tree. leastOf adds the start of the collective to the result
// of `took`. It is the longest start among the levels that join some of the devices.
func (c *Cluster) leastOf(devices []int, took func(c *Cluster, tree func(level int) float64) float64) float64 {
	at := slices.IndexFunc(c.Levels, func(l Level) bool { return l.Protocols != nil })
	if at < 0 {
		return took(c, func(level int) float64 { return c.Levels[level].LatencyS })
	}
	var passed []Level
	sorted := slices.Sorted(slices.Values(devices))
	for i, l := range c.Levels {
		if l.Protocols != nil && c.members(sorted, i-1) > c.members(sorted, i) {
			passed = append(passed, l)
		}
	}
	least := math.Inf(1)
	for i := range c.Levels[at].Protocols {
		start := 0.0
		for _, l := range passed {
			start = max(start, l.Protocols[i].StartS)
		}
		least = min(least, start+took(c.by(i), func(level int) float64 {
			if all := c.Levels[level].Protocols; all != nil {
				return all[i].treeHopS()
			}
			return c.Levels[level].LatencyS
		}))
	}
	return least
}

// by returns the cluster with the latencies and bandwidths of the i-th protocol. They hold for all nodes: a node's own
// latency is only for messages.
func (c *Cluster) by(i int) *Cluster {
	out := *c
	out.Levels = slices.Clone(c.Levels)
	for at := range out.Levels {
		if l := &out.Levels[at]; l.Protocols != nil {
			p := l.Protocols[i]
			l.LatencyS, l.Protocols = p.LatencyS, nil
			l.BandwidthBytesPerSecond *= p.Share
			l.CollectiveBandwidthBytesPerSecond *= p.Share
		}
	}
	if share := c.Levels[0].Protocols; share != nil && c.Nodes != nil {
		out.Nodes = slices.Clone(c.Nodes)
		for n := range out.Nodes {
			out.Nodes[n].BandwidthBytesPerSecond *= share[i].Share
			out.Nodes[n].LatencyS = 0
		}
	}
	return &out
}

// AtBest returns a cluster for lower bounds: no message or collective takes longer on it than on c. Messages of every
// size reach the full bandwidth of a level. The latency of a level is the least of its own latency and its protocols'
// latencies.
func (c *Cluster) AtBest() *Cluster {
	if !slices.ContainsFunc(c.Levels, func(l Level) bool { return l.HalfBytes > 0 || l.Protocols != nil }) {
		return c
	}
	out := *c
	out.Levels = slices.Clone(c.Levels)
	for i := range out.Levels {
		l := &out.Levels[i]
		l.HalfBytes = 0
		for _, p := range l.Protocols {
			l.LatencyS = min(l.LatencyS, p.LatencyS, p.treeHopS())
		}
		l.Protocols = nil
	}
	out.Nodes = slices.Clone(c.Nodes)
	for i := range out.Nodes {
		if n := &out.Nodes[i]; n.LatencyS > 0 && c.Levels[0].Protocols != nil {
			n.LatencyS = min(n.LatencyS, out.Levels[0].LatencyS)
		}
	}
	return &out
}

// RingS returns the time of a ring over the group's links, in seconds. A round has Size-1 hops, and each hop moves
// bytes/Size bytes. An all-reduce has two rounds; a gather or a reduce-scatter has one.
func (g *Group) RingS(bytes float64, rounds int) float64 {
	n := float64(g.Size)
	hops := float64(rounds) * (n - 1)
	if g.Protocols == nil {
		return hops * (bytes/n/g.BandwidthBytesPerSecond + g.LatencyS)
	}
	least := math.Inf(1)
	for _, p := range g.Protocols {
		least = min(least, p.StartS+hops*(bytes/n/(g.BandwidthBytesPerSecond*p.Share)+p.LatencyS))
	}
	return least
}
