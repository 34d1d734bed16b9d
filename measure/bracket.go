package measure

import "github.com/millrace-ml/millrace/engine"

// bracket is the work of a device between two events.
type bracket struct{ begin, end engine.Event }

// seconds returns how long each bracket took. It waits for the device.
func seconds(of []bracket) []float64 {
	var all []float64
	for _, b := range of {
		all = append(all, b.end.At().Sub(b.begin.At()).Seconds())
	}
	return all
}
