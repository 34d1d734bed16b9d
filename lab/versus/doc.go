// Package versus compares two builds of millrace as programs.
//
// In: the paths of two binaries, and the cases to compare them with. Out: [Results], with the times of both builds in
// alternating pairs, and the median of their ratios with its interval. The Results say whether the new build is slower
// than a limit allows. [Splits] compares both builds' predictions with their measurements. The package only uses verbs
// and flags that both builds have. Each build measures its own profiles. Plans are passed as flags, so neither build
// needs to read the other's files.
//
// Both builds may be the same program, which trains with threads in one case and with processes in the other.
//
// Refused: a binary that does not run, a case that fails on either side, and fewer pairs than an interval needs. The
// machine should be idle; the results record its load at the start.
package versus
