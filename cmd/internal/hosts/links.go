package hosts

import (
	"fmt"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/measure/links"
)

// Measured are the links of a survey's levels; nil where no two processes are so.
type Measured struct {
	Host, Network         *links.Link
	HostRanks, BetweenTwo [2]int
}

// Links measures the link of each level, over TCP as the run will go.
func (c *Crew) Links(s *Survey) (*Measured, error) {
	m := &Measured{}
	m.HostRanks, m.BetweenTwo = s.Levels()
	for _, level := range []struct {
		pair [2]int
		into **links.Link
	}{{m.HostRanks, &m.Host}, {m.BetweenTwo, &m.Network}} {
		if level.pair[0] < 0 {
			continue
		}
		l, err := c.Measure(level.pair, c.party.Encrypted())
		if err != nil {
			return nil, fmt.Errorf("the link between %s and %s: %w", c.name(level.pair[0]),
				c.name(level.pair[1]), err)
		}
		*level.into = &l
	}
	return m, nil
}

// Between is what a cluster is told of the levels, inside being what joins the workers of a process: the same
// happens to a message that has come over the network, which is then taken by a worker, and to the vectors that
// are summed.
func (m *Measured) Between(inside cluster.Link) Links {
	of := func(l *links.Link) cluster.Link {
		if l == nil {
			return inside // which joins nothing
		}
		slowest := min(l.ThereBytesPerSecond, l.BackBytesPerSecond)
		out := cluster.Link{LatencyS: inside.LatencyS + l.LatencyS, BandwidthBytesPerSecond: slowest}
		if sums := inside.CollectiveBytesPerSecond; sums > 0 {
			out.CollectiveBytesPerSecond = 1 / (1/slowest + 1/sums)
		}
		return out
	}
	return Links{Process: inside, Host: of(m.Host), Network: of(m.Network)}
}

// Describe is the links in words.
func (m *Measured) Describe() string {
	text := ""
	for _, level := range []struct {
		what string
		l    *links.Link
		pair [2]int
	}{{"inside a host", m.Host, m.HostRanks}, {"between hosts", m.Network, m.BetweenTwo}} {
		if level.l != nil {
			text += fmt.Sprintf("link %s: %s, %s there and %s back, between ranks %d and %d\n", level.what,
				cluster.FormatSeconds(level.l.LatencyS), cluster.FormatRate(level.l.ThereBytesPerSecond),
				cluster.FormatRate(level.l.BackBytesPerSecond), level.pair[0], level.pair[1])
		}
	}
	return text
}
