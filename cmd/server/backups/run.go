package backups

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/cmd/server/bundles"
	"github.com/regent-project/regent/pkg/server/backup"
	"github.com/regent-project/regent/pkg/server/status"
)

const (
	// every is the pause between two looks at what has changed, and so what a backup lacks at most, with the time
	// that a look takes.
	every = 500 * time.Millisecond
	// idleFor is how long nothing is written while nothing changes.
	idleFor = 10 * time.Second
	// fileBytes is how large a file of changes becomes before another one is begun.
	fileBytes = 256 << 20
)

// RunOptions say what a backup keeps.
type RunOptions struct {
	// BaseEvery is how often all is read anew. A restore reads one base, and the changes since then.
	BaseEvery time.Duration
	// Keep is for how long one can go back.
	Keep time.Duration
	// Store gets a copy of the directory; nil: nothing does.
	Store Store
}

// Run follows a shard into a directory until ctx ends, and then returns nil. It goes on where an earlier run has ended.
// While no replica answers, it waits. An error is of what another try would not mend: the disk, missing rights, or an
// etcd that was restored, or that the store has another backup.
func Run(ctx context.Context, shard rest.Interface, directory string, o RunOptions) error {
	unlock, err := lock(directory)
	if err != nil {
		return err
	}
	defer unlock()
	had, err := readContents(directory)
	if err != nil {
		return err
	}
	if len(had.bases)+len(had.changes) == 0 {
		if err := forgetStore(directory); err != nil {
			return err
		}
	}
	f := &follower{shard: shard, directory: directory, options: o, baseWanted: make(chan struct{}, 1)}
	due := time.Now().Add(o.BaseEvery) // a base must follow the first changes, which tell when they are there
	if n := len(had.changes); n > 0 {
		f.last, due = &had.changes[n-1].last().Head, time.Now()
		f.after = f.last.Revision
		if m, err := had.at(time.Time{}); err == nil {
			due = m.base.last().Time.Add(o.BaseEvery)
		}
	}
	klog.FromContext(ctx).Info("Following the shard", "directory", directory, "behind", f.after)
	all, ctx := errgroup.WithContext(ctx)
	if o.Store != nil {
		f.mirror = newMirror(o.Store, had)
		all.Go(func() error { return f.mirror.run(ctx) })
	}
	all.Go(func() error { return f.follow(ctx) })
	all.Go(func() error { return f.takeBases(ctx, due) })
	err = all.Wait()
	if f.mirror != nil && !errors.Is(err, errForeign) {
		f.mirror.finish(ctx)
	}
	return err
}

// follower is one run. Two goroutines use it: one follows the changes, one takes bases.
type follower struct {
	shard     rest.Interface
	directory string
	options   RunOptions
	mirror    *mirror // nil: no store has a copy
	// baseWanted has a message once there are changes without a base before them.
	baseWanted chan struct{}

	// Only follow uses these.
	last    *backup.Head // what is written last; nil: nothing is
	after   int64        // the revision up to which the changes are written; 0: none are
	current *writer
	began   time.Time // of the current file
	written time.Time // when the last frame was
}

// follow writes what changes.
func (f *follower) follow(ctx context.Context) (err error) {
	defer func() {
		if f.current != nil {
			err = errors.Join(err, f.current.Close())
		}
	}()
	for pause := time.Duration(0); sleep(ctx, pause); {
		pause = every
		_, head, frame, err := f.ask(ctx, backup.Changes, f.position())
		switch {
		case ctx.Err() != nil:
			return nil
		case apierrors.IsResourceExpired(err):
			klog.FromContext(ctx).Error(err, "The backup lacks changes that etcd has no more: it cannot go back to the time since then and until the next base", "behind", f.after)
			f.after = 0
			continue
		case err != nil:
			return err
		}
		if f.last != nil {
			if err := head.Follows(f.last); err != nil {
				return err
			}
		}
		if err := f.write(head, frame); err != nil {
			return err
		}
		if head.Time.IsZero() && head.Revision > head.After { // there is more
			pause = 0
		}
	}
	return nil
}

// position is what the next frame is asked behind.
func (f *follower) position() string {
	if f.after == 0 {
		return ""
	}
	return strconv.FormatInt(f.after, 10)
}

func (f *follower) write(head backup.Head, frame []byte) (err error) {
	isFirst := f.after == 0
	if !isFirst && head.After == head.Revision && time.Since(f.written) < idleFor {
		return nil
	}
	if isFirst || f.current == nil || f.current.bytes > fileBytes || time.Since(f.began) > f.options.BaseEvery {
		if f.current != nil {
			if err := f.current.Close(); err != nil {
				return fmt.Errorf("close a file of the backup: %w", err)
			}
		}
		if f.current, err = openChanges(filepath.Join(f.directory, nameOf(backup.Changes, head.After))); err != nil {
			return err
		}
		f.began = time.Now()
	}
	if err := f.current.append(frame); err != nil {
		return err
	}
	f.mirror.note(f.current.Name(), f.current.bytes)
	f.last, f.after, f.written = &head, head.Revision, time.Now()
	if isFirst {
		select {
		case f.baseWanted <- struct{}{}:
		default:
		}
	}
	return nil
}

