package bapipe

import (
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
)

// sizesOf is the micro-batch sizes to try, ascending: those that every type in the chain has.
func sizesOf(r plan.Request) ([]int, error) {
	if m := r.MicroBatch; m > 0 {
		if r.Batch%m != 0 {
			return nil, fmt.Errorf("plan: bapipe: a batch of %d samples is no multiple of the micro-batch, %d", r.Batch,
				m)
		}
		return []int{m}, nil
	}
	var sizes []int
	for _, s := range r.Profile.Sizes(r.Cluster.Devices[0]) {
		if r.Batch%s == 0 && !slices.ContainsFunc(r.Cluster.Devices, func(d string) bool {
			return !slices.Contains(r.Profile.Sizes(d), s)
		}) {
			sizes = append(sizes, s)
		}
	}
	if len(sizes) == 0 {
		return nil, fmt.Errorf("plan: bapipe: none of the profiled micro-batch sizes %v divides a batch of %d on "+
			"every device type; change the batch, or fix a micro-batch size",
			r.Profile.Sizes(r.Cluster.Devices[0]), r.Batch)
	}
	return sizes, nil
}

// maxOrders is how many orders of mixed devices are tried.
const maxOrders = 720

var errTooMany = errors.New("too many orders")

// ordersOf is the chains of devices to try, the given one first: device order matters where types are
// mixed. Devices of one type are alike and keep their order. all says whether no order is left out.
func ordersOf(c *cluster.Cluster, o options) (orders [][]int, all bool) {
	given := make([]int, o.stages)
	for i := range given {
		given[i] = i
	}
	orders = [][]int{given}
	byType := map[string][]int{}
	var types []string
	for d, t := range c.Devices {
		if byType[t] == nil {
			types = append(types, t)
		}
		byType[t] = append(byType[t], d)
	}
	if !o.search || len(types) < 2 {
		return orders, true
	}
	used := map[string]int{}
	var now []int
	var walk func(blocks bool) error
	walk = func(blocks bool) error {
		if len(now) == o.stages {
			if !slices.Equal(now, given) {
				orders = append(orders, slices.Clone(now))
			}
			if len(orders) > maxOrders {
				return errTooMany
			}
			return nil
		}
		for _, t := range types {
			if used[t] == len(byType[t]) {
				continue
			}
			if blocks && len(now) > 0 {
				if before := c.Devices[now[len(now)-1]]; before != t && used[before] < len(byType[before]) {
					continue
				}
			}
			now = append(now, byType[t][used[t]])
			used[t]++
			err := walk(blocks)
			used[t]--
			now = now[:len(now)-1]
			if err != nil {
				return err
			}
		}
		return nil
	}
	if walk(false) == nil {
		return orders, true
	}
	orders, now, used = [][]int{given}, nil, map[string]int{}
	_ = walk(true) // at most maxOrders of them
	return orders[:min(len(orders), maxOrders)], false
}
