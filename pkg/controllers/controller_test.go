package controllers_test

import (
	"context"
	"slices"
	"testing"

	"github.com/regent-project/regent/pkg/controllers"
)

func TestTheRegistryKnowsTheScopesOfAShard(t *testing.T) {
	of := func(scopes ...controllers.Scope) (out []controllers.Descriptor) {
		for _, s := range scopes {
			d := controllers.Descriptor{Name: "c-" + s.String(), Scope: s, New: func(context.Context, controllers.Deps) (controllers.Controller, error) { return nil, nil }}
			out = append(out, d)
		}
		return out
	}
	registry, err := controllers.NewRegistry(of(controllers.Scopes...)...)
	if err != nil || !slices.Equal(registry.Names(), []string{"c-leader-only", "c-every-replica", "c-electing"}) {
		t.Errorf("%v", err)
	}
	if _, err := controllers.NewRegistry(of("somewhere")...); err == nil {
		t.Error("an unknown scope was accepted")
	}
	if _, err := registry.With(of("somewhere")...); err == nil {
		t.Error("an unknown scope was added")
	}
}
