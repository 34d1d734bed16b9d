// Package slow makes hosts with slow links on one machine, and keeps measurements of trainings over them.
//
// In: the number of hosts, the rate of their links, and the measurements of rivals that trained over them. Out:
// namespaces to start commands in, the cluster file that describes them, the workloads, a file of cells, tables and a
// plot. A host is a network namespace with one interface. A bridge connects the hosts' interfaces, and tc's token
// bucket limits both directions. A host's processes run on one processor.
//
// Refused: a machine on which this is not possible, with the failed command and its output (it needs root, ip, tc,
// unshare, nsenter and taskset); rates and numbers of hosts outside their ranges; results files of another form.
//
// A process in each namespace keeps the namespace alive as long as it can read a pipe. The process that opened the
// hosts holds the other end of the pipe. So when the process that opened the hosts ends, however it ends, all
// namespaces end too. The machine's own network is not changed. The caller ends what it started on the hosts, and then
// closes them.
package slow
