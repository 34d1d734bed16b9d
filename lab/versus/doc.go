// Package versus compares two builds of millrace as programs.
//
// In go the paths of two binaries and the cases to compare them by; out come [Results]: for each case the times of both
// in pairs that alternate, the median of their ratios with its interval, and whether the new build is slower than a
// limit allows. [Splits] holds what both predict against what they then measure. Only verbs and flags that both
// builds have are used, each build plans and measures for itself, and a plan is fixed by its settings, not by a
// file, so that neither need read what the other writes.
//
// Both may be one program, which trains with threads in one case and with processes in the other.
//
// Refused: a binary that does not run, a case that fails on either side, and fewer pairs than an interval takes.
// Whoever calls it leaves the machine alone meanwhile; the load of the machine at the start is in the results.
package versus
