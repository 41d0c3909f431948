package perterm

import (
	"context"
	"errors"
	"reflect"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/regent-project/regent/pkg/election/join"
)

// newClient returns the client of a term: that of the process, with all that the program has said of it, such as what
// it does not cache, whether it tries only, and as whom it writes. Requests belong to the term, whatever their contexts
// say. It is for manager.Options.NewClient.
func (t *tenancy) newClient(*rest.Config, client.Options) (client.Client, error) {
	return &termClient{t.process.GetClient(), t}, nil
}

// says reports whether the options of a term's manager say how its client is.
func says(o client.Options) bool { return !reflect.ValueOf(o).IsZero() }

// termClient is the client of the process in a term.
type termClient struct {
	client.Client
	t *tenancy
}

// Get implements client.Reader.
func (c *termClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.t.loan.await(c.t.in(ctx), kindOf(obj), func(ctx context.Context) error { return c.Client.Get(ctx, key, obj, opts...) })
}

// List implements client.Reader.
func (c *termClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.t.loan.await(c.t.in(ctx), kindOf(list), func(ctx context.Context) error { return c.Client.List(ctx, list, opts...) })
}

// Apply implements client.Writer.
func (c *termClient) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return c.t.write(ctx, func(ctx context.Context) error { return c.Client.Apply(ctx, obj, opts...) })
}

// Create implements client.Writer.
func (c *termClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return c.t.write(ctx, func(ctx context.Context) error { return c.Client.Create(ctx, obj, opts...) })
}

// Delete implements client.Writer.
func (c *termClient) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	return c.t.write(ctx, func(ctx context.Context) error { return c.Client.Delete(ctx, obj, opts...) })
}

// Update implements client.Writer.
func (c *termClient) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return c.t.write(ctx, func(ctx context.Context) error { return c.Client.Update(ctx, obj, opts...) })
}

// Patch implements client.Writer.
func (c *termClient) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return c.t.write(ctx, func(ctx context.Context) error { return c.Client.Patch(ctx, obj, patch, opts...) })
}

// DeleteAllOf implements client.Writer.
func (c *termClient) DeleteAllOf(ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	return c.t.write(ctx, func(ctx context.Context) error { return c.Client.DeleteAllOf(ctx, obj, opts...) })
}

// write makes a write of the term, outside of its scope: a client that reads its own writes may start the informer of a
// kind for that, which lives on with the process. If the election is fenced, and the write has not passed the
// connections that send tokens, the term fails: the program has given its client others.
func (t *tenancy) write(ctx context.Context, f func(ctx context.Context) error) (err error) {
	var carried atomic.Bool
	ctx = context.WithValue(t.in(ctx), carriedKey{}, &carried)
	join.Outside(func() { err = f(ctx) }) //nolint:contextcheck // f has it
	if err == nil && t.term.Fenced() && !carried.Load() {
		t.fail(errBypassed)
		return errBypassed
	}
	return err
}

var errBypassed = errors.New("the election is fenced, and a write of the term was made without its token: the client of the process (manager.Options.Client.HTTPClient, NewClient) does not use " +
	"the connections of the manager; leave them to it, or set NewClient in perterm.Options.Configure, which gets a configuration with the token")

// Status implements client.StatusClient.
func (c *termClient) Status() client.SubResourceWriter { return c.SubResource("status") }

// SubResource implements client.SubResourceClientConstructor.
func (c *termClient) SubResource(name string) client.SubResourceClient {
	return &termSubresource{c.Client.SubResource(name), c.t}
}

// termSubresource is a client for a subresource, in a term.
type termSubresource struct {
	client client.SubResourceClient
	t      *tenancy
}

// Get implements client.SubResourceReader.
func (c *termSubresource) Get(ctx context.Context, obj, sub client.Object, opts ...client.SubResourceGetOption) error {
	return c.client.Get(c.t.in(ctx), obj, sub, opts...)
}

// Create implements client.SubResourceWriter.
func (c *termSubresource) Create(ctx context.Context, obj, sub client.Object, opts ...client.SubResourceCreateOption) error {
	return c.t.write(ctx, func(ctx context.Context) error { return c.client.Create(ctx, obj, sub, opts...) })
}

// Update implements client.SubResourceWriter.
func (c *termSubresource) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	return c.t.write(ctx, func(ctx context.Context) error { return c.client.Update(ctx, obj, opts...) })
}

// Patch implements client.SubResourceWriter.
func (c *termSubresource) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	return c.t.write(ctx, func(ctx context.Context) error { return c.client.Patch(ctx, obj, patch, opts...) })
}

// Apply implements client.SubResourceWriter.
func (c *termSubresource) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	return c.t.write(ctx, func(ctx context.Context) error { return c.client.Apply(ctx, obj, opts...) })
}
