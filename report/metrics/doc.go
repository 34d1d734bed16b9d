// Package metrics passes the values of a running run to other programs.
//
// In: the values of each step and each evaluation, in order, from one goroutine. Out: several Sinks for them: JSONL (a
// line for each), TensorBoard (an event file), Prometheus (the newest values, for a server to fetch). The type Sinks
// feeds several. Refused: values that a format cannot hold, such as a NaN loss in JSON. It opens no file and no
// connection: the caller gives a writer, or serves the Handler, and closes them.
package metrics
