package cluster

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// Protocol is one way in which a library moves a collective's bytes over a level's links. NCCL has three: LL,
// whose words carry a flag each and which waits for nothing else, LL128, and Simple, which waits for whole
// chunks. Its tuning model gives each a latency to begin with, one for each hop, and a part of the bandwidth,
// and takes the fastest one for each size (NCCL 2.21, src/graph/tuning.cc, ncclTopoTuneModel: baseLat, hwLat
// and busBw).
type Protocol struct {
	Name         string
	StartS       float64 // of each collective
	LatencyS     float64 // of a hop in a ring
	TreeLatencyS float64 // of a hop in a tree; 0: as LatencyS
	Share        float64 // of the bandwidth that collectives reach
}

// treeHopS is the latency of a hop in a tree.
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

// protocolsOf reads protocols, which it gives by name.
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

// sized reads what of a level depends on the size of messages.
func (l fileLevel) sized(out *Level) (err error) {
	if l.HalfSize != "" {
		if out.HalfBytes, err = positive(l.HalfSize, "half_size", byteUnits); err != nil {
			return err
		}
	}
	out.Protocols, err = protocolsOf(l.Protocols)
	return err
}

// checkProtocols refuses levels whose protocols differ: a collective over several levels goes by one.
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

// protocolsText is protocols as a file has them.
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

// leastOf is the least time of a collective over its protocols. took is what it takes on a cluster whose links are as a
// protocol has them; tree is the latency of a hop in a tree of a level.
func (c *Cluster) leastOf(level int, took func(c *Cluster, tree func(level int) float64) float64) float64 {
	at := slices.IndexFunc(c.Levels, func(l Level) bool { return l.Protocols != nil })
	if at < 0 {
		return took(c, func(level int) float64 { return c.Levels[level].LatencyS })
	}
	least := math.Inf(1)
	for i := range c.Levels[at].Protocols {
		start := 0.0
		for _, l := range c.Levels[:level+1] {
			if l.Protocols != nil {
				start = max(start, l.Protocols[i].StartS)
			}
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

// by is the cluster with links as the i-th protocol has them.
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
		}
	}
	return &out
}

// AtBest is a cluster whose messages and collectives take no longer than this one's of the same sizes, for bounds:
// without half sizes, and with the whole bandwidth at the least latency that any protocol has.
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
	return &out
}

// RingS is how long a ring over the group's links takes, in seconds: so many rounds of (size-1) hops, each of which
// moves a size-th of the bytes. An all-reduce goes round twice, a gather or a reduce-scatter once.
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