// takeBases takes a base when one is due or wanted, and removes what is not needed any more.
func (f *follower) takeBases(ctx context.Context, due time.Time) error {
	for ctx.Err() == nil {
		timer := time.NewTimer(time.Until(due))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-f.baseWanted:
		}
		timer.Stop()
		if err := f.takeBase(ctx); err != nil {
			return err
		}
		due = time.Now().Add(f.options.BaseEvery)
	}
	return nil
}

// takeBase writes a base, under its name once it is whole.
func (f *follower) takeBase(ctx context.Context) (err error) {
	began, unfinished := time.Now(), filepath.Join(f.directory, string(backup.Base)+part)
	out, err := create(unfinished)
	if err != nil {
		return err
	}
	defer func() {
		if left := os.Remove(unfinished); left != nil && !errors.Is(left, fs.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("remove what is not whole: %w", left))
		}
	}()
	first, err := f.readBase(ctx, out)
	if err = errors.Join(err, out.Close()); ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	had, err := readContents(f.directory)
	if err != nil {
		return err
	}
	if len(had.changes) == 0 { // the base is of no use: the first changes will ask for another one
		return nil
	}
	if err := first.IsOf(&had.changes[0].first().Head); err != nil {
		return err
	}
	name := nameOf(backup.Base, first.Revision)
	if err := os.Rename(unfinished, filepath.Join(f.directory, name)); err != nil {
		return fmt.Errorf("name the base: %w", err)
	}
	if err := syncDirectory(f.directory); err != nil {
		return err
	}
	f.mirror.note(name, out.bytes)
	klog.FromContext(ctx).Info("The backup has a base", "file", name, "bytes", out.bytes, "after", time.Since(began).Round(time.Millisecond))
	all, err := readContents(f.directory)
	if err != nil {
		return err
	}
	names, err := all.prune(f.options.Keep)
	f.mirror.forget(names)
	return err
}

// readBase writes all frames of a base, and returns the head of the first one.
func (f *follower) readBase(ctx context.Context, out *writer) (first *backup.Head, err error) {
	next := ""
	for first == nil || next != "" {
		var head backup.Head
		var frame []byte
		if next, head, frame, err = f.ask(ctx, backup.Base, next); err != nil {
			return nil, err
		}
		if first == nil {
			first = &head
		}
		if err := errors.Join(head.IsOf(first), out.append(frame)); err != nil {
			return nil, err
		}
	}
	return first, nil
}

// ask asks for a frame, again while no replica answers.
func (f *follower) ask(ctx context.Context, kind backup.Kind, after string) (next string, head backup.Head, frame []byte, err error) {
	for down := (time.Time{}); ; {
		req := f.shard.Get().AbsPath(status.BackupPath).Param("of", string(kind))
		if after != "" {
			req = req.Param("after", after)
		}
		result := req.Do(ctx)
		if err = result.Error(); err == nil { // that of Raw does not say why
			var text []byte
			if text, err = result.Raw(); err == nil {
				next, head, frame, err = parseAnswer(text)
			}
		}
		log := klog.FromContext(ctx)
		switch {
		case err == nil && head.Kind != kind:
			return "", head, nil, fmt.Errorf("a frame of %s was asked for, and the server has answered one of %s", kind, head.Kind)
		case err == nil:
			if head.Unreadable > 0 {
				log.Error(nil, "The backup has objects without their content: the replica could not decode or decrypt them. See which they are with regent backup extract, and whether the KMS plugin answers", "of", kind, "objects", head.Unreadable, "revision", head.Revision)
			}
			if !down.IsZero() {
				log.Info("The shard answers again", "of", kind, "after", time.Since(down).Round(time.Second))
			}
			return next, head, frame, nil
		// a page is asked for again
		case !bundles.IsPassing(err) && (kind != backup.Base || !apierrors.IsResourceExpired(err)):
			return "", head, nil, err
		case down.IsZero() && ctx.Err() == nil:
			down = time.Now()
			log.Error(err, "The shard gives no backup now: it is asked again until it does. What is written meanwhile is read then", "of", kind)
		}
		if !sleep(ctx, every) {
			return "", head, nil, context.Cause(ctx)
		}
	}
}

// sleep reports whether the whole pause is over, and ctx has not ended.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}

func parseNext(line []byte) (string, error) {
	var a backup.Answer
	if err := json.Unmarshal(line, &a); err != nil {
		return "", fmt.Errorf("it has no first line: %w", err)
	}
	return a.Next, nil
}
