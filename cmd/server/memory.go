package main

import (
	"context"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"k8s.io/klog/v2"
)

// limitMemory has Go's garbage collector keep this process below nine tenths of the memory that its container, or the
// machine, has: it then works harder, where the kernel would end the process otherwise. GOMEMLIMIT and AUTOMEMLIMIT
// decide otherwise.
func limitMemory(ctx context.Context) {
	limit, err := memlimit.Set(memlimit.WithProvider(memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem)))
	if err != nil {
		klog.FromContext(ctx).Error(err, "How much memory there is cannot be found out, so Go does not heed it: set GOMEMLIMIT")
		return
	}
	klog.FromContext(ctx).V(2).Info("Go's garbage collector heeds a limit of memory", "bytes", limit)
}
