package launch

// readTorch reads what torchrun sets for each worker, and a PyTorchJob for each pod.
func readTorch(env environment) (*claim, error) {
	if !env.has("RANK") && !env.has("WORLD_SIZE") {
		return nil, nil
	}
	if err := env.together("RANK", "WORLD_SIZE"); err != nil {
		return nil, err
	}
	n := numbers{env: env}
	c := &claim{names: []string{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}}
	c.Size = n.must("WORLD_SIZE", 1, MaxSize)
	c.Rank = n.must("RANK", 0, max(0, c.Size-1))
	c.LocalSize = n.may("LOCAL_WORLD_SIZE", 1, max(1, c.Size), Unknown)
	c.LocalRank = n.may("LOCAL_RANK", 0, max(0, c.Size-1), Unknown)
	c.Nodes = n.may("GROUP_WORLD_SIZE", 1, max(1, c.Size), Unknown)
	c.Node = n.may("GROUP_RANK", 0, max(0, c.Nodes-1), Unknown)
	c.Restart = n.may("TORCHELASTIC_RESTART_COUNT", 0, MaxSize, 0)
	c.Port = n.may("MASTER_PORT", 1, maxPort, 0)
	if n.err != nil {
		return nil, n.err
	}
	c.Address, c.RunID = env["MASTER_ADDR"], env["TORCHELASTIC_RUN_ID"]
	if c.Port > 0 && env["TORCHELASTIC_USE_AGENT_STORE"] == "True" {
		c.Port = beside(c.Port) // torchrun itself listens on MASTER_PORT
	}
	return c, c.check(env, "LOCAL_RANK", "LOCAL_WORLD_SIZE")
}

// beside returns a port next to one that is taken.
func beside(port int) int {
	if port == maxPort {
		return port - 1
	}
	return port + 1
}
