// Package slow makes hosts with slow links on one machine, and keeps what trainings over them were measured to do.
//
// In: how many hosts, and what their links are limited to; the figures of rivals that trained over them. Out:
// namespaces in which commands are started, the cluster file that describes them, the workloads, a file of
// cells, tables and a plot. A host is a network namespace with one interface, which a bridge joins to the
// others' and whose two directions are limited by tc's token bucket; its processes run on one processor.
//
// Refused: a machine on which this may not be made (it takes root, ip, tc, unshare, nsenter and taskset), with
// the command that failed and what it said; rates and counts of hosts outside their ranges; results files of
// another form.
//
// A namespace lives as long as a process in it, and that one reads a pipe from whoever opened the hosts. So
// nothing is left behind however that one ends, and the machine's own network is not touched. Whoever opens
// hosts ends what it started in them, and closes them.
package slow
