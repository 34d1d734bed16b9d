package launch

import "fmt"

// readOwn reads the variables that millrace launch sets. Users of other launchers may set them too.
func readOwn(env environment) (*claim, error) {
	if !env.has(RankVar) {
		return nil, nil // a size without a rank is meant for pods, which know their index
	}
	if err := env.together(RankVar, SizeVar); err != nil {
		return nil, err
	}
	n := numbers{env: env}
	c := &claim{names: []string{RankVar, SizeVar}}
	c.Size = n.must(SizeVar, 1, MaxSize)
	c.Rank = n.must(RankVar, 0, max(0, c.Size-1))
	c.LocalSize = n.may(LocalSizeVar, 1, max(1, c.Size), Unknown)
	c.LocalRank = n.may(LocalRankVar, 0, max(0, c.Size-1), Unknown)
	c.Nodes = n.may(NodesVar, 1, max(1, c.Size), Unknown)
	c.Node = n.may(NodeVar, 0, max(0, c.Nodes-1), Unknown)
	c.Host = env[HostVar]
	if n.err != nil {
		return nil, n.err
	}
	return c, c.check(env, LocalRankVar, LocalSizeVar)
}

// check refuses numbers that contradict each other.
func (c *claim) check(env environment, rank, size string) error {
	if c.LocalRank > c.Rank || c.LocalSize > c.Size || c.LocalSize != Unknown && c.LocalRank >= c.LocalSize {
		return fmt.Errorf("rank %d of %d in all is %d of %d on its host (%s, %s); that cannot be", c.Rank, c.Size,
			c.LocalRank, c.LocalSize, env.shown(rank), env.shown(size))
	}
	return nil
}
