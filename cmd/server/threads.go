package main

import (
	"os"
	"runtime"
)

// threadsPerCPU is how many Go threads run at once for each CPU. BenchmarkFlood compares: with one, who asks beside a
// flood waits four times as long.
const threadsPerCPU = 3

// shareCPUs has more threads run Go code than there are CPUs, and returns how many CPUs there are. Go looks for what
// has arrived on connections only when a thread has nothing else to do, or else each 10 ms. While a flood keeps as many
// threads busy as there are CPUs, every request waits for that, also one that has a place at once. Of more threads one
// is idle, and the kernel lets it in. Who sets GOMAXPROCS decides himself.
func shareCPUs() (cpus int) {
	cpus = runtime.GOMAXPROCS(0)
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(threadsPerCPU * cpus)
	}
	return cpus
}
