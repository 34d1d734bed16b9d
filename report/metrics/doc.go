// Package metrics tells other programs the values of a run while it lasts.
//
// In: plain values of each step and of each evaluation, in order, from one goroutine. Out: Sinks for them: JSONL
// (a line each), TensorBoard (an event file), Prometheus (the newest values, for a server to fetch); Sinks feeds
// several. Refused: what a format cannot say, a loss that is no number in JSON.
// It opens no file and no connection: whoever drives it gives a writer, or serves the Handler, and closes.
package metrics
