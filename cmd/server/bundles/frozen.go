package bundles

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/server/bundle"
)

const (
	// writeBytes is how many bytes of objects are sent at once, and as many as the last one has.
	writeBytes = 1 << 20
	// pagesAtOnce is how many of these are under way: the server reads one while it writes another.
	pagesAtOnce = 2
	// renewInterval is how often a freeze is renewed, which lasts for ten seconds.
	renewInterval = 2 * time.Second
	// thawTimeout is how long the end of a freeze may take that ends by itself, too.
	thawTimeout = 5 * time.Second
)

// frozen is a logical cluster that this process has frozen, to put it back (bundle.FreezePath) or to take it in
// (bundle.ComingPath).
type frozen struct {
	bundle.Frozen
	client rest.Interface
	path   string
	// cluster is the name of one that is taken in, and coming its LogicalCluster and Workspace.
	cluster string
	coming  []byte
	lines   bytes.Buffer
	// sent are told what has become of the lines that were sent, the oldest first.
	sent []chan error
}

// errThawed is of a freeze that has ended too early.
var errThawed = errors.New("the workspace was not frozen any longer, and some objects may have been put back: do it again")

// errNotThere is of a workspace that was taken in, and cannot be made one that is there.
var errNotThere = errors.New("the server did not say that it is there: it is as a whole, or soon nothing of it is")

// whileFrozen calls do while nobody else writes in a workspace. The context of do ends if that does.
func whileFrozen(ctx context.Context, f *frozen, do func(context.Context, *frozen) error) (err error) {
	if err := patiently(ctx, func() error { return f.ask(ctx, f.request("POST", f.coming), &f.Frozen) }); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	within, cancel := context.WithCancelCause(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() { f.renew(within, cancel) })
	err = do(within, f)
	if cause := context.Cause(within); err != nil && cause != nil && ctx.Err() == nil {
		err = cause
	}
	cancel(nil)
	renewing.Wait()
	_ = f.await() // if do has failed
	thawing, stop := context.WithTimeout(context.WithoutCancel(ctx), thawTimeout)
	defer stop()
	if f.coming != nil && err == nil {
		if err = patiently(thawing, func() error { return f.ask(thawing, f.request("POST", f.coming), nil) }); err == nil {
			return nil
		}
		err = fmt.Errorf("%w (%w)", errNotThere, err)
	}
	// Of one that is there after all this removes nothing.
	thawed := patiently(thawing, func() error { return f.ask(thawing, f.request("DELETE", nil), nil) })
	if err == nil && thawed != nil {
		err = fmt.Errorf("%w (%w)", errThawed, thawed)
	}
	return err
}

// request returns a request about the freeze.
func (f *frozen) request(verb string, body []byte) *rest.Request {
	req := f.client.Verb(verb).AbsPath(f.path)
	if f.Freeze != "" {
		req = req.Param("freeze", f.Freeze)
	}
	if f.cluster != "" {
		req = req.Param("cluster", f.cluster)
	}
	if body != nil {
		req = req.Body(body)
	}
	return req
}

// ask makes a request about the freeze. out is filled with the answer, unless it is nil.
func (f *frozen) ask(ctx context.Context, req *rest.Request, out *bundle.Frozen) error {
	result := req.Do(ctx)
	if err := result.Error(); err != nil || out == nil {
		return err
	}
	answer, err := result.Raw()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("the answer of the server is none about a freeze: %w", err)
	}
	return nil
}

// renew renews the freeze until the context ends, and ends it if the freeze has.
func (f *frozen) renew(ctx context.Context, end context.CancelCauseFunc) {
	tick := time.NewTicker(renewInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := patiently(ctx, func() error { return f.ask(ctx, f.request("PUT", nil), nil) })
		if err != nil && ctx.Err() == nil {
			end(fmt.Errorf("%w (%w)", errThawed, err))
			return
		}
	}
}

// add has an object written, now or with others.
func (f *frozen) add(ctx context.Context, o bundle.Object) error {
	if err := json.NewEncoder(&f.lines).Encode(o); err != nil {
		return fmt.Errorf("%s: %w", o.Key, err)
	}
	if f.lines.Len() < writeBytes {
		return nil
	}
	return f.send(ctx)
}

// flush returns once all is written.
func (f *frozen) flush(ctx context.Context) error {
	if err := f.send(ctx); err != nil {
		return err
	}
	return f.await()
}

// send sends what was added, and returns while the server writes it, once there is a place for it. What it starts ends
// before await returns, and so before whileFrozen does.
func (f *frozen) send(ctx context.Context) error {
	if f.lines.Len() == 0 {
		return nil
	}
	if len(f.sent) >= pagesAtOnce {
		if err := f.awaitOldest(); err != nil {
			return err
		}
	}
	lines, sent := bytes.Clone(f.lines.Bytes()), make(chan error, 1)
	f.lines.Reset()
	f.sent = append(f.sent, sent)
	go func() { sent <- patiently(ctx, func() error { return f.ask(ctx, f.request("PUT", lines), nil) }) }()
	return nil
}

// await returns once all that was sent is written.
func (f *frozen) await() (err error) {
	for len(f.sent) > 0 {
		if failed := f.awaitOldest(); err == nil {
			err = failed
		}
	}
	return err
}

func (f *frozen) awaitOldest() error {
	err := <-f.sent[0]
	f.sent = f.sent[1:]
	if err != nil {
		return fmt.Errorf("write objects of the workspace: %w", err)
	}
	return nil
}
