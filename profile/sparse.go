package profile

// Sparse chooses `few` of n states, in order. One of them is the last state. Sparse divides the other states into runs,
// and keeps from each run the state with the least output.
func Sparse(n, few int, output func(k int) int64) []int {
	var kept []int
	for b := range few - 1 {
		best := -1
		for k := b * (n - 1) / (few - 1); k < (b+1)*(n-1)/(few-1); k++ {
			if best < 0 || output(k) < output(best) {
				best = k
			}
		}
		if best >= 0 {
			kept = append(kept, best)
		}
	}
	return append(kept, n-1)
}
