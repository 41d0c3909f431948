package perterm

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// refuseLeft returns an error if the manager of the process has runnables that need a leader. Every replica would run
// them, because that manager elects none.
func refuseLeft(process manager.Manager) error {
	var names []string
	for _, entry := range leftovers(process) {
		names = append(names, nameOf(entry.Elem()))
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("perterm: the manager of the process does not elect, so that every replica would run what needs a leader: %s. Add it to the manager of the term, in setup. "+
		"If every replica is to run it, let its method NeedLeaderElection return false (of a controller: manager.Options.Controller.NeedLeaderElection or controller.Options)", strings.Join(names, ", "))
}

// leftovers returns the runnables of a manager that need a leader and have not started, as fields that can be set. The
// interface does not tell, so it looks into controller-runtime's own type, as it is in v0.24 and v0.25. Of a manager of
// another type it returns none.
func leftovers(process manager.Manager) (runnables []reflect.Value) {
	queue := within(reflect.ValueOf(process), "runnables", "LeaderElection", "startQueue")
	if queue.Kind() != reflect.Slice || queue.Type().Elem().Kind() != reflect.Pointer {
		return nil
	}
	for i := range queue.Len() {
		// without the mark of a private field
		entry := reflect.NewAt(queue.Type().Elem().Elem(), queue.Index(i).UnsafePointer())
		if r := within(entry, "Runnable"); r.Kind() == reflect.Interface && !r.IsNil() {
			runnables = append(runnables, r)
		}
	}
	return runnables
}

// refused takes the place of a runnable that must not run.
type refused struct{ why error }

// Start returns why.
func (r refused) Start(context.Context) error { return r.why }

// takeOut has a manager that starts run none of what is left on it: it heeds an error only when everything has begun.
func takeOut(process manager.Manager, why error) {
	for _, r := range leftovers(process) {
		if r.CanSet() && reflect.TypeFor[refused]().AssignableTo(r.Type()) {
			r.Set(reflect.ValueOf(refused{why}))
		}
	}
}

// within returns a field of a field; invalid if there is none.
func within(v reflect.Value, path ...string) reflect.Value {
	for _, name := range path {
		for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct {
			return reflect.Value{}
		}
		v = v.FieldByName(name)
	}
	return v
}

// inspection looks for what was added to the manager of the process after Add. It is a runnable with a cache, because a
// manager starts these before all others and waits for their caches, so that nothing is added meanwhile.
type inspection struct {
	cache.Cache
	process manager.Manager
	warm    map[string]cache.Informer // Options.Warm, by type
	held    func(why string)          // tells what the process waits for
	done    chan struct{}             // closed when it has looked
	err     error                     // what it has found; set before done is closed
}

// Start implements manager.Runnable.
func (i *inspection) Start(ctx context.Context) error {
	if i.err = refuseLeft(i.process); i.err != nil {
		takeOut(i.process, i.err)
	}
	close(i.done)
	if i.err != nil { // a manager heeds the error only when all caches have synced
		i.process.GetLogger().Error(i.err, "This process does not campaign, and ends")
		i.held(i.err.Error())
		return i.err
	}
	i.watchWarm(ctx)
	<-ctx.Done()
	return nil
}

// warmPatience is after how long people are told that the process waits for a cache, and how often.
const warmPatience = 5 * time.Second

// watchWarm tells which kinds the process waits for before it campaigns, until there are none.
func (i *inspection) watchWarm(ctx context.Context) {
	defer i.held("")
	tick := time.NewTicker(look)
	defer tick.Stop()
	for told := time.Now(); ; {
		var waits []string
		for name, informer := range i.warm {
			if !informer.HasSynced() && !informer.IsStopped() {
				waits = append(waits, name)
			}
		}
		if len(waits) == 0 {
			return
		}
		if time.Since(told) >= warmPatience {
			told = time.Now()
			slices.Sort(waits)
			why := fmt.Sprintf("the cache of the process has not synced %s of perterm.Options.Warm: see whether the server has it, and whether this account may list and watch it", strings.Join(waits, ", "))
			i.process.GetLogger().Error(nil, "This process does not campaign yet: "+why)
			i.held(why)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// GetCache says that this is a runnable with a cache.
func (i *inspection) GetCache() cache.Cache { return i }

// WaitForCacheSync waits for the look.
func (i *inspection) WaitForCacheSync(context.Context) bool { <-i.done; return true }
