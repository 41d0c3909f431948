package leader

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

const (
	// firstPause and longestPause are between two attempts at what a process does before it campaigns.
	// attemptTimeout bounds each.
	firstPause, longestPause = 100 * time.Millisecond, 10 * time.Second
	attemptTimeout           = 10 * time.Second
)

// insist calls try until it succeeds, and says in the log, and to held, what this process waits for. It returns nil, or
// ctx's cause.
func insist(ctx context.Context, held func(why string), cannot string, try func(context.Context) error) error {
	began, told := time.Now(), false
	defer held("")
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		err := try(attempt)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil && time.Since(began) > time.Second && (!told || pause == longestPause) {
			told = true // a server that starts refuses for a moment
			klog.FromContext(ctx).Error(err, cannot, "since", time.Since(began).Round(time.Second))
			held(cannot + ": " + err.Error())
		} else {
			klog.FromContext(ctx).V(2).Info(cannot+": trying again", "err", err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}
