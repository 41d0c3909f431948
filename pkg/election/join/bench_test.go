package join

import (
	"context"
	"fmt"
	"testing"
)

// others are goroutines of the process that are in no scope, with stacks of 6 to 25 functions.
func others(b *testing.B, n int) {
	b.Helper()
	gate := make(chan struct{})
	for i := range n {
		go park(5+i%20, gate)
	}
	b.Cleanup(func() { close(gate) })
}

func park(depth int, gate chan struct{}) {
	if depth > 0 {
		park(depth-1, gate)
		return
	}
	<-gate
}

func BenchmarkEnd(b *testing.B) {
	for _, n := range []int{10, 1_000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			others(b, n)
			before := looks.begun.Load()
			for b.Loop() {
				s := scope(b)
				s.Do(func(ctx context.Context) {
					for range 10 {
						go func() { <-ctx.Done() }()
					}
				})
				s.End()
			}
			b.ReportMetric(float64(looks.begun.Load()-before)/float64(b.N), "looks/op")
		})
	}
}

func BenchmarkOnEnd(b *testing.B) {
	for _, where := range []string{"in Do", "elsewhere"} {
		b.Run(where, func(b *testing.B) {
			others(b, 1_000)
			s := scope(b)
			defer s.End()
			s.Do(func(context.Context) {
				register := func() {
					for b.Loop() {
						OnEnd(func() {})
					}
				}
				if where == "in Do" {
					register()
				} else {
					<-ends(register)
				}
			})
		})
	}
}
