// Package metrics passes the values of a running run to other programs.
//
// In: the values of each step and each evaluation, in order, from one goroutine. Out: Sinks that take these values:
// JSONL (a line for each step and each evaluation), TensorBoard (an event file), Prometheus (the newest values, for a
// server to fetch). The type Sinks feeds several of them. Refused: values that a format cannot hold, such as a NaN loss
// in JSON. The package opens no file and no connection: the caller gives a writer, or serves the Handler, and closes
// them.
package metrics
