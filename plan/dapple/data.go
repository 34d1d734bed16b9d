package dapple

// parallel is data parallelism on all devices, which DAPPLE compares with (§4, §6.3).
type parallel struct {
	microBatch, micro int // samples of one device's micro-batch, and number of micro-batches over all devices
	plain, hidden     float64
}

// time returns the step time for a value of the setting overlap: "yes", "no", or "both" for the better one.
func (d parallel) time(overlap string) float64 {
	if overlap == "no" {
		return d.plain
	}
	return d.hidden // `hidden` is at most `plain`
}

// dataParallel returns gradient accumulation with micro-batches of d.mb samples. It is on all G devices or, if there
// are only M < G micro-batches, on M devices. Each device takes up to ceil(M/G) of them, and one all-reduce follows.
// Without overlap, the all-reduce waits for the last backward. With overlap, each layer's all-reduce begins in the last
// backward, once its gradient is ready and the previous all-reduce is done (wait-free back-propagation). `ok` says
// whether the whole model fits every device.
func (d *costs) dataParallel() (dp parallel, ok bool) {
	n, G := len(d.p.Layers), len(d.typeOf)
	dp = parallel{microBatch: d.mb, micro: d.M}
	all := make([]int, min(G, d.M))
	for i := range all {
		all[i] = i
	}
	g := d.groupOf(all)
	for _, t := range g.types {
		f, b := d.forward[t], d.backward[t]
		rounds := float64((d.M + len(all) - 1) / len(all))
		dp.plain = max(dp.plain, rounds*(f[n]+b[n])+g.allReduceS(float64(d.parameters[n])))
		now, link := rounds*(f[n]+b[n])-b[n], 0.0
		for k := n - 1; k >= 0; k-- {
			now += b[k+1] - b[k]
			if bytes := d.parameters[k+1] - d.parameters[k]; bytes > 0 {
				link = max(link, now) + g.allReduceS(float64(bytes))
			}
		}
		dp.hidden = max(dp.hidden, now, link)
	}
	dp.hidden = min(dp.hidden, dp.plain) // one all-reduce of everything is always possible
	return dp, d.depth(0, n, 1, g.memory, false) > 0
}
